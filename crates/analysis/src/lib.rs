//! What captures show: the connections and bytes in them, what replication and redundancy elimination would cost and save.
//!
//! * [`trace`]: captures as a stream of packets, in bounded memory.
//! * [`synthesis`]: traffic of stated statistics, where captures are not to be had.
//! * [`report`]: findings as a page for people, as JSON and as Parquet.
#![deny(unsafe_code)]

pub mod report;
pub mod synthesis;
pub mod trace;
