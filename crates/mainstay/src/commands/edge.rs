//! `mainstay edge`, and `--check` of its file.

use std::path::Path;

use packet_io::netlink::{Interface, Netlink};
use serde::Serialize;

use super::CommandError;
use super::probe::{self, Secrets, ServiceUser};
use super::problem::{self, Problem};
use crate::cli::{CheckArgs, EdgeArgs, EdgeCommand, EdgeDrainArgs};
use config::edge::{self, EdgeSettings};
use console::counted;
use control::client::Client;
use daemon::edge::fast_path_obstacle;
use flow::fast_path::Hook;

/// What `--json` prints of a file that can be used.
#[derive(Serialize)]
struct Checked {
    /// Whether the edge would start on this host, as far as can be known without a start.
    usable: bool,
    /// Why the kernel would forward no flow, of an edge with `[fast_path]`; nothing where it would.
    fast_path_obstacle: Option<String>,
    problems: Vec<Problem>,
}

/// Runs an edge, checks its file, or asks a running one.
///
/// # Errors
/// As the daemon, the check or the question.
pub fn run(args: &EdgeArgs) -> Result<(), CommandError> {
    match (&args.command, &args.config) {
        (Some(EdgeCommand::Status(args)), _) => super::status::run(args),
        (Some(EdgeCommand::Events(args)), _) => super::events::run(args.socket.target(), args.json),
        (Some(EdgeCommand::Flows(args)), _) => super::flows::run(args),
        (Some(EdgeCommand::Drain(args)), _) => drain(args, true),
        (Some(EdgeCommand::Undrain(args)), _) => drain(args, false),
        (None, Some(path)) if args.check.check => check(path, &args.check),
        (None, Some(path)) => Ok(daemon::edge::run(path)?),
        (None, None) => unreachable!("a file is required without a command"),
    }
}

/// What `--json` prints of an edge's node.
#[derive(Serialize)]
struct Drained {
    node: u8,
    drained: bool,
}

fn drain(args: &EdgeDrainArgs, drained: bool) -> Result<(), CommandError> {
    Client::open(args.socket.target())?.drain_node(args.node, drained)?;
    let text =
        if drained { "gets no new connections; those that it has stay there" } else { "gets new connections again" };
    let report = Drained { node: args.node, drained };
    Ok(console::print_as(args.json, &report, || format!("node {} {text}\n", args.node))?)
}

fn check(path: &Path, args: &CheckArgs) -> Result<(), CommandError> {
    let checked = match edge::load(path) {
        Ok(checked) => checked,
        Err(error) => return problem::refuse(error, path, args.json),
    };
    let config = &checked.config;
    let mut problems: Vec<Problem> = checked.warnings.iter().map(Problem::from).collect();
    if !args.config_only {
        problems.extend(of_host(config, args.user.as_deref()));
    }
    let is_looked_at = config.fast_path.enabled && !args.config_only;
    let fast_path_obstacle = is_looked_at.then(|| fast_path_obstacle(config, Hook::Tc)).flatten();
    if is_looked_at && fast_path_obstacle.is_none() && config.fast_path.hook == Hook::Xdp {
        let obstacle = daemon::edge::fast_path_obstacle(config, Hook::Xdp);
        problems.extend(
            obstacle
                .map(|obstacle| Problem::warning("fast_path.hook", &format!("tc is used instead of xdp: {obstacle}"))),
        );
    }
    if args.json {
        let usable = !problems.iter().any(Problem::is_error);
        console::print_json(&Checked { usable, fast_path_obstacle, problems: problems.clone() })?;
    } else {
        let fast_path = match (is_looked_at, &fast_path_obstacle) {
            (false, _) => String::new(),
            (true, None) => "The kernel can forward settled flows (fast path).\n".to_owned(),
            (true, Some(obstacle)) => {
                format!("All packets would go through the edge, none by the fast path: {obstacle}.\n")
            }
        };
        console::print(&(describe(path, config, &problems) + &fast_path))?;
    }
    problem::conclude(&problems)
}

/// What would keep the edge from starting on this host.
fn of_host(config: &EdgeSettings, user: Option<&str>) -> Vec<Problem> {
    let user = user.map(ServiceUser::named);
    let mut secrets = Secrets::new(user.as_ref());
    secrets.edge_hash_key("edge.hash_key", config.hash_key.as_ref());
    secrets.security("[security]", config.security.as_ref());
    secrets.control(config.control.as_ref());
    let mut problems = secrets.problems();
    let found = Netlink::open().and_then(|mut netlink| netlink.interfaces()).unwrap_or_default();
    let nodes = config.nodes.iter().map(|node| ("edge.node", &node.interface));
    for (key, interface) in std::iter::once(("edge.network", &config.network)).chain(nodes) {
        problems.extend(problem_of_interface(key, interface, &found));
    }
    problems.extend(probe::control_socket(&config.node.control_socket));
    problems.extend(probe::operators_ports(config.node.metrics, config.control.as_ref().map(|access| access.listen)));
    problems
}

fn problem_of_interface(key: &str, name: &str, found: &[Interface]) -> Option<Problem> {
    match found.iter().find(|interface| interface.name == name) {
        None => Some(Problem::error(key, &format!("there is no interface {name:?}: `ip link` lists them"))),
        Some(interface) if !interface.up => {
            Some(Problem::warning(key, &format!("interface {name:?} is off: `ip link set {name} up`")))
        }
        Some(_) => None,
    }
}

/// What the file configures, and warnings, for people; errors are not among it.
fn describe(path: &Path, config: &EdgeSettings, problems: &[Problem]) -> String {
    let recovery = if config.recovery.is_some() { "local recovery" } else { "no local recovery" };
    let rates = if config.rate_control.is_some() { "rate control" } else { "no rate control" };
    let nodes = counted(config.nodes.len(), "node");
    let mut text = format!("{}: right. Edge {}: {nodes}, {recovery}, {rates}.\n", path.display(), config.node.id.0);
    for problem in problems.iter().filter(|problem| !problem.is_error()) {
        text.push_str(&format!("{problem}\n"));
    }
    text
}
