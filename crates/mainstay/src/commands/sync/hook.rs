//! `mainstay sync primary`, `backup`, `fault`, `resync` and `ready`: what keepalived calls.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::{HookArgs, ReadyArgs};
use crate::commands::error::{CommandError, HookFailed};
use api::{NodeRole, SyncOrder, SyncReadiness};
use control::client::{Client, ClientError};

/// The pause between two queries of the node's state. It doubles each time,
const POLL_PAUSE_MIN: Duration = Duration::from_millis(1);
/// up to this.
const POLL_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Gives the order and waits until the node has the ordered role and its state is usable.
pub(super) fn run(order: SyncOrder, args: &HookArgs) -> Result<(), HookFailed> {
    let begun = Instant::now();
    let deadline = begun + args.timeout;
    let mut pause = POLL_PAUSE_MIN;
    let mut wait = || {
        let left = deadline.saturating_duration_since(Instant::now());
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(POLL_PAUSE_MAX);
        !left.is_zero()
    };
    let mut client = loop {
        match connect(&args.socket) {
            // keepalived may be up before the daemon is.
            Err(HookFailed::NoDaemon(_)) if wait() => {}
            result => break result?,
        }
    };
    let mut readiness = client.sync(order)?;
    loop {
        if order_is_overtaken(order, &readiness) {
            return Err(HookFailed::Overtaken { order: order.name(), role: readiness.role });
        }
        // A standby node has nothing to wait for.
        if readiness.usable || matches!(order, SyncOrder::Backup | SyncOrder::Fault) {
            return Ok(());
        }
        if !wait() {
            let reasons = readiness.not_usable_reasons;
            return Err(HookFailed::NotUsable { order: order.name(), waited: begun.elapsed(), reasons });
        }
        readiness = client.sync(SyncOrder::Nothing)?;
    }
}

fn order_is_overtaken(order: SyncOrder, readiness: &SyncReadiness) -> bool {
    let ordered = match order {
        SyncOrder::Primary => NodeRole::Primary,
        SyncOrder::Backup => NodeRole::Backup,
        SyncOrder::Fault => NodeRole::Fault,
        SyncOrder::Resync | SyncOrder::Nothing => return false,
    };
    readiness.role != ordered
}

fn connect(socket: &Path) -> Result<Client, HookFailed> {
    Client::connect(socket).map_err(|error| match error {
        ClientError::NoGateway(_) => HookFailed::NoDaemon(socket.to_owned()),
        error => HookFailed::Client(error),
    })
}

/// Reports whether the node may take over, by the exit code and, for people, in a line.
pub(super) fn ready(args: &ReadyArgs) -> Result<(), CommandError> {
    let readiness = connect(&args.socket)?.sync(SyncOrder::Nothing).map_err(HookFailed::Client)?;
    if args.json {
        console::print_json(&readiness)?;
    } else if readiness.may_take_over {
        console::print("this node may take over\n")?;
    }
    if readiness.may_take_over { Ok(()) } else { Err(HookFailed::NotReady(readiness.may_not_reasons).into()) }
}
