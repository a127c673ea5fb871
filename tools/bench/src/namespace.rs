//! Network namespaces that go away with their owner.

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::process::Command;

/// A named network namespace; dropping it deletes it with its links.
pub struct Namespace {
    name: String,
}

/// Runs a command to its end; its output only if it fails.
pub fn run(command: &[&str]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no command")?;
    let output = Command::new(program).args(arguments).output().with_context(|| {
        format!("cannot run {program}; `scripts/setup.sh` installs what is needed")
    })?;
    if !output.status.success() {
        bail!("{}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

impl Namespace {
    /// Makes a namespace; the name tells which process it belongs to.
    pub fn create(role: &str) -> Result<Namespace> {
        let name = format!("sp-bench-{}-{role}", std::process::id());
        run(&["ip", "netns", "add", &name])?;
        let namespace = Namespace { name };
        namespace.run(&["ip", "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name, for `ip`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a command in it.
    pub fn run(&self, command: &[&str]) -> Result<()> {
        let mut whole = vec!["ip", "netns", "exec", &self.name];
        whole.extend_from_slice(command);
        run(&whole)
    }

    /// Calls a function in it, on a thread of its own: a thread's namespace is nobody else's.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.join_thread()?;
                work()
            });
            match thread.join() {
                Ok(result) => result,
                Err(_) => bail!("a thread in namespace {} panicked", self.name),
            }
        })
    }

    /// Moves the calling thread into it.
    pub fn join_thread(&self) -> Result<()> {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).with_context(|| path.clone())?;
        setns(file, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("cannot enter {path}; run as root"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nothing to do about a failure: `ip netns` shows what is left.
        let _ = run(&["ip", "netns", "del", &self.name]);
    }
}
