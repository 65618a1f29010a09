//! The traffic classes.

use api::Status;
use console::{Table, count};

/// The classes that have had traffic, a row each.
pub(super) fn class_table(status: &Status) -> Table {
    let mut table = Table::of("CLASS|>CONNECTIONS|>PACKETS|>BYTES");
    for class in status.classes.iter().filter(|class| class.connections + class.packets > 0) {
        table.row([class.name.clone(), count(class.connections), count(class.packets), count(class.bytes)]);
    }
    table
}
