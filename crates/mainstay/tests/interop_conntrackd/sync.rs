//! `mainstay sync` on one machine and a conntrackd on the other, a real kernel under each.

use api::SyncOrder;
use flow::netfilter::{Entry, ProtocolInfo, TcpInfo, TcpState};

use super::daemon::{Cache, Conntrackd, Transport, V4};
use super::world::is_installed;
use super::{SOURCE_NAT, ping, tuple, v4, v6};
use crate::common::sync::{SyncDaemon, SyncPair, wait_until};

/// conntrackd's machine, and that of `mainstay sync`.
const THEIRS: usize = 0;
const OURS: usize = 1;

/// The two machines, and what runs on them.
struct Machines {
    pair: SyncPair,
    conntrackd: Conntrackd,
    mainstay: SyncDaemon,
}

fn configuration() -> String {
    let (own, peer) = (V4[OURS], V4[THEIRS]);
    format!(
        "[node]\nid = 0\nname = \"ours\"\ncontrol_socket = \"CONTROL\"\n\
         [[filter.ignore]]\naddresses = [\"10.99.0.0/30\"]\n\
         [conntrackd]\nlocal = \"{own}:3780\"\npeer = \"{peer}:3780\"\npeer_id = 1\n"
    )
}

impl Machines {
    /// None, said aloud, where it cannot be.
    fn start(name: &str, cache: Cache) -> Option<Self> {
        if !is_installed("conntrackd") {
            packet_io::namespace::skip("conntrackd cannot be run: install the package conntrackd");
            return None;
        }
        let pair = SyncPair::new(name)?;
        let conntrackd = Conntrackd::start(&pair.machines[THEIRS], Transport::V4, cache);
        let mainstay = pair.start(OURS, &configuration());
        let machines = Self { pair, conntrackd, mainstay };
        machines.wait_until_met();
        Some(machines)
    }

    fn wait_until_met(&self) {
        wait_until("both have met", || {
            let status = self.mainstay.client().status().map_err(|error| error.to_string())?;
            let met = status.peers.iter().all(|peer| peer.synchronised) && !status.peers.is_empty();
            met.then_some(()).ok_or_else(|| format!("{:?} {}", status.peers, self.mainstay.log()))
        });
    }

    /// The machines' own datagrams are connections as well, so that counting proves nothing.
    fn wait_until_there(&self, side: usize, entries: &[Entry]) {
        let table = self.pair.table(side);
        entries.iter().for_each(|entry| drop(table.wait_for(entry, |_| true)));
    }

    fn external_entries(&self) -> usize {
        let lines = self.conntrackd.ask(&self.pair.machines[THEIRS], "-e ct").unwrap_or_default();
        lines.lines().count()
    }

    fn wait_for_external_entries(&self, wanted: usize) {
        wait_until("conntrackd has received them", || {
            let entries = self.external_entries();
            if entries == wanted { Ok(()) } else { Err(format!("{entries} of {wanted}: {}", self.mainstay.log())) }
        });
    }
}

/// What is seen of every connection on either side, whatever it is.
fn samples() -> Vec<Entry> {
    let mut translated = v4(5001);
    translated.reply = tuple(6, "198.51.100.10", "198.51.100.1", (80, 6001));
    translated.status = translated.status.map(|status| status.union(SOURCE_NAT));
    let marked = Entry { mark: Some(0xbeef), ..v4(5002) };
    let zoned = Entry { zone: 5, ..v4(5003) };
    vec![v4(5000), translated, marked, zoned, v6(5004)]
}

/// A change, and an end, of one kernel's connections are the other's.
#[track_caller]
fn follows(machines: &Machines, [from, to]: [usize; 2]) {
    let [from, to] = [from, to].map(|side| machines.pair.table(side));
    let samples = samples();
    from.create(&samples);
    for entry in &samples {
        let copy = to.wait_for(entry, |_| true);
        assert_eq!((copy.reply, copy.zone), (entry.reply, entry.zone), "{copy:?}");
        assert_eq!(copy.mark.unwrap_or(0), entry.mark.unwrap_or(0), "{copy:?}");
        assert_eq!(copy.tcp().map(|tcp| tcp.state), entry.tcp().map(|tcp| tcp.state), "{copy:?}");
    }
    let closing = ProtocolInfo::Tcp(TcpInfo { state: TcpState::CloseWait, sides: None });
    let changed = Entry { mark: Some(0x17), protocol_info: Some(closing), ..samples[0].clone() };
    from.update(std::slice::from_ref(&changed));
    let copy = to.wait_for(&changed, |copy| copy.mark == Some(0x17));
    assert_eq!(copy.tcp().map(|tcp| tcp.state), Some(TcpState::CloseWait));
    from.delete(&samples);
    samples.iter().for_each(|entry| to.wait_until_gone(entry));
}

#[test]
fn interop_conntrackd_and_mainstay_sync_have_the_same_connections_in_both_kernels() {
    let Some(machines) = Machines::start("interop-both", Cache::Direct) else { return };
    follows(&machines, [THEIRS, OURS]);
    machines.mainstay.order(SyncOrder::Primary);
    follows(&machines, [OURS, THEIRS]);
}

#[test]
fn interop_conntrackd_and_mainstay_sync_take_over_from_each_other() {
    let Some(mut machines) = Machines::start("interop-restart", Cache::External) else { return };
    let ours: Vec<Entry> = (0..100).map(|number| v4(4000 + number)).collect();
    let theirs: Vec<Entry> = (0..100).map(|number| v4(6000 + number)).chain([ping(9)]).collect();
    machines.mainstay.order(SyncOrder::Primary);
    machines.pair.table(OURS).create(&ours);
    machines.wait_for_external_entries(ours.len());
    machines.pair.table(THEIRS).create(&theirs);
    machines.wait_until_there(OURS, &theirs);

    // conntrackd's process is another one: it receives everything, and what it commits is what there is.
    machines.conntrackd.kill();
    machines.conntrackd.run(&machines.pair.machines[THEIRS]);
    machines.wait_for_external_entries(ours.len());
    machines.conntrackd.ask(&machines.pair.machines[THEIRS], "-c");
    machines.wait_until_there(THEIRS, &ours);

    // So is this node's, whose kernel has kept everything.
    let Machines { pair, conntrackd, mainstay } = machines;
    mainstay.kill();
    conntrackd.ask(&pair.machines[THEIRS], "-f external");
    let mainstay = pair.start(OURS, &configuration());
    let machines = Machines { pair, conntrackd, mainstay };
    machines.wait_until_met();
    machines.pair.table(THEIRS).update(&[Entry { mark: Some(0x33), ..theirs[0].clone() }]);
    machines.pair.table(OURS).wait_for(&theirs[0], |copy| copy.mark == Some(0x33));
    machines.mainstay.order(SyncOrder::Primary);
    machines.pair.table(OURS).update(&[Entry { mark: Some(0x44), ..ours[0].clone() }]);
    wait_until("conntrackd receives the change", || {
        let lines = machines.conntrackd.ask(&machines.pair.machines[THEIRS], "-e ct").unwrap_or_default();
        if lines.contains("mark=68") { Ok(()) } else { Err(lines) }
    });
    machines.mainstay.terminate();
}
