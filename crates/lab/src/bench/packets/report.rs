//! What `mainstay bench packets` prints.

use serde::Serialize;

use super::side::SideKind;
use super::{AllFigures, Figures, KernelRules};
use crate::args::BenchPacketsArgs;
use crate::bench::rounds::rounded;
use console::{Table, count};

/// From this share of packets that did not arrive on a figure is doubtful.
const LOST_SHARE_MAX: f64 = 0.01;
/// By this share the two ways to count may differ before the report warns.
const DISTURBED_SHARE_MAX: f64 = 0.25;

/// A figure of each side.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sides<T> {
    /// A node with `AF_XDP`.
    pub(super) af_xdp: T,
    /// A node with `AF_PACKET` whose packets all go through the process.
    pub(super) af_packet: T,
    /// A node with `AF_PACKET` and the fast path in the kernel.
    pub(super) fast_path: T,
    /// The same, which hands packets to the other ends of the ports' cables at once (`redirect_peer`).
    pub(super) fast_path_peer: T,
    /// The fast path at XDP, where the kernel allows it.
    pub(super) fast_path_xdp: Option<T>,
    /// The kernel with nftables in the node's place.
    pub(super) kernel_nft: T,
    /// The kernel, which forwards without tracking, rules and translation.
    pub(super) kernel_plain: T,
    /// The fast path with full tables, where they were measured.
    pub(super) fast_path_1m: Option<T>,
    /// The kernel with nftables and as many connections.
    pub(super) kernel_nft_1m: Option<T>,
}

impl<T> Sides<T> {
    fn of(figures: &AllFigures, full: Option<&AllFigures>, figure: impl Fn(&Figures) -> T) -> Self {
        let of = |way: SideKind| figure(&figures[way as usize]);
        let of_full = |way: SideKind| full.map(|figures| figure(&figures[way as usize]));
        Self {
            af_xdp: of(SideKind::AfXdp),
            af_packet: of(SideKind::AfPacket),
            fast_path: of(SideKind::FastPath),
            fast_path_peer: of(SideKind::FastPathPeer),
            fast_path_xdp: was_at_xdp(figures).then(|| of(SideKind::FastPathXdp)),
            kernel_nft: of(SideKind::Kernel),
            kernel_plain: of(SideKind::PlainKernel),
            fast_path_1m: of_full(SideKind::FastPath),
            kernel_nft_1m: of_full(SideKind::Kernel),
        }
    }
}

/// The fast path could be measured at XDP.
fn was_at_xdp(figures: &AllFigures) -> bool {
    !figures[SideKind::FastPathXdp as usize].ns_per_packet.is_empty()
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) frame_bytes: u32,
    /// Packets sent a second; as many as arrived where there is none.
    pub(super) packets_per_second: Option<u32>,
    pub(super) flows: u32,
    /// Connections in full tables: a million unless others are asked for.
    pub(super) connections: u32,
    /// Why full tables were not measured.
    pub(super) full_tables_left_out: Option<String>,
    pub(super) rounds: u32,
    pub(super) seconds_per_round: f64,
    /// What the kernel did beside forwarding.
    pub(super) kernel_rules: KernelRules,
    /// Processor time for each packet forwarded.
    pub(super) ns_per_packet: Sides<f64>,
    /// Least and greatest figure of the rounds.
    pub(super) spans_ns_per_packet: Sides<[f64; 2]>,
    /// Of a node over the kernel's: the median of the rounds' ratios.
    pub(super) ratio_af_xdp: f64,
    pub(super) ratio_af_packet: f64,
    pub(super) ratio_fast_path: f64,
    pub(super) ratio_fast_path_peer: f64,
    pub(super) ratio_fast_path_xdp: Option<f64>,
    /// The same with full tables on both sides.
    pub(super) ratio_fast_path_1m: Option<f64>,
    /// What a packet costs with a cable in between, taken off the figures above.
    pub(super) cable_ns_per_packet: f64,
    pub(super) cable_1m_ns_per_packet: Option<f64>,
    /// The same figures from the time that the machine's processors were not idle.
    pub(super) machine_ns_per_packet: Sides<f64>,
    /// Share of the packets that arrived: the least of the rounds.
    pub(super) arrived: Sides<f64>,
}

impl Report {
    pub(super) fn new(
        args: &BenchPacketsArgs,
        figures: &AllFigures,
        full: Result<&AllFigures, &String>,
        kernel_rules: KernelRules,
    ) -> Self {
        let ratio = |figures: &AllFigures, way: SideKind| {
            let kernel = &figures[SideKind::Kernel as usize].ns_per_packet;
            rounded(figures[way as usize].ns_per_packet.median_ratio(kernel), 3)
        };
        let cable = |figures: &AllFigures| rounded(figures[SideKind::Cable as usize].ns_per_packet.median(), 0);
        let left_out = full.err().cloned();
        let full = full.ok();
        Self {
            frame_bytes: 60,
            packets_per_second: args.packets_per_second,
            flows: args.flows,
            connections: args.connections,
            full_tables_left_out: left_out,
            rounds: args.rounds,
            seconds_per_round: args.seconds,
            kernel_rules,
            ns_per_packet: Sides::of(figures, full, |side| rounded(side.ns_per_packet.median(), 0)),
            spans_ns_per_packet: Sides::of(figures, full, |side| {
                side.ns_per_packet.span().map(|figure| rounded(figure, 0))
            }),
            ratio_af_xdp: ratio(figures, SideKind::AfXdp),
            ratio_af_packet: ratio(figures, SideKind::AfPacket),
            ratio_fast_path: ratio(figures, SideKind::FastPath),
            ratio_fast_path_peer: ratio(figures, SideKind::FastPathPeer),
            ratio_fast_path_xdp: was_at_xdp(figures).then(|| ratio(figures, SideKind::FastPathXdp)),
            ratio_fast_path_1m: full.map(|figures| ratio(figures, SideKind::FastPath)),
            cable_ns_per_packet: cable(figures),
            cable_1m_ns_per_packet: full.map(cable),
            machine_ns_per_packet: Sides::of(figures, full, |side| rounded(side.machine_ns_per_packet.median(), 0)),
            arrived: Sides::of(figures, full, |side| rounded(side.arrived.span()[0], 4)),
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let mut table = Table::of("NS A PACKET|>MEDIAN|>LEAST|>MOST|>BY IDLE TIME|>ARRIVED");
        let kernel = match &self.kernel_rules {
            KernelRules::Nftables => "kernel, nftables (stateful, masquerade)".to_owned(),
            KernelRules::None { reason } => format!("kernel, plain forwarding ({reason})"),
        };
        let mut row = |name: String, figure: fn(&Sides<f64>) -> f64, span: [f64; 2]| {
            table.row([
                name,
                format!("{:.0}", figure(&self.ns_per_packet)),
                format!("{:.0}", span[0]),
                format!("{:.0}", span[1]),
                format!("{:.0}", figure(&self.machine_ns_per_packet)),
                format!("{:.1} %", 100.0 * figure(&self.arrived)),
            ]);
        };
        let spans = &self.spans_ns_per_packet;
        row("mainstay, AF_XDP".into(), |sides| sides.af_xdp, spans.af_xdp);
        row("mainstay, AF_PACKET".into(), |sides| sides.af_packet, spans.af_packet);
        row("mainstay, fast path".into(), |sides| sides.fast_path, spans.fast_path);
        row("mainstay, fast path to cable's end".into(), |sides| sides.fast_path_peer, spans.fast_path_peer);
        if let Some(span) = spans.fast_path_xdp {
            row("mainstay, fast path at XDP".into(), |sides| sides.fast_path_xdp.unwrap_or_default(), span);
        }
        row(kernel, |sides| sides.kernel_nft, spans.kernel_nft);
        row("kernel, plain forwarding".into(), |sides| sides.kernel_plain, spans.kernel_plain);
        let connections = count(self.connections.into());
        if let (Some(fast_path), Some(kernel)) = (spans.fast_path_1m, spans.kernel_nft_1m) {
            let name = |of: &str| format!("{of}, {connections} connections");
            row(name("mainstay, fast path"), |sides| sides.fast_path_1m.unwrap_or_default(), fast_path);
            row(name("kernel, nftables"), |sides| sides.kernel_nft_1m.unwrap_or_default(), kernel);
        }
        let mut text = format!(
            "{}-byte UDP packets of {} connections through one gateway, {}, {} rounds of {} s each; firewall and \
             source NAT\n\n{}\nOf the kernel's processor time, Mainstay takes {:.3} with the fast path, {:.3} with \
             AF_XDP and {:.3} with AF_PACKET.\nTaken off is what a packet costs with only a cable between the hosts: {:.0} ns.\n",
            self.frame_bytes,
            self.flows,
            self.packets_per_second.map_or("as many as arrive".into(), |rate| format!("{rate} a second")),
            self.rounds,
            self.seconds_per_round,
            table.render(),
            self.ratio_fast_path,
            self.ratio_af_xdp,
            self.ratio_af_packet,
            self.cable_ns_per_packet,
        );
        text.push_str(&match (self.ratio_fast_path_1m, &self.full_tables_left_out) {
            (Some(ratio), _) => {
                format!("With {connections} connections, a random one for each packet, it takes {ratio:.3}.\n")
            }
            (None, reason) => format!(
                "With {connections} connections nothing was measured: {}.\n",
                reason.as_deref().unwrap_or_default()
            ),
        });
        for doubt in self.warnings() {
            text.push_str(&doubt);
        }
        text
    }

    /// What the reader should know before believing the figures.
    fn warnings(&self) -> Vec<String> {
        let list = |sides: &Sides<f64>| {
            let Sides { af_xdp, af_packet, fast_path, fast_path_peer, kernel_nft, kernel_plain, .. } = *sides;
            let few = [af_xdp, af_packet, fast_path, fast_path_peer, kernel_nft, kernel_plain];
            let full = [sides.fast_path_xdp, sides.fast_path_1m, sides.kernel_nft_1m];
            few.into_iter().chain(full.into_iter().flatten()).collect::<Vec<f64>>()
        };
        let mut warnings = Vec::new();
        if list(&self.arrived).into_iter().any(|arrived| arrived < 1.0 - LOST_SHARE_MAX) {
            warnings.push(
                "A side lost packets: its figure is of those that arrived. Ask for fewer packets a second.\n".into(),
            );
        }
        let mut counted = list(&self.ns_per_packet).into_iter().zip(list(&self.machine_ns_per_packet));
        if counted.any(|(own, all)| (all - own).abs() > DISTURBED_SHARE_MAX * own) {
            warnings.push(
                "By idle time the figures are others: the machine was busy with other things, or its kernel accounts soft \
                 interrupts to nobody.\n"
                    .into(),
            );
        }
        warnings
    }
}
