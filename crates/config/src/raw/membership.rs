//! `[membership]` as written.

use serde::Deserialize;
use toml::Spanned;

use crate::diagnostic::Text;
use crate::value::{DurationText, PathText, SocketAddressText};

/// The section names the source of the list of peers. With `"gossip"` and `"etcd"` nodes join and leave without a change of the file, and
/// `node.nodes` is the largest number of nodes. A change needs a restart. The sections `[[replication.peer]]` are then the members that
/// the node knows before it has reached its source.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawMembership {
    /// `"static"`: the sections `[[replication.peer]]`. `"gossip"`: the nodes find each other, from `seeds` on. `"etcd"`: a cluster of etcd,
    /// by its JSON gateway.
    pub source: Option<Text>,
    /// File in which the last known list of members is kept. A node that starts while the source is unreachable begins with this list.
    /// Default: none, and such a node begins with the sections `[[replication.peer]]`.
    pub state_file: Option<PathText>,
    /// Time after which a member is forgotten whose record has disappeared and which failure detection reports down. A member that is
    /// up is never forgotten.
    pub forget_after: Option<DurationText>,
    /// Time that a starting node waits for the first list of its source before it begins with the last known one.
    pub start_wait: Option<DurationText>,
    /// With `"gossip"`: address and UDP port on which this node gossips, of the family of `replication.local`. Other nodes reach it there.
    pub listen: Option<SocketAddressText>,
    /// With `"gossip"`: `listen` of some other nodes, up to 16. One that answers is enough.
    #[serde(default)]
    pub seeds: Vec<SocketAddressText>,
    /// With `"etcd"`: client URLs of the members of etcd, up to 16. If one fails, the next one is used.
    #[serde(default)]
    pub endpoints: Vec<Text>,
    /// With `"etcd"`: what the keys of this cluster begin with. Members are at `<prefix>/members/<node.id>`, settings at
    /// `<prefix>/settings`.
    pub prefix: Option<Text>,
    /// With `"etcd"`: time to live of this node's key. It disappears this long after the node has crashed.
    pub lease: Option<DurationText>,
    /// With `"etcd"`: PEM file with the certificates of the authority of etcd's servers. URLs with `https` need it.
    pub authority: Option<PathText>,
    /// With `"etcd"`: permits URLs with `http` to other hosts. Who can reach the way to etcd then reads and writes the list of members.
    pub plain: Option<Spanned<bool>>,
    /// With `"etcd"`: PEM file with this node's certificate as a client of etcd. Default: it shows none.
    pub certificate: Option<PathText>,
    /// With `"etcd"`: PEM file with the certificate's private key, mode 0600.
    pub key: Option<PathText>,
}
