//! A small FTP client, that keeps to the standard.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use super::server::from_numbers;
use super::{PATIENCE, accept_within, pattern};

/// How data connections are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// `PORT`; IPv4 only.
    Port,
    /// `EPRT`.
    ExtendedPort,
    /// `PASV`; IPv4 only.
    Passive,
    /// `EPSV`.
    ExtendedPassive,
}

/// A data connection that was announced.
pub(crate) enum Announced {
    ByClient(TcpListener),
    ByServer(SocketAddr),
}

/// A control connection.
pub(crate) struct FtpClient {
    control: BufReader<TcpStream>,
}

impl FtpClient {
    /// Connects and logs in.
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let control = TcpStream::connect_timeout(&server, PATIENCE).expect("the control connection begins");
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self { control: BufReader::new(control) };
        assert_eq!(client.reply().0, 220);
        assert_eq!(client.command("USER anonymous").0, 331);
        assert_eq!(client.command("PASS mainstay@").0, 230);
        client
    }

    /// Sends a command; returns the code and the last line of the reply.
    pub(crate) fn command(&mut self, line: &str) -> (u16, String) {
        self.control.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("the command is sent");
        self.reply()
    }

    fn reply(&mut self) -> (u16, String) {
        let mut first = None;
        loop {
            let mut line = String::new();
            assert!(self.control.read_line(&mut line).expect("the server answers") > 0, "the server hung up");
            let code: u16 = line[..3].parse().expect("a reply begins with its code");
            if line.as_bytes()[3] == b' ' && first.is_none_or(|first| first == code) {
                return (code, line);
            }
            first = first.or(Some(code));
        }
    }

    /// Agrees with the server on where data goes.
    pub(crate) fn announce(&mut self, mode: Mode) -> Announced {
        let (local, peer) = (self.control.get_ref().local_addr().unwrap(), self.control.get_ref().peer_addr().unwrap());
        match mode {
            Mode::Port | Mode::ExtendedPort => {
                let listener = TcpListener::bind(SocketAddr::new(local.ip(), 0)).unwrap();
                let port = listener.local_addr().unwrap().port();
                let line = match local.ip() {
                    IpAddr::V4(ip) if mode == Mode::Port => {
                        let ([a, b, c, d], [high, low]) = (ip.octets(), port.to_be_bytes());
                        format!("PORT {a},{b},{c},{d},{high},{low}")
                    }
                    ip => format!("EPRT |{}|{ip}|{port}|", if ip.is_ipv4() { 1 } else { 2 }),
                };
                assert_eq!(self.command(&line).0, 200);
                Announced::ByClient(listener)
            }
            Mode::Passive => {
                let (code, line) = self.command("PASV");
                assert_eq!(code, 227);
                let numbers = line.split(['(', ')']).nth(1).expect("six numbers");
                Announced::ByServer(from_numbers(numbers).expect(&line))
            }
            Mode::ExtendedPassive => {
                let (code, line) = self.command("EPSV");
                assert_eq!(code, 229);
                let port = line.split('|').nth(3).expect("a port").parse().expect(&line);
                Announced::ByServer(SocketAddr::new(peer.ip(), port))
            }
        }
    }

    /// Fetches a file of so many bytes over the announced connection.
    pub(crate) fn fetch(&mut self, announced: Announced, bytes: usize) {
        self.fetch_around(announced, bytes, || {});
    }

    /// As [`FtpClient::fetch`]; `midway` is called when half of the file has been read.
    pub(crate) fn fetch_around(&mut self, announced: Announced, bytes: usize, midway: impl FnOnce()) {
        let mut data = self.transfer(announced, &format!("RETR {bytes}"));
        let mut file = vec![0; bytes / 2];
        data.read_exact(&mut file).expect("the first half arrives");
        midway();
        data.read_to_end(&mut file).expect("the file arrives");
        assert!(file == pattern(bytes), "{} of {bytes} bytes, or damaged", file.len());
        assert_eq!(self.reply().0, 226);
    }

    /// Sends a file of so many bytes over the announced connection.
    pub(crate) fn store(&mut self, announced: Announced, bytes: usize) {
        let mut data = self.transfer(announced, "STOR file");
        data.write_all(&pattern(bytes)).expect("the file is sent");
        drop(data);
        assert_eq!(self.reply().1.trim_end(), format!("226 {bytes} bytes, as it should be"));
    }

    fn transfer(&mut self, announced: Announced, command: &str) -> TcpStream {
        assert_eq!(self.command(command).0, 150);
        let data = match announced {
            Announced::ByClient(listener) => accept_within(&listener).expect("the server connects"),
            Announced::ByServer(address) => {
                TcpStream::connect_timeout(&address, PATIENCE).expect("the data connection begins")
            }
        };
        data.set_read_timeout(Some(PATIENCE)).unwrap();
        data
    }
}
