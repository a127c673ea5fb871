//! Other processes on this machine: measuring goes before them, and how much of the CPU they took
//! all the same is told.

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// Of the whole measurement: this process, and the daemons of the labs, alike: generators must not
/// starve what they measure. (Negative goes first; root only.)
const NICE: i32 = -10;

fn set(nice: i32) -> std::io::Result<()> {
    // SAFETY: a plain system call; 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Where the kernel shares the CPU between sessions first (CONFIG_SCHED_AUTOGROUP), a process's own
/// priority counts only within its session.
fn set_session(pid: &str, nice: i32) {
    // Not there: the kernel does not group sessions, and priorities count by themselves.
    let _ = std::fs::write(format!("/proc/{pid}/autogroup"), nice.to_string());
}

/// This process goes before others, until this is dropped.
pub struct First(());

impl Drop for First {
    fn drop(&mut self) {
        set_session("self", 0);
    }
}

/// Puts this process, and all that it starts from now on, before others: alike for all systems that
/// are compared.
pub fn go_first() -> First {
    if let Err(error) = set(NICE) {
        eprintln!(
            "bench: priority {NICE}: {error}: what else runs on this machine will be in the figures"
        );
    }
    set_session("self", NICE);
    First(())
}

/// Puts a daemon, which has a session of its own, before others.
pub fn daemon_first(pid: i32) {
    set_session(&pid.to_string(), NICE);
}

/// A stretch of a thread that never sleeps: what of it the thread had the CPU for. What the kernel
/// does for packets on the way (softirq) is charged to the thread whose system call sent them, so
/// this is the CPU's time for all of it.
pub struct Stretch {
    start: Instant,
    cpu_ns: u64,
}

fn thread_cpu_ns() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

impl Stretch {
    /// Begins now.
    ///
    /// # Errors
    /// There is no such clock.
    pub fn begin() -> Result<Stretch> {
        Ok(Stretch { start: Instant::now(), cpu_ns: thread_cpu_ns()? })
    }

    /// Seconds on the wall, and seconds of them in which the thread had the CPU.
    ///
    /// # Errors
    /// There is no such clock.
    pub fn end(&self) -> Result<(f64, f64)> {
        let cpu = thread_cpu_ns()? - self.cpu_ns;
        Ok((self.start.elapsed().as_secs_f64(), cpu as f64 / 1e9))
    }
}

/// CPU time of all threads of a process so far, in ns.
///
/// # Errors
/// There is no such process.
pub fn process_cpu_ns(pid: i32) -> Result<u64> {
    let directory = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in std::fs::read_dir(&directory).with_context(|| directory.clone())? {
        let path = thread?.path().join("schedstat");
        // A thread may have ended since.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        sum += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Share of the wall time, in percent, in which others had the CPU.
pub fn taken_percent(wall_s: f64, cpu_s: f64) -> f64 {
    if wall_s > 0.0 { (100.0 * (1.0 - cpu_s / wall_s)).max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_has_no_cpu() {
        let stretch = Stretch::begin().expect("clock");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (wall, cpu) = stretch.end().expect("clock");
        assert!(cpu < wall, "{cpu} of {wall}");
        assert_eq!(taken_percent(2.0, 0.5), 75.0);
    }
}
