//! What the two transports promise, and what they do not, told case by case.

mod datagram;
mod stream;
mod table;
