//! Prints what the reference pages under `docs/reference` are made of, as JSON: keys, metrics, commands and exit codes.
//!
//! `cargo run -p xtask -- docs` formats it.

use api::catalogue;
use api::metrics::{Description, Kind};
use clap::Command;
use config::reference::Setting;
use mainstay::cli::Cli;
use mainstay::exit::Exit;
use serde_json::{Value, json};

/// Files of a gateway that have every section between them.
const GATEWAYS: &[&str] = &[
    include_str!("../../../examples/active.toml"),
    include_str!("../../../examples/classifier.toml"),
    include_str!("../../../examples/compact.toml"),
    include_str!("../../../examples/etcd.toml"),
    include_str!("../../../examples/gossip.toml"),
    include_str!("../../../examples/lazy.toml"),
    include_str!("../../../examples/load-balancer.toml"),
    include_str!("../../../examples/direct-return.toml"),
    include_str!("../../../examples/many-nodes.toml"),
    include_str!("../../../examples/multi-primary-a.toml"),
    include_str!("../../../examples/rate-limits.toml"),
    include_str!("../../../examples/syn-proxy.toml"),
    include_str!("../../../examples/tunnel-left.toml"),
    include_str!("../../../examples/url-filter.toml"),
    include_str!("../../../examples/url-server.toml"),
    "group = [{ name = \"a\", track = [] }]\nreachability = { track = [] }\n[control]\nlisten = \"127.0.0.1:9443\"\n\
     [[control.client]]\nname = \"client\"\nrole = \"read\"\n[replication]\nlocal = \"127.0.0.1:3781\"\n\
     representation = \"multi-level\"\nfilter = { update = \"threshold\" }\nsegments = {}\n",
];
/// The same of `mainstay sync`.
const SYNCS: &[&str] = &[
    include_str!("../../../examples/sync-left.toml"),
    "[conntrackd]\nlocal = \"127.0.0.1:3780\"\npeer = \"127.0.0.2:3780\"\npeer_id = 1\n[control]\nlisten = \"127.0.0.1:1\"\n\
     [[control.client]]\nname = \"client\"\nrole = \"read\"\n",
];

/// The same of `mainstay edge`.
const EDGES: &[&str] = &[
    include_str!("../../../examples/edge-inside.toml"),
    "[control]\nlisten = \"127.0.0.1:1\"\n[[control.client]]\nname = \"client\"\nrole = \"read\"\n[rate_control]\n\
     capacity_bits_per_s = 8000\n",
];

fn main() {
    let mut commands = Vec::new();
    // The pages are the same whatever the environment of this process has.
    let mut program = hide_environment(Cli::grouped_command());
    program.build();
    add_commands(&program, "", &mut commands);
    let reference = json!({
        "gateway": settings(GATEWAYS, config::reference::gateway),
        "edge": settings(EDGES, config::reference::edge),
        "sync": settings(SYNCS, config::reference::sync),
        "metrics": catalogue().iter().map(described).collect::<Vec<_>>(),
        "commands": commands,
        "exits": Exit::ALL.map(|exit| json!({ "code": exit.code(), "meaning": exit.describe() })),
    });
    println!("{reference}");
}

/// The notes of the checks of all files. A default that differs between them depends on other keys, and is none.
fn settings(texts: &[&str], check: fn(&str) -> Vec<Setting>) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::new();
    for setting in texts.iter().flat_map(|text| check(text)) {
        match settings.iter_mut().find(|known| known.key == setting.key) {
            Some(known) => {
                known.default.take_if(|default| setting.default.as_ref() != Some(default));
                if !known.range.contains(&setting.range) {
                    known.range = format!("{}; {}", known.range, setting.range);
                }
            }
            None => settings.push(setting),
        }
    }
    settings
}

fn described(metric: &Description) -> Value {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    json!({ "name": metric.name, "kind": kind, "labels": metric.labels, "help": metric.help })
}

/// A command and those below it, without the values that the environment gives their options.
fn hide_environment(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = command.mut_args(|argument| argument.hide_env_values(true));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, hide_environment))
}

/// A command and those below it, with the help that they print.
fn add_commands(command: &Command, above: &str, commands: &mut Vec<Value>) {
    let name = format!("{above} {}", command.get_name()).trim_start().to_owned();
    let about = command.get_about().map(ToString::to_string);
    commands.push(json!({ "name": name, "about": about, "help": command.clone().render_long_help().to_string() }));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        add_commands(below, &name, commands);
    }
}
