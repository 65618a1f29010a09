//! The names and ports of classes: the operator's, and those that are built in.
//!
//! The built-in ports are those of the IANA registry, and ports that the protocols' programs use. The built-in names are domains of
//! services that many people use, as far as one domain serves one class.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use flow::wire::ip_protocol::{SCTP, TCP, UDP};

use super::config::{ClassRule, ClassifierConfig, ClassifierError};
use crate::class::Class;
use crate::inspect::HostName;
use crate::port_range::PortRange;

/// Ports (first and last) of TCP, UDP or both.
type BuiltInPorts = (&'static [u8], u16, u16, Class);

const BOTH: &[u8] = &[TCP, UDP];
const ONLY_TCP: &[u8] = &[TCP];
const ONLY_UDP: &[u8] = &[UDP];
const ALL: &[u8] = &[TCP, UDP, SCTP];

const PORTS: [BuiltInPorts; 50] = [
    (BOTH, 53, 53, Class::Network),
    (ONLY_UDP, 67, 69, Class::Network),
    (ONLY_UDP, 123, 123, Class::Network),
    (BOTH, 161, 162, Class::Network),
    (ONLY_TCP, 179, 179, Class::Network),
    (ONLY_UDP, 500, 500, Class::Network),
    (ONLY_UDP, 514, 514, Class::Network),
    (ONLY_UDP, 546, 547, Class::Network),
    (BOTH, 853, 853, Class::Network),
    (ONLY_UDP, 1812, 1813, Class::Network),
    (ONLY_UDP, 5353, 5355, Class::Network),
    (ONLY_TCP, 80, 80, Class::Web),
    (BOTH, 443, 443, Class::Web),
    (ONLY_TCP, 8000, 8000, Class::Web),
    (ONLY_TCP, 8080, 8080, Class::Web),
    (BOTH, 8443, 8443, Class::Web),
    (ONLY_TCP, 25, 25, Class::Mail),
    (ONLY_TCP, 110, 110, Class::Mail),
    (ONLY_TCP, 143, 143, Class::Mail),
    (ONLY_TCP, 465, 465, Class::Mail),
    (ONLY_TCP, 587, 587, Class::Mail),
    (ONLY_TCP, 993, 993, Class::Mail),
    (ONLY_TCP, 995, 995, Class::Mail),
    (ONLY_TCP, 20, 21, Class::Transfer),
    (ONLY_TCP, 139, 139, Class::Transfer),
    (ONLY_TCP, 445, 445, Class::Transfer),
    (ONLY_TCP, 548, 548, Class::Transfer),
    (ONLY_TCP, 873, 873, Class::Transfer),
    (ONLY_TCP, 989, 990, Class::Transfer),
    (BOTH, 2049, 2049, Class::Transfer),
    (ONLY_TCP, 9418, 9418, Class::Transfer),
    (ONLY_TCP, 22, 23, Class::Remote),
    (BOTH, 3389, 3389, Class::Remote),
    (ONLY_TCP, 5900, 5909, Class::Remote),
    (ONLY_TCP, 194, 194, Class::Messaging),
    (ONLY_TCP, 1883, 1883, Class::Messaging),
    (ONLY_TCP, 5222, 5223, Class::Messaging),
    (ONLY_TCP, 5228, 5228, Class::Messaging),
    (ONLY_TCP, 5269, 5269, Class::Messaging),
    (ONLY_TCP, 6667, 6667, Class::Messaging),
    (ONLY_TCP, 6697, 6697, Class::Messaging),
    (ONLY_TCP, 8883, 8883, Class::Messaging),
    (ONLY_TCP, 1720, 1720, Class::Voice),
    (BOTH, 3478, 3479, Class::Voice),
    (ALL, 5060, 5061, Class::Voice),
    (BOTH, 5349, 5349, Class::Voice),
    (BOTH, 554, 554, Class::Video),
    (ONLY_TCP, 1935, 1935, Class::Video),
    (BOTH, 6881, 6889, Class::PeerToPeer),
    (BOTH, 51413, 51413, Class::PeerToPeer),
];

const NAMES: [(&str, Class); 56] = [
    ("youtube.com", Class::Video),
    ("googlevideo.com", Class::Video),
    ("netflix.com", Class::Video),
    ("nflxvideo.net", Class::Video),
    ("vimeo.com", Class::Video),
    ("vimeocdn.com", Class::Video),
    ("twitch.tv", Class::Video),
    ("ttvnw.net", Class::Video),
    ("hulu.com", Class::Video),
    ("disneyplus.com", Class::Video),
    ("primevideo.com", Class::Video),
    ("aiv-cdn.net", Class::Video),
    ("dailymotion.com", Class::Video),
    ("tiktokcdn.com", Class::Video),
    ("tiktokv.com", Class::Video),
    ("spotify.com", Class::Video),
    ("scdn.co", Class::Video),
    ("soundcloud.com", Class::Video),
    ("bbci.co.uk", Class::Video),
    ("zoom.us", Class::Voice),
    ("webex.com", Class::Voice),
    ("skype.com", Class::Voice),
    ("teams.microsoft.com", Class::Voice),
    ("meet.google.com", Class::Voice),
    ("discord.media", Class::Voice),
    ("whatsapp.net", Class::Messaging),
    ("whatsapp.com", Class::Messaging),
    ("signal.org", Class::Messaging),
    ("telegram.org", Class::Messaging),
    ("t.me", Class::Messaging),
    ("discord.com", Class::Messaging),
    ("discord.gg", Class::Messaging),
    ("slack.com", Class::Messaging),
    ("messenger.com", Class::Messaging),
    ("wechat.com", Class::Messaging),
    ("threema.ch", Class::Messaging),
    ("push.apple.com", Class::Messaging),
    ("mtalk.google.com", Class::Messaging),
    ("mail.google.com", Class::Mail),
    ("outlook.office.com", Class::Mail),
    ("outlook.office365.com", Class::Mail),
    ("outlook.live.com", Class::Mail),
    ("mail.yahoo.com", Class::Mail),
    ("dropbox.com", Class::Transfer),
    ("dropboxapi.com", Class::Transfer),
    ("drive.google.com", Class::Transfer),
    ("onedrive.live.com", Class::Transfer),
    ("wetransfer.com", Class::Transfer),
    ("mega.nz", Class::Transfer),
    ("windowsupdate.com", Class::Transfer),
    ("dl.google.com", Class::Transfer),
    ("teamviewer.com", Class::Remote),
    ("anydesk.com", Class::Remote),
    ("dns.google", Class::Network),
    ("cloudflare-dns.com", Class::Network),
    ("dns.quad9.net", Class::Network),
];

/// Classes by domain.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_domain: BTreeMap<String, Class>,
}

impl Names {
    pub(super) fn new(config: &ClassifierConfig) -> Result<Self, ClassifierError> {
        let mut by_domain = BTreeMap::new();
        if config.has_built_in {
            by_domain.extend(NAMES.iter().map(|(name, class)| ((*name).to_string(), *class)));
        }
        // An earlier rule comes before a later one, and the operator's before the built-in.
        for rule in config.rules.iter().rev() {
            for name in &rule.names {
                let domain = HostName::new(name.as_bytes()).ok_or_else(|| ClassifierError::Name(name.clone()))?;
                by_domain.insert(domain.to_string(), rule.class);
            }
        }
        Ok(Self { by_domain })
    }

    /// The class of the longest domain that the name lies in.
    pub(super) fn class(&self, name: &HostName) -> Option<Class> {
        name.domains().find_map(|domain| self.by_domain.get(domain)).copied()
    }
}

/// Classes by protocol and destination port.
#[derive(Debug)]
pub(super) struct Ports {
    /// The operator's, in the order of the rules.
    configured: Vec<ClassRule>,
    has_built_in: bool,
}

impl Ports {
    pub(super) fn new(config: &ClassifierConfig) -> Self {
        let with_ports = config.rules.iter().filter(|rule| !rule.ports.is_empty());
        let configured = with_ports.map(|rule| ClassRule { names: Vec::new(), ..rule.clone() }).collect();
        Self { configured, has_built_in: config.has_built_in }
    }

    /// The class of a connection to a port. Protocols of routers and of IP itself are of the network.
    pub(super) fn class(&self, protocol: u8, port: u16) -> Class {
        const ICMP: u8 = 1;
        const IGMP: u8 = 2;
        const ICMPV6: u8 = 58;
        const OSPF: u8 = 89;
        const VRRP: u8 = 112;
        let lists = |ports: &PortRange| ports.contains(port);
        let matches =
            |rule: &&ClassRule| rule.protocol.is_none_or(|only| only == protocol) && rule.ports.iter().any(lists);
        if ALL.contains(&protocol)
            && let Some(rule) = self.configured.iter().find(matches)
        {
            return rule.class;
        }
        if !self.has_built_in {
            return Class::Unknown;
        }
        match protocol {
            ICMP | IGMP | ICMPV6 | OSPF | VRRP => Class::Network,
            _ => {
                let matches = |built_in: &&BuiltInPorts| {
                    let (protocols, first, last, _) = built_in;
                    protocols.contains(&protocol) && (*first..=*last).contains(&port)
                };
                PORTS.iter().find(matches).map_or(Class::Unknown, |(.., class)| *class)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_tables_are_valid_and_have_no_entry_twice() {
        for (index, (name, _)) in NAMES.iter().enumerate() {
            assert_eq!(HostName::new(name.as_bytes()).unwrap().as_str(), *name);
            assert!(NAMES[..index].iter().all(|(other, _)| other != name), "{name}");
        }
        for (index, (protocols, first, last, _)) in PORTS.iter().enumerate() {
            assert!(first <= last);
            let overlaps = |other: &BuiltInPorts| {
                other.1 <= *last && *first <= other.2 && protocols.iter().any(|protocol| other.0.contains(protocol))
            };
            assert!(!PORTS[..index].iter().any(overlaps), "{first}");
        }
    }
}
