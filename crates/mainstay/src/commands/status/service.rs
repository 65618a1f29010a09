//! The services of the load balancer.

use super::text::ago;
use api::{BackendStatus, Status};
use console::{Table, count};

/// The backends of all services, a row each.
pub(super) fn backend_table(status: &Status) -> Table {
    let headings = "SERVICE|BACKEND|STATE|>WEIGHT|>CONNECTIONS|>BEGUN|LAST CHECK|PROTOCOL|ADDRESS|>REFUSED";
    let mut table = Table::of(headings).keyed_by(2);
    for service in &status.services {
        let ports = if service.ports.is_empty() { "all ports" } else { service.ports.as_str() };
        for (number, backend) in service.backends.iter().enumerate() {
            // What is the service's stands in its first row only.
            let once = |text: String| if number == 0 { text } else { String::new() };
            let state =
                if service.checked { backend.state.to_string() } else { format!("{}, unchecked", backend.state) };
            table.row([
                service.name.clone(),
                backend.address.clone(),
                state,
                backend.weight.to_string(),
                count(backend.connections),
                count(backend.begun),
                last_check(status, backend),
                once(service.protocol.clone()),
                once(format!("{} {ports}", service.address)),
                once(count(service.refused)),
            ]);
        }
    }
    table
}

/// The last result of a backend's checks.
fn last_check(status: &Status, backend: &BackendStatus) -> String {
    let Some(check) = &backend.last_check else { return "-".to_owned() };
    let since = ago(status.monotonic_now_ns, check.at_ns);
    if check.succeeded { format!("passed {since} ago") } else { format!("failed {since} ago: {}", check.reason) }
}
