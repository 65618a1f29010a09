//! What a connection looks like within a message, and which changes are worth telling.
