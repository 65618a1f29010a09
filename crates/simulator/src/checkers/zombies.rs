//! No connection outlives its end: a connection that both ends have closed is not held as open.

use cluster::node::Node;
use flow::conntrack::TcpState;
use flow::wire::ip_protocol;

use crate::host::Host;
use crate::host::tcp::State;

/// A TCP connection that a node holds as open although both its ends are closed.
pub(crate) fn found(node: &Node, hosts: &[Host]) -> Option<String> {
    node.pipeline().table().iter().find_map(|(_, connection)| {
        if connection.original.protocol != ip_protocol::TCP || connection.protocol.state != TcpState::Established as u8
        {
            return None;
        }
        let mut ends = hosts
            .iter()
            .flat_map(|host| &host.endpoints)
            .filter(|end| end.tuple == connection.original || end.tuple == connection.reply);
        let are_closed = ends.clone().count() == 2 && ends.all(|end| matches!(end.state, State::Closed | State::Reset));
        are_closed.then(|| {
            format!(
                "both ends of {} are closed, but the node holds it in state {}, owner {}, version {:#x}",
                connection.original, connection.protocol.state, connection.owner.0, connection.version
            )
        })
    })
}
