//! The services of the load balancer.

use api::Status;
use console::{Table, count};

/// The backends of all services, a row each.
pub(super) fn backend_table(status: &Status) -> Table {
    let mut table = Table::of("SERVICE|PROTOCOL|ADDRESS|BACKEND|STATE|>WEIGHT|>CONNECTIONS|>BEGUN|>REFUSED");
    for service in &status.services {
        let ports = if service.ports.is_empty() { "all ports" } else { service.ports.as_str() };
        for (number, backend) in service.backends.iter().enumerate() {
            // The service stands in its first row only.
            let once = |text: String| if number == 0 { text } else { String::new() };
            let state = if service.checked { backend.state.clone() } else { format!("{}, unchecked", backend.state) };
            table.row([
                once(service.name.clone()),
                once(service.protocol.clone()),
                once(format!("{} {ports}", service.address)),
                backend.address.clone(),
                state,
                backend.weight.to_string(),
                count(backend.connections),
                count(backend.begun),
                once(count(service.refused)),
            ]);
        }
    }
    table
}
