//! Room in the kernel's connection tracking for as many connections as are measured with.

use packet_io::sysctl;

/// The most connections of a namespace, and the buckets of the table that all namespaces share. Only the machine's first
/// namespace can change them.
const CONNECTIONS_MAX: &str = "net/netfilter/nf_conntrack_max";
const BUCKETS: &str = "net/netfilter/nf_conntrack_buckets";

/// Room for connections. Dropping it sets the machine's parameters as they were.
#[derive(Debug, Default)]
pub(super) struct ConntrackRoom {
    former: Vec<(&'static str, String)>,
}

impl ConntrackRoom {
    /// Makes room for so many connections: with a bucket for each, as the kernel itself chooses their numbers. Larger parameters stay.
    /// Returns what is wrong where they cannot be changed.
    pub(super) fn make(connections: usize) -> Result<Self, String> {
        let mut room = Self::default();
        for name in [CONNECTIONS_MAX, BUCKETS] {
            let former = sysctl::read(name).map_err(|error| error.to_string())?;
            if former.parse().is_ok_and(|there: usize| there >= connections) {
                continue;
            }
            sysctl::write(name, &connections.to_string()).map_err(|error| error.to_string())?;
            room.former.push((name, former));
        }
        Ok(room)
    }
}

impl Drop for ConntrackRoom {
    fn drop(&mut self) {
        for (name, former) in &self.former {
            // It could be changed before; there is no caller left for an error.
            let _ = sysctl::write(name, former);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_raised_and_then_as_they_were() {
        let read = || [CONNECTIONS_MAX, BUCKETS].map(|name| sysctl::read(name).ok()?.parse::<usize>().ok());
        let before = read();
        let Ok(room) = ConntrackRoom::make(before[0].unwrap_or_default() + 1) else {
            return packet_io::namespace::skip(
                "only root in the machine's first namespace can change these parameters",
            );
        };
        assert!(read().iter().zip(before).all(|(now, before)| *now >= before) && read()[0] > before[0]);
        drop(room);
        assert_eq!(read(), before);
    }
}
