//! What the two transports promise, and what they do not, told case by case.

mod datagram;
mod hostile;
mod stream;
mod table;
