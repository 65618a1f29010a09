//! What one kernel knows, the other one knows.

use flow::netfilter::{ProtocolInfo, TcpInfo, TcpState};
use mainstay::control::types::SyncOrder;

use crate::common::sync::{SyncPair, established};

#[test]
fn connections_appear_in_the_other_kernel_change_there_and_end() {
    let Some(pair) = SyncPair::new("basics") else { return };
    let [left, right] = pair.start_both("");
    left.order(SyncOrder::Primary);
    left.wait_until_safe();
    right.wait_until_safe();

    let mut entry = established(1);
    entry.mark = Some(0x2a);
    pair.table(0).create(std::slice::from_ref(&entry));
    let copy = pair.table(1).wait_for(&entry, |found| found.mark == Some(0x2a));
    assert_eq!(copy.tcp().map(|info| info.state), Some(TcpState::Established));

    entry.mark = Some(0x17);
    entry.protocol_info = Some(ProtocolInfo::Tcp(TcpInfo { state: TcpState::FinWait, sides: None }));
    pair.table(0).update(std::slice::from_ref(&entry));
    let copy = pair.table(1).wait_for(&entry, |found| found.mark == Some(0x17));
    assert_eq!(copy.tcp().map(|info| info.state), Some(TcpState::FinWait));

    pair.table(0).delete(std::slice::from_ref(&entry));
    pair.table(1).wait_until_gone(&entry);
}
