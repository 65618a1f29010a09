//! How busy each processor of the machine is, and how much of that is interrupts.

use std::time::Duration;

/// Times of a processor so far, in steps of 10 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessorTimes {
    /// Its number.
    pub number: u32,
    /// Time without work, or with work of low priority (nice): what others can have.
    pub available: Duration,
    /// Time in interrupts and soft interrupts, where the kernel receives and forwards packets.
    pub interrupts: Duration,
}

/// The times of all processors that are switched on; none where `/proc` lacks them.
#[must_use]
pub fn processor_times() -> Vec<ProcessorTimes> {
    // SAFETY: sysconf takes no pointers.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let statistics = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    parse(&statistics, u64::try_from(ticks_per_second).unwrap_or(0).max(1))
}

fn parse(statistics: &str, ticks_per_second: u64) -> Vec<ProcessorTimes> {
    statistics.lines().filter_map(|line| parse_line(line, ticks_per_second)).collect()
}

/// A line such as `cpu0 user nice system idle iowait irq softirq steal …` (proc(5)); the line of all processors has no number.
fn parse_line(line: &str, ticks_per_second: u64) -> Option<ProcessorTimes> {
    let mut fields = line.split_ascii_whitespace();
    let number = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let &[_user, nice, _system, idle, waiting_for_disks, interrupts, soft_interrupts, ..] = &ticks[..] else {
        return None;
    };
    let time = |ticks: u64| Duration::from_micros(ticks * 1_000_000 / ticks_per_second);
    Some(ProcessorTimes {
        number,
        available: time(nice + idle + waiting_for_disks),
        interrupts: time(interrupts + soft_interrupts),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processors_times_are_read() {
        let text = "cpu  300 20 100 1000 10 6 50 0 0 0\ncpu0 100 10 50 600 5 6 0 0 0 0\ncpu11 200 10 50 400 5 0 50 0 0 0\nintr 1\n";
        let ms = Duration::from_millis;
        let expected = [
            ProcessorTimes { number: 0, available: ms(6150), interrupts: ms(60) },
            ProcessorTimes { number: 11, available: ms(4150), interrupts: ms(500) },
        ];
        assert_eq!(parse(text, 100), expected);
        assert_eq!(parse("cpu0 1 2 3\ncpux 1 2 3 4 5 6 7\n", 100), []);
    }

    #[test]
    fn this_machines_processors_are_there_and_their_times_only_grow() {
        let before = processor_times();
        assert!(!before.is_empty());
        for (before, after) in before.iter().zip(processor_times()) {
            assert_eq!(before.number, after.number);
            assert!(before.interrupts <= after.interrupts && before.available <= after.available);
        }
    }
}
