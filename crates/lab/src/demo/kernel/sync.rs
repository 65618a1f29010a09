//! What `mainstay sync` of a demo's router is configured with.

use std::path::Path;

use packet_io::IoError;
use packet_io::ctnetlink::TableSocket;

use super::network::own_addresses;
use crate::testbed::cluster::NAMES;
use crate::testbed::topology::SYNC;

/// UDP port of the dedicated link.
const REPLICATION_PORT: u16 = 3781;

/// The configuration of a router's daemon.
pub(super) fn configuration(number: usize, control_socket: &Path, key: &Path) -> String {
    let other = 1 - number;
    let own: Vec<String> = own_addresses().map(|address| format!("{:?}", address.to_string())).collect();
    format!(
        "[node]\nid = {number}\nname = \"{}\"\ncontrol_socket = {control_socket:?}\n\n\
         [cluster]\nmode = \"primary-backup\"\nrole = \"backup\"\n\n\
         [[filter.ignore]]\naddresses = [\"127.0.0.0/8\", \"::1\", \"10.99.0.0/30\"]\n\n\
         [[filter.ignore]]\naddresses = [{}]\n\n\
         [replication]\nlocal = \"{}:{REPLICATION_PORT}\"\n\n\
         [[replication.peer]]\nid = {other}\naddress = \"{}:{REPLICATION_PORT}\"\n\n\
         [replication.security]\npre_shared_keys = [{key:?}]\n\n",
        NAMES[number],
        own.join(", "),
        SYNC[number],
        SYNC[other],
    )
}

/// Has the kernel of the calling thread's namespace forget all connections.
pub(super) fn forget_connections() -> Result<(), IoError> {
    let mut table = TableSocket::open()?;
    table.flush()?;
    table.flush_expectations()
}
