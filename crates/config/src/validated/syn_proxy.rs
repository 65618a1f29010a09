//! `[syn_proxy]`: for which servers the gateway answers SYNs.

use std::path::PathBuf;

use network_functions::syn_proxy::RuleConfig;

/// The rules of the SYN proxy, and where its secret is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SynProxy {
    /// The file of the secret; `None`: it is derived from the keys of the cluster, or drawn where there is no peer.
    pub key: Option<PathBuf>,
    /// The rules in their order. No two have the same identifier.
    pub rules: Vec<RuleConfig>,
}
