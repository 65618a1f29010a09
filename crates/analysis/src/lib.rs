//! What captures show: the connections and bytes in them, what replication and redundancy elimination would cost and save.
//!
//! * [`trace`]: captures as a stream of packets, in bounded memory.
//! * [`synthesis`]: traffic of stated statistics, where captures are not to be had.
//! * [`comparators`]: filters and distributions of flows that cannot be configured, for comparison.
//! * [`replication_study`]: the cost of each way to replicate connections to a backup, and what the backup would know.
//! * [`redundancy_study`]: what redundancy elimination would save, where, and with which cache.
//! * [`tcp_failover`]: models of TCP across a failover: stall and completion, with and without local recovery.
//! * [`report`]: results as a page for people, as JSON and as Parquet.
#![deny(unsafe_code)]

pub mod comparators;
pub mod redundancy_study;
pub mod replication_study;
pub mod report;
pub mod synthesis;
pub mod tcp_failover;
pub mod trace;
