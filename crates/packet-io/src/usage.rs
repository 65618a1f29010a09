//! Resource usage of processes: processor time and memory.

use std::time::Duration;

use crate::clock::read;

/// The largest number that Linux gives a process (`PID_MAX_LIMIT`, proc(5)).
const PID_MAX: u32 = 1 << 22;

/// Processor time of the whole process so far, user and system.
#[must_use]
pub fn process_cpu_time() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// Processor time of the calling thread so far, user and system.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// The time that the calling thread has run or waited for a processor: its run time on an otherwise idle machine.
/// Without the waiting time where `/proc` lacks it.
#[must_use]
pub fn thread_wanted_time() -> Duration {
    // Nanoseconds on a processor, nanoseconds waiting for one, turns (proc(5)).
    let waited_ns = || -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().nth(1)?.parse().ok()
    };
    thread_cpu_time() + Duration::from_nanos(waited_ns().unwrap_or_default())
}

/// Processor time of the process `pid` so far, user and system, of all its threads; `None` when there is no such process.
#[must_use]
pub fn cpu_time_of(pid: u32) -> Option<Duration> {
    // A larger number would lose its upper bits in the clock's number and refer to another process.
    if pid > PID_MAX {
        return None;
    }
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is writable for the duration of the call.
    let result = unsafe { libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &raw mut clock) };
    (result == 0).then(|| Duration::from_nanos(read(clock)))
}

/// The processor time so far of the kernel's threads for deferred interrupt work (ksoftirqd, one a processor). Such
/// work in the context of a process counts as that process's time. Zero where `/proc` lacks it.
#[must_use]
pub fn soft_interrupt_threads_cpu_time() -> Duration {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let time_of = |process: std::fs::DirEntry| {
        let name = std::fs::read_to_string(process.path().join("comm")).ok()?;
        let statistics = name.starts_with("ksoftirqd/").then(|| process.path().join("schedstat"))?;
        std::fs::read_to_string(statistics).ok()?.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(processes.filter_map(time_of).sum())
}

/// The processor time so far of the machine's soft interrupts, in whichever process's time they ran, sampled in steps of 10 ms; `None`
/// where `/proc` lacks it. The kernel forwards packets in them.
#[must_use]
pub fn soft_interrupts_cpu_time() -> Option<Duration> {
    let statistics = std::fs::read_to_string("/proc/stat").ok()?;
    let of_all = statistics.lines().next()?.strip_prefix("cpu ")?;
    // user, nice, system, idle, waiting for disks, interrupts, soft interrupts (proc(5)).
    let ticks: u64 = of_all.split_whitespace().nth(6)?.parse().ok()?;
    // SAFETY: sysconf takes no pointers.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
}

/// The time that all processors of the machine together have been busy so far, in steps of 10 ms; `None` where `/proc`
/// lacks it.
#[must_use]
pub fn machine_cpu_time() -> Option<Duration> {
    let statistics = std::fs::read_to_string("/proc/stat").ok()?;
    let of_all = statistics.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = of_all.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen (proc(5)). Only idle time is
    // exact, the rest is sampled: busy time is hence the uptime less idle time. Both have the same ticks.
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let processors = statistics.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1);
    // SAFETY: sysconf takes no pointers.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let idle_s = [3, 4, 7].iter().filter_map(|at| ticks.get(*at)).sum::<u64>() as f64 / ticks_per_second as f64;
    let there_was_s = uptime.split(' ').next()?.parse::<f64>().ok()? * processors as f64;
    Some(Duration::from_secs_f64((there_was_s - idle_s).max(0.0)))
}

/// Resident memory of the process, in bytes; 0 where `/proc` is not mounted.
#[must_use]
pub fn resident_bytes() -> u64 {
    resident_bytes_in("/proc/self").unwrap_or_default()
}

/// Resident memory of the process `pid`, in bytes; `None` when there is no such process.
#[must_use]
pub fn resident_bytes_of(pid: u32) -> Option<u64> {
    resident_bytes_in(&format!("/proc/{pid}"))
}

fn resident_bytes_in(process: &str) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("{process}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: sysconf takes no pointers.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).unwrap_or(0))
}

/// Gives this process priority over ordinary ones: a node without a processor for the detection time counts as dead.
/// Needs `CAP_SYS_NICE`; without it returns false and changes nothing.
#[must_use]
pub fn prefer_this_process() -> bool {
    /// Between the default (0) and the highest priority (-20).
    const NICE: libc::c_int = -15;
    // SAFETY: setpriority takes no pointers; process 0 is the calling one.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) == 0 }
}

/// Gives the calling thread real-time priority over ordinary threads (sched(7), `SCHED_RR`); threads that it starts are
/// ordinary. Use it for threads that mostly sleep, as a busy one monopolises its processor. Needs `CAP_SYS_NICE`;
/// without it returns false and changes nothing.
#[must_use]
pub fn run_in_real_time() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameters` is readable for the duration of the call; thread 0 is the calling one.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const parameters) == 0 }
}

/// Binds all threads of the process `pid` (0: the calling thread alone) to one processor of the machine. Returns false,
/// without changes, where there is no such process or processor, or permission is missing.
#[must_use]
pub fn keep_on_processor(pid: u32, processor: usize) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    if processor >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: all-zero bytes are a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { crate::system::zeroed() };
    // SAFETY: the processor's number is within the set, as checked above.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: `set` is readable for the stated length.
    let keep = |thread| unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set) == 0 };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads: Vec<libc::pid_t> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    match threads.is_empty() {
        true => keep(pid),
        false => threads.into_iter().all(keep),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_processor_time() {
        let (process, thread) = (process_cpu_time(), thread_cpu_time());
        let mut sum = 0_u64;
        while thread_cpu_time() == thread {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(process_cpu_time() > process);
    }

    #[test]
    fn a_threads_demand_is_its_run_time_and_at_most_the_elapsed_time() {
        let (began, wanted, ran) = (std::time::Instant::now(), thread_wanted_time(), thread_cpu_time());
        let mut sum = 0_u64;
        while thread_cpu_time() < ran + Duration::from_millis(20) {
            sum = std::hint::black_box(sum + 1);
        }
        let wanted = thread_wanted_time().saturating_sub(wanted);
        assert!(wanted >= Duration::from_millis(20), "{wanted:?}");
        // Waiting time is accounted when it ends, with a tick's uncertainty.
        assert!(wanted <= began.elapsed() + Duration::from_millis(20), "{wanted:?}");
    }

    #[test]
    fn processor_time_of_a_process_is_read_by_its_number() {
        let before = process_cpu_time();
        let of_this_process = cpu_time_of(std::process::id()).unwrap();
        assert!(before <= of_this_process && of_this_process <= process_cpu_time());
        for no_process in [PID_MAX, PID_MAX + 1, u32::MAX] {
            assert_eq!(cpu_time_of(no_process), None);
        }
    }

    #[test]
    fn the_machine_is_busy_while_this_process_is() {
        let (machine, process) = (machine_cpu_time().unwrap(), process_cpu_time());
        let mut sum = 0_u64;
        while process_cpu_time() < process + Duration::from_millis(100) {
            sum = std::hint::black_box(sum + 1);
        }
        // Both uptime and idle time have steps of 10 ms.
        assert!(machine_cpu_time().unwrap() >= machine + Duration::from_millis(50));
        assert!(soft_interrupt_threads_cpu_time() <= machine_cpu_time().unwrap());
    }

    #[test]
    fn soft_interrupts_take_no_more_time_than_the_machine_is_busy() {
        let (Some(soft), Some(busy)) = (soft_interrupts_cpu_time(), machine_cpu_time()) else { return };
        assert!(soft <= busy, "{soft:?} of {busy:?}");
    }

    #[test]
    fn touched_memory_is_resident() {
        let before = resident_bytes();
        let block = std::hint::black_box(vec![1_u8; 32 << 20]);
        assert!(resident_bytes() >= before + (24 << 20), "of {} bytes", block.len());
        assert_eq!(resident_bytes_of(u32::MAX), None);
    }
}
