//! The result as one page that needs nothing else: style and charts are in it, and it asks nothing of any network.

mod chart;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::report::{DemoReport, RunReport, Settings};
use super::run::{BULK_BYTES_PER_S, MIX};
use super::table::{bytes, headline, lateness, ms, repetitions, survived_of};
use crate::testbed::traffic::Kind;
use analysis::report::{STYLE, date, escaped};
use chart::{NARROW, Quantity, WIDE, chart};
use console::count;

/// The page.
#[must_use]
pub fn page(report: &DemoReport) -> String {
    let sections = [
        header(report),
        tiles(report),
        charts(report, Quantity::Throughput, "Throughput around the kill"),
        charts(report, Quantity::Answers, "Small requests around the kill"),
        kinds(report),
        events(&report.replicated),
        method(report),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Mainstay: what survived</title><style>\n{STYLE}</style></head><body><main>\n{}\n</main></body></html>\n",
        sections.join("\n")
    )
}

fn header(report: &DemoReport) -> String {
    let without = &report.without_replication;
    format!(
        "<header><div class=\"brand\">Mainstay demo</div><h1>{}</h1><p class=\"lead\">Real TCP through two gateway nodes; \
         the active one was killed in mid-traffic. Without replication {} of {} went on.</p></header>",
        headline(&report.replicated).trim_end(),
        count(without.survived as u64),
        count(without.connections as u64),
    )
}

fn tiles(report: &DemoReport) -> String {
    let (with, without) = (&report.replicated, &report.without_replication);
    let mut html = String::from("<div class=\"tiles\">");
    let mut tile = |class: &str, name: &str, value: &str, beside: &str| {
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            html,
            "<div class=\"tile {class}\"><div class=\"name\">{name}</div><div class=\"value\">{value}</div>\
             <div class=\"beside\">{beside}</div></div>"
        );
    };
    let of =
        |run: &RunReport| format!("{} <small>of {}</small>", count(run.survived as u64), count(run.connections as u64));
    let class = if report.is_success() { "good" } else { "bad" };
    tile(class, "Connections survived", &of(with), "replicated");
    let class = if without.broken == 0 { "" } else { "bad" };
    tile(class, "Connections survived", &of(without), "not replicated");
    let gap = ms((with.survived > 0).then_some(with.longest_gap_ms));
    tile("", "Longest pause", &unit(&gap), "of any connection");
    tile("", "Failure detected", &unit(&ms(with.detection_ms)), "after the kill");
    tile("", "Addresses announced", &unit(&ms(with.takeover_ms)), "after the kill");
    tile("", "Verified", &unit(&bytes(with.bytes_verified)), "byte by byte, none wrong");
    html.push_str("</div>");
    html
}

/// A figure with its unit set smaller.
fn unit(figure: &str) -> String {
    figure.split_once(' ').map_or_else(|| figure.to_owned(), |(number, unit)| format!("{number} <small>{unit}</small>"))
}

fn charts(report: &DemoReport, quantity: Quantity, title: &str) -> String {
    let runs = [("Replicated", &report.replicated), ("Not replicated", &report.without_replication)];
    let peak = runs.iter().map(|(_, run)| quantity.peak(run)).fold(0.0, f64::max);
    let mut html = format!("<section class=\"card\"><h2>{title}</h2><div class=\"legend\">");
    for kind in quantity.kinds() {
        let connections = MIX.iter().find(|(of, _)| *of == kind).map_or(0, |(_, number)| *number);
        let label = kind.label();
        let _ = write!(html, "<span><i class=\"bg-{label}\"></i>{label}, {connections} connections together</span>");
    }
    html.push_str("</div>");
    for (name, run) in runs {
        let _ = write!(html, "<h3>{name}</h3>");
        for (class, size) in [("wide", WIDE), ("narrow", NARROW)] {
            let title = format!("{title}, {}", name.to_lowercase());
            let _ = write!(html, "<div class=\"{class}\">{}</div>", chart(run, quantity, peak, size, &title));
        }
    }
    html.push_str(
        "<p class=\"note\">Slices of 10 ms, as the client saw them. Shaded: TCP stood still. Both charts have the same \
         scale.</p></section>",
    );
    html
}

fn kinds(report: &DemoReport) -> String {
    let mut html = String::from(
        "<section class=\"card\"><h2>By kind of traffic</h2><div class=\"scroll\"><table><thead><tr><th>kind</th>\
         <th>survived</th><th>longest pause</th><th>median pause</th><th>verified</th><th>not replicated: survived</th>\
         </tr></thead><tbody>",
    );
    for kind in Kind::ALL {
        let Some(with) = report.replicated.kind(kind) else { continue };
        let without = report.without_replication.kind(kind);
        let _ = write!(
            html,
            "<tr><td>{}</td><td class=\"{}\">{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td></tr>",
            kind.label(),
            verdict(with.broken == 0),
            survived_of(Some(with)),
            ms(with.longest_gap_ms),
            ms(with.median_gap_ms),
            bytes(with.bytes_verified),
            verdict(without.is_some_and(|without| without.broken == 0)),
            survived_of(without),
        );
    }
    html.push_str("</tbody></table></div>");
    if !report.replicated.broken_by_reason.is_empty() {
        html.push_str("<p>Why replicated connections broke:</p><ul>");
        for (reason, number) in &report.replicated.broken_by_reason {
            let _ = write!(html, "<li>{}: {}</li>", escaped(reason), count(*number as u64));
        }
        html.push_str("</ul>");
    }
    html.push_str(
        "<p class=\"note\">A pause is the longest time without progress while some was due, over a connection's whole \
         lifetime. Connections established before the kill count; one survived if it carried right bytes after the \
         take-over. Datagrams need no state to go on: without replication they come back from another port.</p></section>",
    );
    html
}

const fn verdict(is_good: bool) -> &'static str {
    if is_good { "yes" } else { "no" }
}

fn events(run: &RunReport) -> String {
    let mut html = String::from(
        "<section class=\"card\"><h2>What the standby did</h2><div class=\"scroll\"><table><thead><tr>\
         <th>after the kill</th><th class=\"words\">event</th><th class=\"words\">detail</th></tr></thead><tbody>",
    );
    for event in &run.events {
        let _ = write!(
            html,
            "<tr><td>{:.3} ms</td><td class=\"words\">{}</td><td class=\"words\">{}</td></tr>",
            event.after_kill_ms,
            event.kind.describe(),
            escaped(&event.detail),
        );
    }
    html.push_str("</tbody></table></div></section>");
    html
}

fn method(report: &DemoReport) -> String {
    let DemoReport { program_version, kernel, processors, began_unix_s, settings, .. } = report;
    let Settings { link_loss, rtt_ms, ramp, .. } = settings;
    let mix: Vec<String> = MIX.iter().map(|(kind, number)| format!("{number} {}", kind.label())).collect();
    let mut extra = String::new();
    if *ramp > 0 {
        let _ = write!(extra, " {} more were being opened at a steady rate when the node died.", count(*ramp as u64));
    }
    if *link_loss > 0.0 {
        let _ = write!(extra, " The link between the nodes lost {:.0} % of all packets.", link_loss * 100.0);
    }
    if *rtt_ms > 0.0 {
        let _ = write!(extra, " The way between client and nodes took {rtt_ms} ms, there and back.");
    }
    format!(
        "<section class=\"card\"><h2>How it was measured</h2>{DRAWING}\
         <p>Four network namespaces on one machine: a client, two gateway nodes, a server. The kernels of client and server \
         use real TCP, half of it over IPv4, half over IPv6, all of it behind source NAT: {}; {} a bulk transfer. Both \
         ends know every byte that must come and compare it.{extra}</p>\
         <p>The active node is killed with SIGKILL. The standby watches it by BFD, a packet every 10 ms, and takes over when ten are \
         missing. Times are those of one monotonic clock, from just before the kill. The second run is the same but for \
         the state of connections, which is not replicated to the standby.</p><pre>{}</pre>\
         <p class=\"note\">Mainstay {}, Linux {}, {processors} processors, {}. {}</p></section>",
        mix.join(", "),
        console::scaled(BULK_BYTES_PER_S as f64 * 8.0, "bit/s"),
        escaped(&command(settings)),
        escaped(program_version),
        escaped(kernel),
        date(*began_unix_s),
        [repetitions(report), lateness(report)].into_iter().flatten().collect::<Vec<_>>().join(" "),
    )
}

/// The command that makes such a report.
fn command(settings: &Settings) -> String {
    let mut command = String::from("mainstay demo");
    if settings.link_loss > 0.0 {
        let _ = write!(command, " --link-loss {}", settings.link_loss);
    }
    if settings.rtt_ms > 0.0 {
        let _ = write!(command, " --rtt {}ms", settings.rtt_ms);
    }
    if settings.ramp > 0 {
        let _ = write!(command, " --ramp {}", settings.ramp);
    }
    if settings.workers > 1 {
        let _ = write!(command, " --workers {}", settings.workers);
    }
    let _ = write!(command, " --duration {}s --report report.html", settings.seconds);
    command
}

/// Client, two nodes, server, and the link between the nodes.
const DRAWING: &str = "<svg viewBox=\"0 0 560 170\" style=\"max-width:560px;margin:8px 0\" role=\"img\" \
     aria-label=\"client, nodes a and b, server\">\
     <path class=\"wire\" d=\"M110 85H165M165 85V40H225M165 85V130H225M335 40H395V130H335M395 85H450M280 62V108\"/>\
     <rect class=\"node\" x=\"10\" y=\"62\" width=\"100\" height=\"46\" rx=\"8\"/>\
     <text class=\"node-name\" x=\"60\" y=\"90\" text-anchor=\"middle\">client</text>\
     <rect class=\"node dead\" x=\"225\" y=\"18\" width=\"110\" height=\"44\" rx=\"8\"/>\
     <text class=\"node-name\" x=\"280\" y=\"45\" text-anchor=\"middle\">active ✕</text>\
     <rect class=\"node\" x=\"225\" y=\"108\" width=\"110\" height=\"44\" rx=\"8\"/>\
     <text class=\"node-name\" x=\"280\" y=\"135\" text-anchor=\"middle\">standby</text>\
     <rect class=\"node\" x=\"450\" y=\"62\" width=\"100\" height=\"46\" rx=\"8\"/>\
     <text class=\"node-name\" x=\"500\" y=\"90\" text-anchor=\"middle\">server</text>\
     <text x=\"288\" y=\"90\">states</text><text x=\"120\" y=\"78\">inside</text>\
     <text x=\"400\" y=\"78\">outside</text></svg>";
