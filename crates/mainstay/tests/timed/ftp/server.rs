//! A small FTP server: enough of RFC 959 and RFC 2428 for a file to go either way.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::{PATIENCE, accept_within, pattern};

/// Serves every client, for as long as the process lives.
pub(crate) fn serve(listener: TcpListener) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that leaves in the middle is no concern of the others.
            thread::spawn(move || Session::new(stream).and_then(|mut session| session.run()));
        }
    });
}

/// Where data connections come from or go to.
enum Data {
    Nowhere,
    Connect(SocketAddr),
    Accept(TcpListener),
}

struct Session {
    control: BufReader<TcpStream>,
    data: Data,
}

impl Session {
    fn new(control: TcpStream) -> io::Result<Self> {
        control.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { control: BufReader::new(control), data: Data::Nowhere })
    }

    fn run(&mut self) -> io::Result<()> {
        self.reply("220-This server replies in several lines\r\n227 Not now (1,2,3,4,5,6)\r\n220 at first")?;
        let mut line = String::new();
        while self.control.read_line(&mut line)? > 0 {
            let (verb, argument) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
            let (verb, argument) = (verb.to_ascii_uppercase(), argument.to_owned());
            self.obey(&verb, &argument)?;
            if verb == "QUIT" {
                break;
            }
            line.clear();
        }
        Ok(())
    }

    fn obey(&mut self, verb: &str, argument: &str) -> io::Result<()> {
        match verb {
            "USER" => self.reply("331 and the password?"),
            "PASS" => self.reply("230 welcome"),
            "TYPE" => self.reply("200 as you like"),
            "QUIT" => self.reply("221 goodbye"),
            "PORT" | "EPRT" => {
                let address = if verb == "PORT" { from_numbers(argument) } else { from_extended(argument) };
                match address {
                    Some(address) => {
                        self.data = Data::Connect(address);
                        self.reply("200 I shall connect")
                    }
                    None => self.reply("501 where?"),
                }
            }
            "PASV" | "EPSV" => {
                let listener = TcpListener::bind(SocketAddr::new(self.control.get_ref().local_addr()?.ip(), 0))?;
                let address = listener.local_addr()?;
                self.data = Data::Accept(listener);
                match address.ip() {
                    IpAddr::V4(ip) if verb == "PASV" => {
                        let ([a, b, c, d], [high, low]) = (ip.octets(), address.port().to_be_bytes());
                        self.reply(&format!("227 Entering Passive Mode ({a},{b},{c},{d},{high},{low})."))
                    }
                    _ => self.reply(&format!("229 Entering Extended Passive Mode (|||{}|)", address.port())),
                }
            }
            "RETR" => {
                self.reply("150 here it comes")?;
                let mut data = self.open_data()?;
                data.write_all(&pattern(argument.parse().unwrap_or(0)))?;
                drop(data);
                self.reply("226 that was it")
            }
            "STOR" => {
                self.reply("150 go on")?;
                let mut bytes = Vec::new();
                self.open_data()?.read_to_end(&mut bytes)?;
                let verdict = if bytes == pattern(bytes.len()) { "as it should be" } else { "damaged" };
                self.reply(&format!("226 {} bytes, {verdict}", bytes.len()))
            }
            _ => self.reply("502 what?"),
        }
    }

    fn open_data(&mut self) -> io::Result<TcpStream> {
        let data = match std::mem::replace(&mut self.data, Data::Nowhere) {
            Data::Nowhere => return Err(io::Error::other("no data connection was announced")),
            Data::Connect(address) => TcpStream::connect_timeout(&address, PATIENCE)?,
            Data::Accept(listener) => accept_within(&listener)?,
        };
        data.set_read_timeout(Some(PATIENCE))?;
        Ok(data)
    }

    fn reply(&mut self, text: &str) -> io::Result<()> {
        self.control.get_mut().write_all(format!("{text}\r\n").as_bytes())
    }
}

/// `h1,h2,h3,h4,p1,p2`.
pub(crate) fn from_numbers(text: &str) -> Option<SocketAddr> {
    let numbers: Vec<u8> = text.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [a, b, c, d, high, low] = numbers[..] else { return None };
    Some(SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low]))))
}

/// `|1|address|port|`.
fn from_extended(text: &str) -> Option<SocketAddr> {
    let mut parts = text.split('|').skip(2);
    Some(SocketAddr::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
