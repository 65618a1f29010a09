//! Mistakes and their diagnostics.

/// What is written instead of what, and all that is said about it.
pub(super) const BROKEN: &[(&str, &str, &str)] = &[
    (
        "id = 0\n",
        "id = 0\nlog_format = \"xml\"\n",
        "mainstay.toml:4:14: node.log_format: \"xml\" is not known: write \"text\" or \"json\"\n",
    ),
    (
        "id = 0\n",
        "id = 0\nlog_per_s = 1000000\n",
        "mainstay.toml:4:13: node.log_per_s: 1000000 entries a second are out of range: write a number from 1 to 100000, or 0 for no limit\n",
    ),
    (
        "\"eth0\"",
        "\"a-very-long-interface\"",
        "mainstay.toml:7:13: port \"inside\": interface name is longer than 15 bytes: shorten it\n",
    ),
    (
        "\"eth1\"",
        "\"eth0\"",
        "mainstay.toml:11:13: port \"outside\": interface \"eth0\" is already that of port \"inside\": give each port its own interface\n",
    ),
    (
        "\"outside\"",
        "\"inside\"",
        "mainstay.toml:10:8: port \"inside\": another port has this name: give each port its own name\n",
    ),
    (
        "10.0.0.1/24",
        "10.0.0.1",
        "mainstay.toml:8:14: port \"inside\": \"10.0.0.1\" has no prefix length: write it like 10.0.0.1/24\n",
    ),
    (
        "10.0.0.1/24",
        "10.0.0.0/24",
        "mainstay.toml:8:14: port \"inside\": 10.0.0.0 is the network address of 10.0.0.0/24: write an address of a host in it\n",
    ),
    (
        "10.0.0.1/24",
        "10.0.0.1/33",
        "mainstay.toml:8:14: port \"inside\": \"10.0.0.1/33\" has no valid prefix length: write a length from 0 to 32 after the slash\n",
    ),
    (
        "10.0.0.1/24",
        "224.0.0.1/24",
        "mainstay.toml:8:14: port \"inside\": no host on a network can have the address 224.0.0.1: write a unicast address\n",
    ),
    (
        "\"192.0.2.10/24\"",
        "\"192.0.2.10/24\", \"10.0.0.9/8\"",
        "mainstay.toml:12:31: port \"outside\": 10.0.0.9/8 overlaps 10.0.0.1/24 of port \"inside\": give each port its own network\n",
    ),
    (
        "via = \"192.0.2.254\"",
        "via = \"198.51.100.1\"",
        "mainstay.toml:15:7: route to \"0.0.0.0/0\": the next hop 198.51.100.1 is on no port's network: add an address of its network to a port, or correct the next hop\n",
    ),
    (
        "via = \"192.0.2.254\"",
        "via = \"fd00::2\"",
        "mainstay.toml:15:7: route to \"0.0.0.0/0\": the next hop fd00::2 is IPv6, the destination is not: write an IPv4 next hop\n",
    ),
    (
        "via = \"192.0.2.254\"",
        "via = \"192.0.2.10\"",
        "mainstay.toml:15:7: route to \"0.0.0.0/0\": the next hop 192.0.2.10 is the gateway's own address on port \"outside\": write the address of the next router\n",
    ),
    (
        "from = \"inside\"",
        "from = \"insdie\"",
        "mainstay.toml:18:8: firewall rule \"out\": there is no port \"insdie\": write one of \"inside\", \"outside\" or add a [[port]]\n",
    ),
    (
        "[\"10.0.0.0/24\"]\nprotocol",
        "[\"10.0.0.7/24\"]\nprotocol",
        "mainstay.toml:19:11: firewall rule \"out\": \"10.0.0.7/24\" has address bits set beyond its prefix length: write 10.0.0.0/24 for the network or 10.0.0.7/32 for the one address\n",
    ),
    (
        "80-90",
        "90-80",
        "mainstay.toml:21:22: firewall rule \"out\": the range \"90-80\" ends before it begins: write \"80-90\"\n",
    ),
    (
        "protocol = \"tcp\"\ndestination_ports",
        "protocol = \"icmp\"\ndestination_ports",
        "mainstay.toml:21:22: firewall rule \"out\": ports are given, but the protocol is not TCP, UDP or SCTP: add protocol = \"tcp\", \"udp\" or \"sctp\"\n",
    ),
    (
        "protocol = \"tcp\"\ndestination_ports = [\"80-90\", 443]",
        "protocol = \"icmpv6\"",
        "mainstay.toml:17:8: firewall rule \"out\": source, destination and protocol have no address family in common, so nothing matches: use IPv4 prefixes with \"icmp\" and IPv6 prefixes with \"icmpv6\", and one family for both ends\n",
    ),
    (
        "protocol = \"tcp\"\ndestination_ports",
        "protocol = \"tpc\"\ndestination_ports",
        "mainstay.toml:20:12: firewall rule \"out\": there is no protocol \"tpc\": write one of icmp, tcp, udp, gre, esp, ah, icmpv6, sctp\n",
    ),
    (
        "action = \"accept\"",
        "action = \"allow\"",
        "mainstay.toml:16:1: warning: [firewall]: no rule accepts anything, so every connection is dropped: add a [[firewall.rule]] with action = \"accept\"\nmainstay.toml:22:10: firewall rule \"out\": \"allow\" is not known: write \"accept\" or \"drop\"\n",
    ),
    (
        "to = [\"192.0.2.10\"]",
        "to = [\"2001:db8::1\"]",
        "mainstay.toml:23:1: nat.source: IPv4 and IPv6 addresses are mixed: write a rule for each family\nmainstay.toml:25:7: warning: nat.source: no port holds 2001:db8::1: add it to a port's addresses, or have the next router route it to the gateway\n",
    ),
    (
        "[[nat.source]]",
        "[nat]\nports = 1024\n[[nat.source]]",
        "mainstay.toml:24:9: nat.ports: the range of 1 cannot be divided among 2 nodes: widen it\n",
    ),
    (
        "port = 80\n",
        "",
        "mainstay.toml:29:6: nat.destination: `to` names a port, but the rule matches all ports: add port = … or drop it from `to`\n",
    ),
    (
        "\n[replication]",
        "\n[[nat.destination]]\ndestination = \"192.0.2.10\"\nto = \"10.0.0.6\"\n[replication]",
        "mainstay.toml:31:1: nat.destination: an earlier rule matches packets to 192.0.2.10 too: make addresses, protocols or ports of the two differ\n",
    ),
    (
        "\nid = 0",
        "\nid = 2",
        "mainstay.toml:3:6: node.id: node 2 is not one of 2 nodes, which are numbered from 0: choose an id below 2 or raise nodes\n",
    ),
    (
        "\nid = 1",
        "\nid = 0",
        "mainstay.toml:34:6: replication peer 0: the peer has this node's own id: give each node its own id\n",
    ),
    (
        "\nid = 1",
        "\nid = 5",
        "mainstay.toml:34:6: replication peer 5: node 5 is not one of 2 nodes, which are numbered from 0: choose an id below 2 or raise nodes\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.0.0.1:3781\"",
        "mainstay.toml:32:9: replication.local: 10.0.0.1 is a shared address and moves to whichever node is active: write an address that stays with this node\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.99.0.1:3784\"",
        "mainstay.toml:32:9: failure_detection.local: replication and failure detection both use 10.99.0.1:3784: give one of them another port\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.99.0.1\"",
        "mainstay.toml:32:9: replication.local: \"10.99.0.1\" is not an IP address with a port: write one like 192.0.2.1:3781 or [2001:db8::1]:3781\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.99.0.1:3781\"\npeer_timeout = \"150ms\"",
        "mainstay.toml:33:16: [replication]: peer_timeout is shorter than two alive_intervals, so an idle peer would count as away: raise peer_timeout or lower alive_interval\n",
    ),
    (
        "interval = \"10ms\"",
        "interval = \"10 ms\"",
        "mainstay.toml:37:12: failure_detection.interval: \"10 ms\" is not a duration: write a whole number and a unit: \"10ms\", \"30s\", \"5m\", \"2h\" or \"5d\"\n",
    ),
    (
        "interval = \"10ms\"",
        "interval = \"1m\"",
        "mainstay.toml:37:12: failure_detection.interval: \"1m\" is out of range: choose a duration from \"1ms\" to \"10s\"\n",
    ),
    (
        "[failure_detection]",
        "[failure_detecton]",
        "mainstay.toml:36:2: syntax: unknown field `failure_detecton`: did you mean `failure_detection`? If not, remove it\n",
    ),
    (
        "[[nat.source]]\nsource = [\"10.0.0.0/24\"]\n",
        "[[nat.source]]\n",
        "mainstay.toml:23:1: syntax: missing field `source`: add it to this section\n",
    ),
    (
        "\nid = 0",
        "\nid = \"0\"",
        "mainstay.toml:3:6: syntax: invalid type: string \"0\", expected u8: write the value as docs/configuration.md shows it\n",
    ),
    (
        "[\"firewall\", \"nat\"]",
        "[\"firewall\", \"firewall\"]",
        "mainstay.toml:1:22: chain: \"firewall\" is listed twice: list it once\nmainstay.toml:23:3: [nat]: the section has no effect because the chain does not list it: add \"nat\" to chain or remove the section\n",
    ),
    (
        "[node]",
        "[timeouts]\nudp = \"0s\"\n[node]",
        "mainstay.toml:3:7: timeouts.udp: \"0s\" is shorter than a second: connections would end between two packets: write at least \"1s\"\n",
    ),
    (
        "[node]",
        "[limits]\nconnections_max = 0\n[node]",
        "mainstay.toml:3:19: limits.connections_max: 0 connections are out of range: choose a number from 1 to 2147483648\n",
    ),
    (
        "[node]",
        "[limits]\nconnections_per_source_max = 0\nsource_prefix_ipv6_bits = 129\nfragment_timeout = \"2m\"\n[node]",
        "mainstay.toml:3:30: limits.connections_per_source_max: 0 is out of range: choose a number from 1 to 2147483648\nmainstay.toml:4:27: limits.source_prefix_ipv6_bits: 129 is out of range: choose a number from 0 to 128\nmainstay.toml:5:20: limits.fragment_timeout: \"2m\" is out of range: choose a duration from \"100ms\" to \"1m\"\n",
    ),
    (
        "interface = \"eth1\"",
        "interface = \"eth1\"\nmss_clamp = 100",
        "mainstay.toml:12:13: port \"outside\": a maximum segment size of 100 bytes is out of range: write \"mtu\" or a number from 536 to 65495\n",
    ),
    (
        "interface = \"eth1\"",
        "interface = \"eth1\"\nmss_clamp = \"1400\"",
        "mainstay.toml:12:13: port \"outside\": \"1400\" is not something that segments can be clamped to: write \"mtu\", or a number of bytes without quotes\n",
    ),
    (
        "nodes = 2",
        "control_socket = \"run/x\"",
        "mainstay.toml:4:18: node.control_socket: \"run/x\" is not an absolute path: begin it with /\n",
    ),
];
