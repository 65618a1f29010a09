//! Every byte reaches its receiver, in the right position.

use flow::Instant;

use super::View;
use super::survival::Survival;
use crate::host::tcp::Violation;
use crate::report::{Outcome, Problem};

pub(super) fn finish(now: Instant, view: &View<'_>, survival: &Survival, outcome: &mut Outcome) {
    for (index, host) in view.hosts.iter().enumerate() {
        for number in &host.wrong_content {
            let text = format!("host {index} got a request or an answer that is not of transfer {number}");
            outcome.problem(now, Problem::WrongContent, text);
        }
        for violation in host.endpoints.iter().flat_map(|endpoint| &endpoint.violations) {
            match violation {
                Violation::WrongByte { transfer, offset } => {
                    let text = format!("host {index}: byte {offset} of transfer {transfer} is wrong");
                    outcome.problem(now, Problem::WrongContent, text);
                }
                Violation::NoHeader => {
                    let text = format!("host {index} got a connection that does not begin as one");
                    outcome.problem(now, Problem::WrongContent, text);
                }
                Violation::Reset { transfer, got_bytes } => {
                    if *transfer != u32::MAX && !survival.is_excused(*transfer) {
                        let text = format!("host {index}: transfer {transfer} was reset after {got_bytes} bytes");
                        outcome.problem(now, Problem::Reset, text);
                    }
                }
            }
        }
    }
}
