//! When checks make a backend up or down.

/// The health of a backend: it changes after enough checks in a row that contradict it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Health {
    is_up: bool,
    /// Checks in a row that contradict `is_up`.
    contradictions: u8,
}

impl Health {
    pub(super) const fn new(is_up: bool) -> Self {
        Self { is_up, contradictions: 0 }
    }

    pub(super) const fn is_up(self) -> bool {
        self.is_up
    }

    /// Takes the result of a check. `rise` successful checks make a backend up, `fall` failed ones make it down. True if its
    /// health has changed.
    pub(super) fn handle_check(&mut self, has_succeeded: bool, rise: u8, fall: u8) -> bool {
        if has_succeeded == self.is_up {
            self.contradictions = 0;
            return false;
        }
        self.contradictions = self.contradictions.saturating_add(1);
        let has_changed = self.contradictions >= if self.is_up { fall } else { rise };
        if has_changed {
            *self = Self::new(!self.is_up);
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_falls_and_rises_after_enough_checks_in_a_row() {
        let mut health = Health::new(true);
        let checks = [false, false, true, false, false, false, true, false, true, true];
        let changed: Vec<_> = checks.map(|has_succeeded| health.handle_check(has_succeeded, 2, 3)).into();
        assert_eq!(changed, [false, false, false, false, false, true, false, false, false, true]);
        assert!(health.is_up());
    }
}
