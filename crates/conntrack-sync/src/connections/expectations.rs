//! Expected connections: each belongs to its master connection, is replicated in its messages and ends with it. For
//! conntrackd, which treats them separately, they have handles.

use flow::netfilter::Expectation;
use replication::Handle;
use replication::representation::kernel::EXPECTATIONS_MAX;

use super::expectation_table::is_same;
use super::{ConnectionChange, Connections};

impl Connections {
    /// The kernel created or deleted an expectation.
    pub(crate) fn expected(&mut self, expectation: &Expectation, is_there: bool) {
        if !self.takes_expectations {
            return;
        }
        let Some(handle) = self.mirror.find(&expectation.master, expectation.zone) else {
            self.counters.expectations_left_out += u64::from(is_there);
            return;
        };
        let node = self.node;
        let Some(record) = self.mirror.get_mut(handle) else { return };
        let is_own = record.owner() == node;
        let rare = record.rare_mut();
        let known = rare.expectations.iter().position(|known| is_same(known, expectation));
        match (is_there, known) {
            (true, Some(at)) => rare.expectations[at] = expectation.clone(),
            (true, None) if rare.expectations.len() < EXPECTATIONS_MAX => rare.expectations.push(expectation.clone()),
            (true, None) => self.counters.expectations_left_out += 1,
            (false, Some(at)) => drop(rare.expectations.remove(at)),
            (false, None) => {}
        }
        rare.injected.retain(|known| !is_same(known, expectation));
        record.drop_empty_rare();
        if is_there && !is_own {
            // The helper of this node's kernel processes the packets: they come here.
            self.counters.taken_over += 1;
            self.take_over(handle, false);
        } else if is_own {
            self.end_deferral(handle);
            self.replicate_expectation(expectation, is_there);
            self.replicate(handle);
        }
    }

    fn replicate_expectation(&mut self, expectation: &Expectation, is_there: bool) {
        if !self.has_conntrackd {
            return;
        }
        if !is_there {
            if let Some((handle, ended)) = self.expecting.remove(expectation) {
                self.ended_expectations.push_back(ended);
                self.changes.push(ConnectionChange::ExpectationEnded(handle));
            }
        } else if let Some(handle) = self.expecting.set(expectation) {
            self.changes.push(ConnectionChange::ExpectationChanged(handle));
        } else {
            self.counters.expectations_left_out += 1;
        }
    }

    /// Updates which expectations this node replicates after the ownership of their master changed.
    pub(crate) fn update_expectations_of(&mut self, handle: Handle, is_own: bool) {
        let Some(record) = self.mirror.get(handle).filter(|_| self.has_conntrackd) else { return };
        if record.expectations().is_empty() {
            return;
        }
        for expectation in record.expectations().to_vec() {
            self.replicate_expectation(&expectation, is_own);
        }
    }
}
