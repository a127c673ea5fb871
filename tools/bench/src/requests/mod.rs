//! Requests a second of CPU time at servers that keep small values: RedPlane's stores and Redis,
//! over loopback, with the same number of requests under way.

pub mod redis;
pub mod stores;

use crate::kv::cpu::Cpu;
use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Keys that are written, by turns.
pub const KEYS: u32 = 10_000;
/// Requests under way in all cases, about: the window of a switch.
pub const UNDER_WAY: usize = 256;
/// Writes that share a message: as many as fit a batch of the engine.
pub const BATCH: usize = 29;

/// What a load did.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Writes that were acknowledged.
    pub writes: u64,
    /// How long it took.
    pub seconds: f64,
    /// CPU time of all servers, in seconds.
    pub cpu: f64,
}

impl Load {
    /// Acknowledged writes for each second of the servers' CPU time.
    pub fn per_cpu_second(&self) -> f64 {
        self.writes as f64 / self.cpu.max(f64::EPSILON)
    }

    /// Repeats `turn`, which returns how many writes were acknowledged, for this long.
    ///
    /// # Errors
    /// Those of `turn`; no `/proc`.
    pub fn measure(
        servers: &Servers,
        time: Duration,
        mut turn: impl FnMut() -> Result<u64>,
    ) -> Result<Load> {
        let pids = servers.pids();
        let (start, before, mut writes) = (Instant::now(), Cpu::now(&pids)?, 0);
        while start.elapsed() < time {
            writes += turn()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(Load { writes, seconds, cpu: Cpu::now(&pids)?.since(before).lab })
    }
}

/// Server processes on one CPU; they are killed when this is dropped.
#[derive(Debug, Default)]
pub struct Servers(Vec<Child>);

impl Servers {
    /// Starts one, with nothing on standard output.
    ///
    /// # Errors
    /// It cannot be started, or the CPU is not there.
    pub fn start(&mut self, command: &mut Command, cpu: usize) -> Result<()> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let mut set = CpuSet::new();
        set.set(cpu)?;
        sched_setaffinity(Pid::from_raw(child.id().cast_signed()), &set)
            .with_context(|| format!("CPU {cpu}"))?;
        self.0.push(child);
        Ok(())
    }

    fn pids(&self) -> Vec<i32> {
        self.0.iter().map(|child| child.id().cast_signed()).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            // It may have ended by itself.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The name of a key: 13 bytes, as long as a flow key.
pub fn key(number: u32) -> [u8; 13] {
    let mut key = *b"key:000000000";
    let digits = format!("{number:09}");
    key[4..].copy_from_slice(&digits.as_bytes()[digits.len() - 9..]);
    key
}

/// Waits until `ready` is true.
///
/// # Errors
/// It is not within ten seconds.
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !ready() {
        anyhow::ensure!(start.elapsed() < Duration::from_secs(10), "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
