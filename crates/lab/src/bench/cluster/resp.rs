//! What the remote store is asked and answers (RESP, version 2): records are read and written by key.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long the store may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// The longest answer: a record and its length.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// A record, or nothing under that key.
    Record(Option<Vec<u8>>),
    /// Something was done, or a number.
    Done,
    /// Something was not done: why.
    Refused(String),
}

impl Reply {
    /// Reads an answer, and returns how many bytes it has. `None`: more bytes are needed.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn read(bytes: &[u8]) -> io::Result<Option<(Self, usize)>> {
        let malformed = || io::Error::new(ErrorKind::InvalidData, "the store answers in another protocol");
        let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
            return if bytes.len() > REPLY_BYTES_MAX { Err(malformed()) } else { Ok(None) };
        };
        let (kind, text) = bytes[..end].split_first().ok_or_else(malformed)?;
        let text = std::str::from_utf8(text).map_err(|_| malformed())?;
        let after = end + 2;
        match kind {
            b'+' | b':' => Ok(Some((Self::Done, after))),
            b'-' => Ok(Some((Self::Refused(text.to_owned()), after))),
            b'$' if text == "-1" => Ok(Some((Self::Record(None), after))),
            b'$' => {
                let length = text.parse().ok().filter(|length| *length <= REPLY_BYTES_MAX).ok_or_else(malformed)?;
                match bytes.get(after..after + length + 2) {
                    None => Ok(None),
                    Some(record) if record.ends_with(b"\r\n") => {
                        Ok(Some((Self::Record(Some(record[..length].to_vec())), after + length + 2)))
                    }
                    Some(_) => Err(malformed()),
                }
            }
            _ => Err(malformed()),
        }
    }
}

/// Appends a command.
fn append(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// The calls of GET in the statistics of commands, which have no line for one that was never called.
fn reads_in(statistics: &[u8]) -> u64 {
    let statistics = String::from_utf8_lossy(statistics);
    let calls = statistics.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// A connection to the store.
pub(super) struct Store {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// Answers to writes that have not been read.
    unread: usize,
}

impl Store {
    /// Connects.
    ///
    /// # Errors
    /// The store does not listen.
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, ANSWERS_WITHIN)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
        Ok(Self { stream, incoming: Vec::new(), unread: 0 })
    }

    /// Reads the records of these keys, in one round trip.
    ///
    /// # Errors
    /// The store does not answer, or refuses.
    pub(super) fn get<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> io::Result<Vec<Option<Vec<u8>>>> {
        let mut request = Vec::new();
        keys.iter().for_each(|key| append(&mut request, &[b"GET", key.as_ref()]));
        self.stream.write_all(&request)?;
        for _ in 0..std::mem::take(&mut self.unread) {
            self.reply()?;
        }
        let record = |reply| match reply {
            Reply::Record(record) => record,
            Reply::Done | Reply::Refused(_) => None,
        };
        keys.iter().map(|_| self.reply().map(record)).collect()
    }

    /// Writes records without waiting for the answers.
    ///
    /// # Errors
    /// The store is gone.
    pub(super) fn set<K: AsRef<[u8]>>(&mut self, records: &[(K, Vec<u8>)]) -> io::Result<()> {
        let mut request = Vec::new();
        records.iter().for_each(|(key, record)| append(&mut request, &[b"SET", key.as_ref(), record]));
        self.unread += records.len();
        self.stream.write_all(&request)
    }

    /// How many keys clients have read since the store started.
    ///
    /// # Errors
    /// The store does not answer, or has no statistics.
    pub(super) fn reads(&mut self) -> io::Result<u64> {
        let mut request = Vec::new();
        append(&mut request, &[b"INFO", b"commandstats"]);
        self.stream.write_all(&request)?;
        let Reply::Record(Some(statistics)) = self.reply()? else {
            return Err(io::Error::new(ErrorKind::InvalidData, "the store has no statistics"));
        };
        Ok(reads_in(&statistics))
    }

    fn reply(&mut self) -> io::Result<Reply> {
        loop {
            if let Some((reply, length)) = Reply::read(&self.incoming)? {
                self.incoming.drain(..length);
                return match reply {
                    Reply::Refused(reason) => Err(io::Error::other(format!("the store refuses: {reason}"))),
                    reply => Ok(reply),
                };
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.incoming.extend_from_slice(&buffer[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_are_read_once_they_are_whole() {
        let whole = b"$3\r\na\r\n\r\n+OK\r\n$-1\r\n-ERR no\r\n:7\r\n";
        let mut rest = &whole[..];
        let mut replies = Vec::new();
        while let Some((reply, length)) = Reply::read(rest).expect("right answers") {
            replies.push(reply);
            rest = &rest[length..];
        }
        let record = Reply::Record(Some(b"a\r\n".to_vec()));
        let refused = Reply::Refused("ERR no".into());
        assert_eq!(replies, [record, Reply::Done, Reply::Record(None), refused, Reply::Done]);
        assert!((0..8).all(|length| matches!(Reply::read(&whole[..length]), Ok(None))));
        assert!(Reply::read(b"HTTP/1.1 400\r\n").is_err() && Reply::read(b"$99999999\r\n").is_err());
    }

    #[test]
    fn reads_are_those_of_one_command() {
        let statistics = b"# Commandstats\r\ncmdstat_set:calls=3,usec=9\r\ncmdstat_get:calls=41,usec=70\r\n";
        assert_eq!((reads_in(statistics), reads_in(b"# Commandstats\r\n")), (41, 0));
    }

    #[test]
    fn a_command_names_the_lengths_of_its_words() {
        let mut out = Vec::new();
        append(&mut out, &[b"GET", b"key"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((_, length))) = Reply::read(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
