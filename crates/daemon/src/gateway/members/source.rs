//! The source of members that the configuration names.

use std::sync::Arc;

use membership::MemberState;

use super::Members;
use super::etcd::EtcdSource;
use super::gossip::GossipSource;
use crate::error::ProcessError;
use config::validated::{Config, MembershipSource};

/// The thread of a source. When it is dropped, the node leaves the cluster.
pub(in crate::gateway) struct Source {
    members: Arc<Members>,
    kind: SourceKind,
}

enum SourceKind {
    Etcd(EtcdSource),
    Gossip(GossipSource),
}

impl Source {
    /// Begins to publish this node's record, and to follow those of others. `None`: the configuration file is the source.
    pub(in crate::gateway) fn start(members: &Arc<Members>, config: &Config) -> Result<Option<Self>, ProcessError> {
        let publisher = Arc::clone(members);
        let kind = match &config.membership.source {
            MembershipSource::Static => return Ok(None),
            MembershipSource::Etcd(etcd) => SourceKind::Etcd(EtcdSource::start(publisher, etcd)?),
            MembershipSource::Gossip(gossip) => {
                SourceKind::Gossip(GossipSource::start(publisher, gossip, config.cluster.as_ref())?)
            }
        };
        Ok(Some(Self { members: Arc::clone(members), kind }))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.members.set_own_state(MemberState::Left);
        self.members.stop();
        match &mut self.kind {
            SourceKind::Etcd(etcd) => etcd.leave(&self.members),
            SourceKind::Gossip(gossip) => gossip.leave(),
        }
    }
}
