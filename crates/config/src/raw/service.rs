//! `[[service]]` as it is written.

use serde::Deserialize;
use toml::Spanned;

use super::super::value::{AddressText, DurationText, PortText, ProtocolText, SocketAddressText};
use super::Text;

/// Each section is a service of the load balancer: what clients connect to, and the servers that answer. No two services may match the
/// same packet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawService {
    /// Name of the service in counters, events and tables. It is unique and the same on all nodes: a connection keeps its backend by it.
    pub name: Text,
    /// Address that clients connect to. It is a shared address of a port, or other routers route it to the gateway.
    pub address: AddressText,
    /// `"tcp"`, `"udp"` or `"sctp"`.
    pub protocol: Spanned<ProtocolText>,
    /// Ports and ranges that clients connect to. Default: all ports.
    #[serde(default)]
    pub ports: Vec<Spanned<PortText>>,
    /// Choice of the backend of a new connection. `"maglev"` hashes the connection, equally on all nodes. `"least-connections"` takes the
    /// backend with the fewest connections for its weight, replicas of other nodes' connections included.
    pub scheduler: Option<Text>,
    /// Connections that have the same backend: `"connection"` balances each by itself, `"source"` all of a client's address together. The
    /// latter needs `scheduler = "maglev"`.
    pub affinity: Option<Text>,
    /// Translation. `"nat"` changes the destination: backends route to clients through the gateway. `"full-nat"` changes the source, too:
    /// backends see `source` in place of the client. `"direct_return"` changes nothing: packets reach the backend in a tunnel, and it
    /// answers the client directly from the service's address.
    pub mode: Option<Text>,
    /// Tunnel to the backends with `mode = "direct_return"`. `"ipip"` puts the client's packet behind an IP header, `"gue"` behind an IP
    /// header and a UDP header, whose source port depends on the connection.
    pub encapsulation: Option<Text>,
    /// UDP port of the backends that receives packets with `encapsulation = "gue"`.
    pub gue_port: Option<Spanned<u16>>,
    /// Shared addresses, 1 to 64, that backends see as the client with `mode = "full-nat"`. Ports are those of `nat.ports`.
    #[serde(default)]
    pub source: Vec<AddressText>,
    /// Treatment of the connections of a backend whose checks fail. `"keep"` keeps them, as only the check may have failed. `"end"` ends
    /// them: datagrams go to another backend at once, and TCP clients are reset. TCP with `mode = "direct_return"` permits `"keep"` only.
    pub on_failure: Option<Text>,
    /// Time in which the share of a backend that returns, or is added by a reload, grows to its weight. It begins with a sixteenth. `"0s"`: it
    /// has its weight at once.
    pub slow_start: Option<DurationText>,
    /// `[service.quic]`.
    pub quic: Option<Spanned<RawQuic>>,
    /// `[service.check]`.
    pub check: Option<Spanned<RawCheck>>,
    /// `[[service.backend]]`.
    #[serde(default)]
    pub backend: Vec<Spanned<RawServiceBackend>>,
}

/// Each section is a server of the service above it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawServiceBackend {
    /// Address of the server, with a port if it differs from the service's. A port needs a service of exactly one port.
    pub address: SocketAddressText,
    /// Share of new connections relative to the other backends. 0 drains the backend: it gets no new connections, and keeps those that it
    /// has.
    pub weight: Option<Spanned<u8>>,
    /// Identifier of the server in QUIC connection identifiers, as hexadecimal digits, two for each of `service.quic.server_id_bytes`. The
    /// server is configured alike. With `[service.quic]` each backend has its own.
    pub server_id: Option<Text>,
}

/// The section routes QUIC packets by the server that their connection identifier names (draft-ietf-quic-load-balancers, unencrypted): a
/// client that changes its address or port keeps its backend. The servers issue such identifiers. Packets that name no backend are balanced by
/// `scheduler`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawQuic {
    /// Number of the configuration in the first three bits of identifiers (config rotation).
    pub config: Option<Spanned<u8>>,
    /// Length of server identifiers.
    pub server_id_bytes: Option<Spanned<u8>>,
    /// Length of the nonce behind them. Both have at most 19 bytes together.
    pub nonce_bytes: Option<Spanned<u8>>,
}

/// The section has the backends of the service above it checked. Without it, all backends count as up. Each node checks by itself, from
/// an address of the host, not of the gateway.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCheck {
    /// Kind of check. `"tcp"` opens a connection. `"http"` also requests `path` and wants a status of 200 to 399, `"https"` the same over TLS.
    /// `"icmp"` sends an echo request. `"command"` runs a program, which succeeds with the status 0.
    pub kind: Option<Text>,
    /// Time from one check of a backend to the next, on average.
    pub interval: Option<DurationText>,
    /// By how much of `interval` the time to the next check varies at random, in percent, either way. It keeps nodes and backends apart.
    pub jitter: Option<Spanned<u8>>,
    /// Time after which a check without an answer has failed.
    pub timeout: Option<DurationText>,
    /// Successful checks in a row after which a failed backend is up.
    pub rise: Option<Spanned<u8>>,
    /// Failed checks in a row after which a backend has failed.
    pub fall: Option<Spanned<u8>>,
    /// Whether a backend has failed at once when it refuses the connection of a check, without regard to `fall`.
    pub fast_fail: Option<Spanned<bool>>,
    /// TCP port that is checked. Default: the backend's port. The key is needed where the backend's port depends on the client.
    pub port: Option<Spanned<u16>>,
    /// Path that `kind = "http"` and `kind = "https"` request.
    pub path: Option<Text>,
    /// Name of the server in requests (`Host`) and in TLS (SNI, certificate). Default: the backend's address.
    pub server_name: Option<Text>,
    /// File with the certificates (PEM) of the authorities that sign the certificates of backends, for `kind = "https"`. Needed unless
    /// `verify = false`. Debian has the public ones in `/etc/ssl/certs/ca-certificates.crt`.
    pub authorities: Option<Text>,
    /// Whether `kind = "https"` verifies the certificates of backends. Without, a check shows only that something responds over TLS.
    pub verify: Option<Spanned<bool>>,
    /// Program that `kind = "command"` runs, by its absolute path, and its arguments. It runs as the gateway's user, with the environment
    /// `MAINSTAY_SERVICE`, `MAINSTAY_ADDRESS` and `MAINSTAY_PORT` (0 if unknown) and nothing else but `PATH`, and is killed after `timeout`.
    /// What it writes to standard error is the reason of a failure.
    #[serde(default)]
    pub command: Vec<Text>,
    /// Address of the host that checks come from. Default: the kernel's choice by its routes.
    pub source: Option<AddressText>,
}
