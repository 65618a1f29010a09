//! etcd as the source of members, by its JSON gateway (`/v3/…`), in a thread of its own.
//!
//! ```text
//!   lease/grant ─► kv/range of all records ─► kv/put of the own record ─► watch: a change, or some time ─┐
//!                     ▲                          own record changed, or missing                          │
//!                     └──────────── lease/keepalive ◄────────────────────────────────────────────────────┘
//! ```
//! The records are read before the own one is written: a former run with a clock that was ahead may have left one, which is superseded.
//!
//! What counts is always the whole list, by a range that etcd answers with a quorum. The watch only shows when to ask for it, so a watch that
//! ends, or whose revision was compacted, loses nothing. A member of etcd that does not answer is replaced by the next one. When none answers,
//! the list stays as it was, and the source is reported unreachable.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use membership::Member;

use super::super::fast_path::give_up_privilege_here;
use super::{List, Members};
use crate::error::ProcessError;
use crate::etcd::{Client, EtcdError};
use config::validated::Etcd;

/// etcd counts as unreachable when its members have failed for this time: the choice of a new leader takes less.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(5);
/// A pause after all members of etcd have failed.
const PAUSE: Duration = Duration::from_millis(500);

/// The thread that talks to etcd.
pub(super) struct EtcdSource {
    /// The lease of the own record; 0: there is none.
    lease: Arc<AtomicI64>,
    leaving: Client,
}

impl EtcdSource {
    pub(super) fn start(members: Arc<Members>, config: &Etcd) -> Result<Self, ProcessError> {
        let (client, leaving) = (Client::new(config)?, Client::new(config)?);
        let lease = Arc::new(AtomicI64::new(0));
        let mut follower =
            Etcds { members, client, config: config.clone(), lease: Arc::clone(&lease), put: None, kept_at: None };
        let thread = thread::Builder::new().name("etcd".to_owned()).spawn(move || {
            give_up_privilege_here();
            follower.run();
        });
        thread.map_err(ProcessError::GatewayThread)?;
        Ok(Self { lease, leaving })
    }

    /// Writes that this node has left, as far as etcd is reachable. The record disappears with its lease.
    pub(super) fn leave(&mut self, members: &Members) {
        let lease = self.lease.load(Ordering::Acquire);
        if lease == 0 {
            return;
        }
        let own = members.own();
        for _ in 0..self.leaving.endpoints() {
            match self.leaving.put(&own, lease) {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!("this node's record is not changed: {error}");
                    self.leaving.use_next();
                }
            }
        }
    }
}

/// Follows the records in etcd, and keeps the own one there.
struct Etcds {
    members: Arc<Members>,
    client: Client,
    config: Etcd,
    lease: Arc<AtomicI64>,
    /// The own record as it was written last.
    put: Option<Member>,
    /// When the lease was kept alive last.
    kept_at: Option<Instant>,
}

impl Etcds {
    fn run(&mut self) {
        let (mut failed, mut succeeded_at) = (0, Instant::now());
        while !self.members.is_stopping() {
            match self.turn() {
                Ok(()) => (failed, succeeded_at) = (0, Instant::now()),
                Err(error) => {
                    tracing::debug!("{error}");
                    self.client.use_next();
                    failed += 1;
                    if failed >= self.config.endpoints.len() {
                        if succeeded_at.elapsed() >= UNREACHABLE_AFTER {
                            self.members.note_unreachable(&error.to_string());
                        }
                        thread::sleep(PAUSE);
                    }
                }
            }
        }
    }

    /// Once around.
    fn turn(&mut self) -> Result<(), EtcdError> {
        self.keep_lease()?;
        let answer = self.client.range()?;
        let (revision, id) = (answer.revision, self.members.own().id);
        let recorded = answer.members.iter().find(|(other, _)| *other == id);
        let recorded = recorded.and_then(|(_, record)| record.as_ref().ok()).cloned();
        self.members.handle_list(List { members: answer.members, settings: answer.settings });
        let own = self.members.own();
        let is_written = self.put.as_ref() == Some(&own) && recorded.as_ref() == Some(&own);
        if !is_written && !self.members.has_twin() && !self.members.is_stopping() {
            self.client.put(&own, self.lease.load(Ordering::Acquire))?;
            self.put = Some(own);
        }
        self.client.watch(revision + 1)
    }

    /// The lease lives on, or there is a new one.
    fn keep_lease(&mut self) -> Result<(), EtcdError> {
        let lease = self.lease.load(Ordering::Acquire);
        let is_fresh = self.kept_at.is_some_and(|kept_at| kept_at.elapsed() < self.config.lease / 3);
        if lease != 0 && (is_fresh || self.client.keep_alive(lease)?) {
            if !is_fresh {
                self.kept_at = Some(Instant::now());
            }
            return Ok(());
        }
        self.lease.store(self.client.grant(self.config.lease)?, Ordering::Release);
        (self.kept_at, self.put) = (Some(Instant::now()), None);
        Ok(())
    }
}
