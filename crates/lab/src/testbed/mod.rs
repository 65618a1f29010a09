//! A network of namespaces with two gateways in it or more, and traffic through them: what the demo shows and benchmarks measure with.

pub mod clock;
pub mod cluster;
pub mod direct_return;
pub mod distance;
pub mod echo;
pub mod edges;
pub mod etcd;
pub mod exact_table;
pub mod many_nodes;
pub mod meter;
pub mod session;
pub mod stranger;
pub mod syn_flood;
pub mod topology;
pub mod traffic;
pub mod watch;
pub mod ways;

use std::fs;
use std::os::unix::fs::MetadataExt;

use packet_io::IoError;
use packet_io::namespace::{NamespaceSupport, enter_user_namespace, probe};

/// Makes sure that network namespaces can be made. To be called while the process has but one thread.
///
/// # Errors
/// They cannot: why.
pub fn gain_namespaces() -> Result<(), IoError> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        return enter_user_namespace();
    }
    match probe() {
        NamespaceSupport::Available => Ok(()),
        NamespaceSupport::AfterUserNamespace => enter_user_namespace(),
        NamespaceSupport::Forbidden(reason) => Err(IoError::NamespacesForbidden(reason)),
    }
}
