//! What an operator relies on.

use flow::netfilter::TcpState;

use super::pair::{Options, Pair, tuple};

#[test]
fn a_connection_of_one_kernel_is_in_the_other_until_it_ends() {
    let mut pair = Pair::ready(Options::default());
    pair.connect(0, 1);
    pair.settle();
    assert_eq!(pair.state(1, 1), Some(TcpState::Established));
    pair.packet(0, 1, TcpState::FinWait);
    pair.settle();
    pair.assert_kernels_agree();
    pair.hosts[0].kernel.delete(tuple(1));
    pair.settle();
    assert_eq!(pair.hosts[1].kernel.len(), 0);
    assert_eq!((pair.status(0).connections, pair.status(1).connections), (0, 0));
}
