//! Datagrams of the tunnel between two sites.

use tunnel::datagram::Datagram;

/// One datagram.
pub fn run(data: &[u8]) {
    let Ok((sessions, datagram)) = Datagram::parse(data) else { return };
    let mut written = Vec::new();
    datagram.write(sessions, &mut written);
    assert_eq!(Datagram::parse(&written), Ok((sessions, datagram)), "what was written can be read");
}
