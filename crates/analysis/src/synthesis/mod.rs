//! Traffic of stated statistics, for where captures are not to be had.
