//! Two nodes that both forward: which of them a packet comes by is the test's to say.

mod conflicts;
mod end_points;
mod guests;
mod handshakes;
mod pair;
mod waiting;
mod workers;
