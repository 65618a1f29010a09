//! The ports of many connections between two addresses, by the connection's number.

/// Ports that connections come from, and the first of them. With each port that they go to all of them are used. They are half of what
/// a node of two has for translation, so that it finds a free one for each.
const SOURCE_PORTS: u32 = 16_384;
const FIRST_SOURCE: u16 = 20_000;
/// The first port that connections go to.
pub(super) const FIRST_DESTINATION: u16 = 7400;

/// Source and destination port of a connection.
pub(super) const fn of(number: u32) -> [u16; 2] {
    [FIRST_SOURCE + (number % SOURCE_PORTS) as u16, FIRST_DESTINATION + (number / SOURCE_PORTS) as u16]
}

/// The connection with these ports, if one has them.
pub(super) fn number_of([source, destination]: [u16; 2]) -> Option<u32> {
    let source = u32::from(source.checked_sub(FIRST_SOURCE)?);
    let destination = u32::from(destination.checked_sub(FIRST_DESTINATION)?);
    (source < SOURCE_PORTS).then_some(destination * SOURCE_PORTS + source)
}

/// The last port that so many connections go to.
pub(super) const fn last_destination(connections: u32) -> u16 {
    of(connections.saturating_sub(1))[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_name_their_connection() {
        for number in [0, 1, SOURCE_PORTS - 1, SOURCE_PORTS, 999_999, 3_999_999] {
            assert_eq!(number_of(of(number)), Some(number));
            assert!(of(number)[1] <= last_destination(4_000_000));
        }
        assert_eq!(last_destination(SOURCE_PORTS), FIRST_DESTINATION);
        assert_eq!(
            (number_of([19_999, 7400]), number_of([20_000, 7399]), number_of([36_384, 7400])),
            (None, None, None)
        );
    }
}
