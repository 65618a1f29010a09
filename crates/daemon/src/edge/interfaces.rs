//! The interfaces of an edge as its ports.

use cluster::forwarding::ReversePath;
use config::edge::EdgeSettings;
use config::validated::Port;
use flow::PortId;

/// The port to hosts and routers; those to the nodes follow.
pub(super) const NETWORK: PortId = PortId(0);

/// The interfaces as ports: the network's, then the nodes'.
pub(super) fn interfaces(settings: &EdgeSettings) -> Vec<Port> {
    let network = ("network".to_owned(), &settings.network);
    let nodes = settings.nodes.iter().map(|node| (format!("node-{}", node.id.0), &node.interface));
    let named = std::iter::once(network).chain(nodes).zip((0..=u8::MAX).map(PortId));
    let port = |((name, interface), id): ((String, &String), PortId)| Port {
        id,
        name,
        interface: interface.clone(),
        backend: settings.backend,
        addresses: Vec::new(),
        mss_clamp: None,
        reverse_path: ReversePath::default(),
        router_advertisements: None,
        redirect_peer: false,
    };
    named.map(port).collect()
}
