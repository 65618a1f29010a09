//! Members of the cluster, and the source of their list.

use std::time::Duration;

use api::{MemberState, Status};
use console::Table;

/// A line for the source, where the list comes from elsewhere than the configuration file.
pub(super) fn describe(status: &Status) -> String {
    let Some(membership) = &status.membership else { return String::new() };
    let since = Duration::from_nanos(status.monotonic_now_ns.saturating_sub(membership.since_ns));
    let since = console::duration(since);
    let source = &membership.source;
    let state = match &membership.error {
        _ if membership.reachable => format!("reachable for {since}"),
        Some(error) => format!("unreachable for {since}, the last known members stay peers: {error}"),
        None => format!("not reached yet, for {since}"),
    };
    let backups = membership.backups.map_or_else(String::new, |backups| format!(" · {backups} backups"));
    let own = if membership.own_state == MemberState::Active {
        String::new()
    } else {
        format!(" · {}", membership.own_state)
    };
    let (members, settings) = (membership.members.len() + 1, membership.settings_version);
    let refused = membership.refused.iter().map(|refused| format!("             refused: {refused}\n"));
    let configuration = membership.configuration_version;
    format!(
        "Membership   {source} {state} · {members} members{own} · settings {settings}, configuration {configuration}{backups}\n{}",
        refused.collect::<String>(),
    )
}

/// A row for each other member.
pub(super) fn member_table(status: &Status) -> Table {
    let mut table = Table::of("MEMBER|NAME|ADDRESS|STATE|RECORD|>VERSION");
    for member in status.membership.iter().flat_map(|membership| &membership.members) {
        table.row([
            member.id.to_string(),
            member.name.clone(),
            member.address.clone(),
            member.state.to_string(),
            if member.recorded { "present" } else { "absent" }.to_owned(),
            member.version.to_string(),
        ]);
    }
    table
}
