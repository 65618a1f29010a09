//! `mainstay drain` and `mainstay undrain`: a node out of service, and back.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::error::{CommandError, NotDrained};
use crate::cli::{DrainArgs, UndrainArgs};
use api::{NodeRole, Status};
use control::client::{Client, ClientError};

/// How often the node is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the node may take: it gives up itself before.
const WITHIN: Duration = Duration::from_secs(10);

/// The node's role in the end.
#[derive(Serialize)]
struct RoleReport {
    role: NodeRole,
    /// The node that holds the addresses, if this one knows.
    active: Option<u8>,
}

/// Takes the node out of service and waits until it is.
///
/// # Errors
/// The gateway does not answer, or refuses because connections would be lost.
pub fn drain(args: &DrainArgs) -> Result<(), CommandError> {
    let mut client = Client::open(args.socket.target())?;
    client.drain(args.force)?;
    let status = await_role(&mut client, |role| matches!(role, NodeRole::Drained | NodeRole::Active))?;
    if status.node.role == NodeRole::Active {
        return Err(NotDrained::GivenUp.into());
    }
    report(&status, args.json, "drained")
}

/// Takes the node back into service and waits until it is.
///
/// # Errors
/// The gateway does not answer.
pub fn undrain(args: &UndrainArgs) -> Result<(), CommandError> {
    let mut client = Client::open(args.socket.target())?;
    client.undrain()?;
    let status = await_role(&mut client, |role| matches!(role, NodeRole::Standby | NodeRole::Active))?;
    report(&status, args.json, "in service")
}

fn await_role(client: &mut Client, is_final: impl Fn(NodeRole) -> bool) -> Result<Status, CommandError> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let status: Result<Status, ClientError> = client.status();
        let status = status?;
        if is_final(status.node.role) {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Err(NotDrained::Unfinished { role: status.node.role, seconds: WITHIN.as_secs() }.into());
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn report(status: &Status, json: bool, what: &str) -> Result<(), CommandError> {
    let active_peer = status.peers.iter().find(|peer| peer.role == NodeRole::Active).map(|peer| peer.id);
    let active = if status.node.role == NodeRole::Active { Some(status.node.id) } else { active_peer };
    if json {
        return Ok(console::print_json(&RoleReport { role: status.node.role, active })?);
    }
    let holds = active.map_or_else(
        || "no node is known to hold the addresses".to_owned(),
        |active| format!("node {active} holds the addresses"),
    );
    Ok(console::print(&format!("node {} is {what}: {holds}\n", status.node.id))?)
}
