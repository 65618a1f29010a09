//! A packet's protocol by its ports, as in the paper (section 2.1: "identified using TCP port numbers").

use flow::wire::ip_protocol;

/// A protocol, by its ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Protocol {
    /// Its name, in small letters.
    pub name: &'static str,
    ports: &'static [u16],
    /// Its payload is encrypted, whatever it carries.
    pub is_encrypted: bool,
}

const fn plain(name: &'static str, ports: &'static [u16]) -> Protocol {
    Protocol { name, ports, is_encrypted: false }
}

const fn encrypted(name: &'static str, ports: &'static [u16]) -> Protocol {
    Protocol { name, ports, is_encrypted: true }
}

/// All that are known by port, and at the end those that are not. The order is that of [`ProtocolId`].
pub(super) const PROTOCOLS: &[Protocol] = &[
    plain("http", &[80, 8000, 8008, 8080, 3128]),
    encrypted("https", &[443, 8443]),
    plain("smb", &[445]),
    plain("netbios", &[137, 138, 139]),
    plain("ldap", &[389, 3268]),
    plain("dns", &[53, 5353]),
    plain("smtp", &[25, 587]),
    plain("ftp-data", &[20]),
    plain("ftp", &[21]),
    plain("rtsp", &[554]),
    encrypted("ssh", &[22]),
    plain("telnet", &[23]),
    plain("pop3", &[110]),
    plain("imap", &[143]),
    plain("nntp", &[119]),
    plain("rpc", &[111, 135]),
    plain("nfs", &[2049]),
    plain("kerberos", &[88]),
    plain("snmp", &[161, 162]),
    plain("syslog", &[514]),
    plain("modbus", &[502]),
    plain("rsync", &[873]),
    plain("source code control", &[1666, 2401, 3690, 9418]),
    plain("sql", &[1433, 1521, 3306, 5432]),
    plain("vnc", &[5900, 5901]),
    plain("irc", &[6660, 6667, 6668, 6669]),
    plain("sip", &[5060]),
    plain("dhcp", &[67, 68]),
    plain("ntp", &[123]),
    plain("edonkey", &[4662, 4672]),
    encrypted("ldaps", &[636, 3269]),
    encrypted("smtps", &[465]),
    encrypted("imaps", &[993]),
    encrypted("pop3s", &[995]),
    encrypted("ftps", &[989, 990]),
    encrypted("sips", &[5061]),
    encrypted("remote desktop", &[3389]),
    encrypted("dns over tls", &[853]),
    encrypted("openvpn", &[1194]),
    encrypted("wireguard", &[51820]),
    encrypted("ipsec", &[500, 4500]),
    plain("other tcp", &[]),
    plain("other udp", &[]),
    plain("icmp", &[]),
    plain("other", &[]),
];

const OTHER: usize = PROTOCOLS.len() - 1;
/// HTTP's place.
pub(super) const HTTP: ProtocolId = ProtocolId(0);

/// A place in [`PROTOCOLS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ProtocolId(u8);

impl ProtocolId {
    /// By the ports of a packet. The lower one decides if both are known: it is the server's.
    #[must_use]
    pub(super) fn of(ip_protocol: u8, ports: [u16; 2]) -> Self {
        let unknown = match ip_protocol {
            ip_protocol::TCP => OTHER - 3,
            ip_protocol::UDP => OTHER - 2,
            ip_protocol::ICMP | ip_protocol::ICMPV6 => return Self((OTHER - 1) as u8),
            _ => return Self(OTHER as u8),
        };
        let [low, high] = [ports[0].min(ports[1]), ports[0].max(ports[1])];
        let known = |port| PROTOCOLS.iter().position(|protocol| protocol.ports.contains(&port));
        Self(known(low).or_else(|| known(high)).unwrap_or(unknown) as u8)
    }

    /// What is known of it.
    #[must_use]
    pub(super) fn protocol(self) -> &'static Protocol {
        &PROTOCOLS[usize::from(self.0)]
    }

    /// Whether the port is one of its own.
    #[must_use]
    pub(super) fn has_port(self, port: u16) -> bool {
        self.protocol().ports.contains(&port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_known_by_its_server_port_whichever_end_sends() {
        let name = |ip_protocol, ports| ProtocolId::of(ip_protocol, ports).protocol().name;
        assert_eq!(name(6, [80, 51_234]), "http");
        assert_eq!(name(6, [51_234, 80]), "http");
        assert_eq!(name(6, [51_234, 8080]), "http");
        assert_eq!(name(6, [443, 8080]), "https", "the lower port is the server's");
        assert_eq!((name(6, [40_000, 40_001]), name(17, [40_000, 40_001])), ("other tcp", "other udp"));
        assert_eq!((name(1, [0, 0]), name(58, [0, 0]), name(47, [0, 0])), ("icmp", "icmp", "other"));
        assert!(ProtocolId::of(6, [443, 4000]).protocol().is_encrypted);
        assert_eq!(HTTP.protocol().name, "http");
        assert!(HTTP.has_port(8080) && !HTTP.has_port(443));
    }

    #[test]
    fn no_port_has_two_protocols() {
        let ports: Vec<u16> = PROTOCOLS.iter().flat_map(|protocol| protocol.ports).copied().collect();
        for (at, port) in ports.iter().enumerate() {
            assert!(!ports[..at].contains(port), "port {port}");
        }
    }
}
