//! Min-churn predictive placement: which nodes hold the replicas of a connection [TRIPOD, section V-B].
//!
//! A connection lands on one of several nodes when nodes fail ([`Prediction::landings`]). With the edges' own ECMP there are as
//! many such nodes as failures, and each holds a replica. With another distribution there are more of them than replicas. Then the
//! state must be pulled on the others: churn. The placement minimises the greatest expected churn of a node (equations 1 to 6):
//!
//! ```text
//! minimise ρ + ε · Σ loads       load of j = S_j + Σ_c b_jc · s_c · (1 − r_jc) ≤ ρ
//!                                Σ_j r_jc = k,  0 ≤ r_jc ≤ 1        (only nodes j where c may land)
//! ```
//!
//! b: probability that c lands on j; s: size of the state; r: a replica of c on j; S: loads placed before, by all nodes.
//!
//! A [`Placer`] solves this for a batch of connections, rounds the solution, and exchanges loads with the placers of other nodes.
//! Replicas that were placed stay.
//!
//! ```
//! use flow::{Ecmp, NodeId, NodeSet};
//! use placement::{Item, Placer};
//! use state_service::prediction::{FailureModel, Prediction};
//!
//! let nodes: NodeSet = (0..8).map(NodeId).collect();
//! let (ecmp, failures) = (Ecmp::new(nodes), FailureModel::uniform(0.01, 2)?);
//! let hash = 0x0123_4567_89ab_cdef;
//! let owner = ecmp.select(hash).expect("all nodes are alive");
//! let item = Item { hash, owner, size_bytes: 256, landings: ecmp.landings(hash, &failures) };
//! let backups = Placer::new(owner, 2).place(&[item], nodes);
//! assert_eq!(backups[0], ecmp.backups(hash, 2));
//! # Ok::<(), state_service::prediction::FailureModelError>(())
//! ```
//!
//! The crate knows no clock, socket or randomness. It is not `no_std`, as the solver is not.
//!
//! [`Prediction::landings`]: state_service::prediction::Prediction::landings

mod item;
mod loads;
mod placer;
mod program;

pub use item::Item;
pub use loads::ExpectedChurn;
pub use placer::{BATCH_MAX, Placer};
