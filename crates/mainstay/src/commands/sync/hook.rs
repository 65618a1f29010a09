//! `mainstay sync primary`, `backup`, `fault`, `resync` and `ready`: what keepalived calls.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::{HookArgs, ReadyArgs};
use crate::commands::error::{CommandError, HookFailed};
use api::{SyncOrder, SyncReadiness};
use control::client::{Client, ClientError};

/// Between two questions how far the node is: first so long, then twice as long each time,
const ASK_AGAIN_FIRST: Duration = Duration::from_millis(1);
/// and at most so long.
const ASK_AGAIN_MAX: Duration = Duration::from_millis(50);

/// Gives the order and waits until the node is what it was told to be, and what it has is usable.
pub(super) fn run(order: SyncOrder, args: &HookArgs) -> Result<(), HookFailed> {
    let begun = Instant::now();
    let deadline = begun + args.timeout;
    let mut pause = ASK_AGAIN_FIRST;
    let mut wait = || {
        let left = deadline.saturating_duration_since(Instant::now());
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(ASK_AGAIN_MAX);
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
        // Whoever stands by has nothing to wait for.
        if readiness.usable || matches!(order, SyncOrder::Backup | SyncOrder::Fault) {
            return Ok(());
        }
        if !wait() {
            let because = readiness.not_usable_because;
            return Err(HookFailed::NotUsable { order: order.name(), waited: begun.elapsed(), because });
        }
        readiness = client.sync(SyncOrder::Nothing)?;
    }
}

fn order_is_overtaken(order: SyncOrder, readiness: &SyncReadiness) -> bool {
    matches!(order, SyncOrder::Primary | SyncOrder::Backup | SyncOrder::Fault) && readiness.role != order.name()
}

fn connect(socket: &Path) -> Result<Client, HookFailed> {
    Client::connect(socket).map_err(|error| match error {
        ClientError::NoGateway(_) => HookFailed::NoDaemon(socket.to_owned()),
        error => HookFailed::Client(error),
    })
}

/// Says whether the node may take over, by the process's status and, for people, in a line.
pub(super) fn ready(args: &ReadyArgs) -> Result<(), CommandError> {
    let readiness = connect(&args.socket)?.sync(SyncOrder::Nothing).map_err(HookFailed::Client)?;
    if args.json {
        console::print_json(&readiness)?;
    } else if readiness.may_take_over {
        console::print("this node may take over\n")?;
    }
    if readiness.may_take_over { Ok(()) } else { Err(HookFailed::NotReady(readiness.may_not_because).into()) }
}
