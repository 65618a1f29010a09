//! Two nodes that both forward: the test decides by which of them a packet comes.

mod conflicts;
mod end_points;
mod fast_path;
mod handshakes;
mod pair;
mod peer_owned;
mod syn_proxy;
mod waiting;
mod workers;
