//! Processes of a lab: started inside a namespace, found again by a PID file, killed for certain.

use crate::error::{Error, Result};
use netns::Netns;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a killed process may take to be gone, in seconds.
const KILL_TIMEOUT_S: u64 = 5;
/// What this process has started and not yet collected: a dead one is in no namespace any more, so
/// nothing else would find it, and whoever runs many labs in one process would fill the process
/// table.
static STARTED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A process by its PID and start time, which together are never used again.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Identity {
    /// Process ID.
    pub pid: i32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
}

impl Identity {
    /// The identity of a running process; `None` if there is none or it is a zombie.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command name is in parentheses and may hold blanks: fields count from the last ')'.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        if state == "Z" || state == "X" {
            return None;
        }
        Some(Self { pid, start_ticks: fields.nth(18)?.parse().ok()? })
    }

    /// Whether the very process still runs.
    pub fn alive(self) -> bool {
        reap(self.pid);
        Self::of(self.pid) == Some(self)
    }
}

/// Starts a daemon in a namespace, in a session of its own, with its output appended to `log`.
///
/// # Errors
/// The program is missing or cannot be started.
pub fn spawn(netns: &Netns, command_line: &[String], log: &Path) -> Result<Identity> {
    start(netns, command_line, log, false)
}

/// The same, for a daemon that gets a CPU as soon as it wants one, if this process may say so.
/// (`nice` counts only beside processes of the same session: sched(7), "autogroup".)
///
/// # Errors
/// The program is missing or cannot be started.
pub fn spawn_first(netns: &Netns, command_line: &[String], log: &Path) -> Result<Identity> {
    start(netns, command_line, log, true)
}

fn start(netns: &Netns, command_line: &[String], log: &Path, first: bool) -> Result<Identity> {
    let (program, arguments) = command_line.split_first().ok_or_else(|| Error::Command {
        command: String::new(),
        reason: "empty command line".to_string(),
    })?;
    let out = File::options().create(true).append(true).open(log).map_err(Error::io(log))?;
    let errors = out.try_clone().map_err(Error::io(log))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(errors);
    // SAFETY: setsid and sched_setscheduler are system calls: async-signal-safe, and they allocate
    // nothing.
    unsafe {
        command.pre_exec(move || {
            nix::unistd::setsid()?;
            if first {
                let lowest = libc::sched_param { sched_priority: 1 };
                // Refused in some containers: it runs as all others do.
                let _ = libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest);
            }
            Ok(())
        });
    }
    netns.enter(&mut command)?;
    let child = command
        .spawn()
        .map_err(|e| Error::Command { command: command_line.join(" "), reason: e.to_string() })?;
    let pid = child.id() as i32;
    started().push(Pid::from_raw(pid));
    // A process that is gone already is reported by whoever waits for it to be ready.
    Ok(Identity::of(pid).unwrap_or(Identity { pid, start_ticks: 0 }))
}

/// Runs a command to its end, in a namespace if one is given; returns whether it succeeded and what
/// it printed.
///
/// # Errors
/// The program cannot be started.
pub fn run(netns: Option<&Netns>, command_line: &[String]) -> Result<(bool, String)> {
    let (program, arguments) = command_line.split_first().ok_or_else(|| Error::Command {
        command: String::new(),
        reason: "empty command line".to_string(),
    })?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let output = match netns {
        Some(netns) => netns.output(&mut command),
        None => command.output(),
    };
    let output = output
        .map_err(|e| Error::Command { command: command_line.join(" "), reason: e.to_string() })?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), said.trim().to_string()))
}

/// Kills every process of a namespace (SIGKILL) and waits until they are gone.
///
/// # Errors
/// One is still there after [`KILL_TIMEOUT_S`].
pub fn kill_all(netns: &Netns) -> Result<()> {
    signal_all(netns);
    wait_gone(netns)
}

/// Sends SIGKILL to every process of a namespace, without waiting.
pub fn signal_all(netns: &Netns) {
    for pid in netns.processes() {
        if pid != std::process::id() as i32 {
            // It may be gone in the meantime.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Waits until no process but this one is left in a namespace; kills what still starts there.
///
/// # Errors
/// One is still there after [`KILL_TIMEOUT_S`].
pub fn wait_gone(netns: &Netns) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(KILL_TIMEOUT_S);
    loop {
        let left: Vec<i32> = netns
            .processes()
            .into_iter()
            .filter(|&pid| pid != std::process::id() as i32)
            .inspect(|&pid| reap(pid))
            .filter(|&pid| Identity::of(pid).is_some())
            .collect();
        if left.is_empty() {
            reap_started();
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::Timeout {
                what: format!("processes {left:?} in {} did not die", netns.name()),
                seconds: KILL_TIMEOUT_S,
                hint: "see what they wait for in /proc/PID/stack".to_string(),
            });
        }
        signal_all(netns);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Collects the dead of those that this process has started.
fn reap_started() {
    started().retain(|pid| lives(*pid));
}

/// Collects the exit status of one that this process has started, if it is dead; nothing for anyone
/// else's.
fn reap(pid: i32) {
    started().retain(|started| started.as_raw() != pid || lives(*started));
}

fn started() -> MutexGuard<'static, Vec<Pid>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a child of this process lives; once it does not, its status is collected, and it may not
/// be asked for again.
fn lives(child: Pid) -> bool {
    matches!(waitpid(child, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive))
}
