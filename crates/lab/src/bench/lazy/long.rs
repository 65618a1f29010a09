//! Connections that live for long, of which a failover is to lose none.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use packet_io::namespace::Namespace;

use crate::bench::BenchError;
use crate::bench::setup_rate::server::{ANSWER_BYTES, REQUEST};

/// How long a connection may take to be opened.
const OPENED_WITHIN: Duration = Duration::from_secs(10);
/// How long all of them may take to be answered after a failover: several retransmissions of a segment that was lost.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

/// Open connections to a server that answers questions.
pub(super) struct LongConnections(Vec<TcpStream>);

impl LongConnections {
    /// Opens them, and has a question answered on each.
    pub(super) fn open(client: &Namespace, server: SocketAddr, count: u16) -> Result<Self, BenchError> {
        let open = || (0..count).map(|_| TcpStream::connect_timeout(&server, OPENED_WITHIN)).collect();
        let streams: io::Result<Vec<TcpStream>> = client.run(open)?;
        let mut connections = Self(streams.map_err(BenchError::Socket)?);
        let answered = connections.answered();
        if answered < count.into() {
            let failed = u64::from(count) - answered as u64;
            let reason = "no answer before there was a failover".to_owned();
            return Err(BenchError::Failed { failed, connections: count.into(), reason });
        }
        Ok(connections)
    }

    /// Asks a question on each; how many are answered in time.
    pub(super) fn answered(&mut self) -> usize {
        let deadline = Instant::now() + ANSWERED_WITHIN;
        // All ask first, so that their retransmissions run at the same time.
        let asked: Vec<bool> = self.0.iter_mut().map(|stream| stream.write_all(&REQUEST).is_ok()).collect();
        let answered = self.0.iter_mut().zip(asked).filter(|(_, asked)| *asked);
        answered.filter_map(|(stream, _)| read_answer(stream, deadline).ok()).count()
    }
}

fn read_answer(stream: &mut TcpStream, deadline: Instant) -> io::Result<()> {
    let mut answer = [0; ANSWER_BYTES];
    let mut read = 0;
    while read < ANSWER_BYTES {
        // A timeout of zero would be none at all.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut answer[read..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => read += count,
        }
    }
    Ok(())
}
