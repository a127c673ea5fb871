//! Network namespaces: making them, entering them, finding the processes in them.
//!
//! A namespace is entered by `setns(CLONE_NEWNET)` in a child before `exec`, or in a short-lived
//! thread. `ip netns exec` also remounts `/sys` in a private mount namespace, which hides bpffs;
//! this does not.

use crate::error::{Error, Result};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where `ip netns` keeps its namespaces; the lab's are there too, so that `ip netns` lists them.
const NETNS_DIR: &str = "/run/netns";

/// A named network namespace.
#[derive(Debug)]
pub struct Netns {
    name: String,
    file: File,
    /// Inode of the namespace: what `/proc/PID/ns/net` shows for the processes in it.
    inode: u64,
}

/// Path of a named namespace.
pub fn path(name: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(name)
}

impl Netns {
    /// Makes a namespace and keeps it by a bind mount below `/run/netns`.
    ///
    /// # Errors
    /// The namespace exists, or the process may not make one.
    pub fn create(name: &str) -> Result<Self> {
        let mount_point = path(name);
        std::fs::create_dir_all(NETNS_DIR).map_err(Error::io(NETNS_DIR))?;
        File::options()
            .write(true)
            .create_new(true)
            .open(&mount_point)
            .map_err(Error::io(&mount_point))?;
        let target = mount_point.clone();
        let made = std::thread::spawn(move || -> std::io::Result<()> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            nix::mount::mount(
                Some("/proc/thread-self/ns/net"),
                &target,
                None::<&str>,
                nix::mount::MsFlags::MS_BIND,
                None::<&str>,
            )?;
            Ok(())
        })
        .join()
        .unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")));
        if let Err(e) = made {
            // Nothing is mounted there: only the empty file is in the way of the next attempt.
            let _ = std::fs::remove_file(&mount_point);
            return Err(Error::system(format!("making network namespace {name}"))(e));
        }
        Self::open(name)
    }

    /// Opens an existing namespace.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn open(name: &str) -> Result<Self> {
        let path = path(name);
        let file = File::open(&path).map_err(Error::io(&path))?;
        let inode = file.metadata().map_err(Error::io(&path))?.ino();
        Ok(Self { name: name.to_string(), file, inode })
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes `command` run inside the namespace.
    pub fn enter(&self, command: &mut Command) -> Result<()> {
        let file = self
            .file
            .try_clone()
            .map_err(Error::system(format!("entering network namespace {}", self.name)))?;
        // SAFETY: between fork and exec the closure makes one setns system call on a descriptor
        // that it owns, and allocates nothing.
        unsafe {
            command.pre_exec(move || Ok(setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?));
        }
        Ok(())
    }

    /// A command that will run inside the namespace.
    pub fn command(&self, program: &str) -> Result<Command> {
        let mut command = Command::new(program);
        self.enter(&mut command)?;
        Ok(command)
    }

    /// Runs `work` in a thread inside the namespace and returns its result.
    ///
    /// # Errors
    /// The namespace cannot be entered, or `work` fails.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> std::io::Result<T> {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)?;
                    work()
                })
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")))
        })
    }

    /// Moves the calling thread into the namespace: the sockets that it opens from now on are
    /// there.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn enter_thread(&self) -> std::io::Result<()> {
        Ok(setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)?)
    }

    /// Runs a batch of `ip` commands inside the namespace.
    ///
    /// # Errors
    /// The first that fails, with what `ip` said about it.
    pub fn ip_batch(&self, lines: &[String]) -> Result<()> {
        let mut command = self.command("ip")?;
        run_ip_batch(&mut command, lines, &format!("ip (in {})", self.name))
    }

    /// Sets kernel parameters below `net.`, such as `ipv4.ip_forward`.
    ///
    /// # Errors
    /// The first that fails, by name.
    pub fn set_sysctl<'a>(
        &self,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<()> {
        for (key, value) in values {
            // `default` and `all` are never part of a value's dots, and interface names have none.
            let file = PathBuf::from(format!("/proc/sys/net/{}", key.replace('.', "/")));
            self.run(|| std::fs::write(&file, value))
                .map_err(Error::system(format!("setting net.{key} = {value} in {}", self.name)))?;
        }
        Ok(())
    }

    /// PIDs of every process inside the namespace.
    pub fn processes(&self) -> Vec<i32> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| {
                std::fs::metadata(format!("/proc/{pid}/ns/net"))
                    .is_ok_and(|m| m.ino() == self.inode)
            })
            .collect()
    }
}

/// Runs `ip -batch` in this namespace or in the one that `command` enters.
pub(crate) fn run_ip_batch(command: &mut Command, lines: &[String], label: &str) -> Result<()> {
    use std::io::Write;
    if lines.is_empty() {
        return Ok(());
    }
    let failed = |reason: String| Error::Command { command: label.to_string(), reason };
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.join("\n").as_bytes()).map_err(|e| failed(e.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    // `ip` reports "Command failed -:LINE".
    let culprit = said
        .rsplit("-:")
        .next()
        .and_then(|n| n.trim().parse::<usize>().ok())
        .and_then(|n| lines.get(n.wrapping_sub(1)));
    Err(failed(match culprit {
        Some(line) => format!("\"{line}\": {said}"),
        None => said,
    }))
}

/// Removes a named namespace; its interfaces go with it once no process is left in it.
///
/// # Errors
/// It exists and cannot be removed.
pub fn remove(name: &str) -> Result<()> {
    let path = path(name);
    if !path.exists() {
        return Ok(());
    }
    // Not mounted if the maker died between making the file and mounting on it.
    let _ = nix::mount::umount2(&path, nix::mount::MntFlags::MNT_DETACH);
    std::fs::remove_file(&path).map_err(Error::io(&path))
}
