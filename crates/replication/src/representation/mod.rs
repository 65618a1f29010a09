//! What a connection looks like within a message, and which changes are worth replicating.
//!
//! * [`precise`]: everything that another node needs to go on with the connection, by value.
//! * [`kernel`]: a connection of the Linux kernel's tracking, by value.
//! * [`item()`]: as one number, to compare what two nodes have.
//! * [`Start`]: from which packet on a connection is replicated.
//! * [`selection`]: whether a change is sent at once (*precise-eager*) or only when it matters (*precise-selective*).

mod item;
pub mod kernel;
pub mod precise;
pub mod selection;
mod start;

pub use item::item;
pub use selection::{Selection, is_worth_replicating};
pub use start::Start;
