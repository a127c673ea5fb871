//! Named network namespaces, below `/run/netns`.

use crate::{BatchError, Error, batch, on_thread, unshare_thread};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

type Result<T> = std::result::Result<T, Error>;

/// Where `ip netns` keeps its namespaces; ours are there too, so that `ip netns` lists them.
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
        std::fs::create_dir_all(NETNS_DIR).map_err(Error::file(NETNS_DIR))?;
        File::options()
            .write(true)
            .create_new(true)
            .open(&mount_point)
            .map_err(Error::file(&mount_point))?;
        let made = on_thread(|| {
            unshare_thread()?;
            nix::mount::mount(
                Some("/proc/thread-self/ns/net"),
                &mount_point,
                None::<&str>,
                nix::mount::MsFlags::MS_BIND,
                None::<&str>,
            )
            .map_err(|e| Error::system(format!("keeping network namespace {name}"))(e.into()))
        });
        if let Err(error) = made {
            // Nothing is mounted there: only the empty file is in the way of the next attempt.
            let _ = std::fs::remove_file(&mount_point);
            return Err(error);
        }
        Self::open(name)
    }

    /// Opens an existing namespace.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn open(name: &str) -> Result<Self> {
        let path = path(name);
        let file = File::open(&path).map_err(Error::file(&path))?;
        let inode = file.metadata().map_err(Error::file(&path))?.ino();
        Ok(Self { name: name.to_string(), file, inode })
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes `command` run inside the namespace. (Starting it forks this process, which takes
    /// milliseconds if it is large: see [`Netns::output`].)
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
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let mut command = Command::new(program);
        self.enter(&mut command)?;
        Ok(command)
    }

    /// Runs a command inside the namespace to its end. It is started from a thread that is there:
    /// so this process, whose other threads may be at work, is not forked.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the command cannot be started.
    pub fn output(&self, command: &mut Command) -> std::io::Result<Output> {
        self.run(|| command.output())
    }

    /// Runs `work` in a thread inside the namespace and returns its result.
    ///
    /// # Errors
    /// The namespace cannot be entered, or `work` fails.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> std::io::Result<T> {
        self.inside(work)?
    }

    /// Calls `work` in a thread inside the namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
        on_thread(|| {
            self.enter_thread()?;
            Ok(work())
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
    pub fn ip_batch<T: AsRef<str>>(&self, lines: &[T]) -> Result<()> {
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        let done = self
            .inside(|| batch::run(&mut Command::new("ip"), &lines))
            .map_err(Error::system(format!("entering network namespace {}", self.name)))?;
        done.map_err(|error: BatchError| Error::Command {
            command: format!("ip (in {})", self.name),
            reason: error.to_string(),
        })
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
    std::fs::remove_file(&path).map_err(Error::file(&path))
}

/// A named namespace that is removed, with its links, when it goes out of scope.
#[derive(Debug)]
pub struct Owned(Netns);

impl Owned {
    /// Makes a namespace.
    ///
    /// # Errors
    /// As [`Netns::create`].
    pub fn create(name: &str) -> Result<Owned> {
        Netns::create(name).map(Owned)
    }
}

impl std::ops::Deref for Owned {
    type Target = Netns;

    fn deref(&self) -> &Netns {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0.name) {
            eprintln!("removing network namespace {}: {error}", self.0.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skipped without root, as all tests that make namespaces.
    fn owned(role: &str) -> Option<Owned> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: making network namespaces needs root");
            return None;
        }
        Some(Owned::create(&format!("sp-netns-{}-{role}", std::process::id())).unwrap())
    }

    #[test]
    fn what_runs_inside_is_inside_and_ends_with_its_owner() {
        let Some(space) = owned("a") else { return };
        space.ip_batch(&["link set lo up", "link add here type veth peer name there"]).unwrap();
        let index = || Ok(nix::net::if_::if_nametoindex("here")?);
        assert!(space.run(index).is_ok() && index().is_err(), "only inside");
        space.set_sysctl([("ipv4.ip_forward", "1")]).unwrap();
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward");
        assert_eq!(space.run(read).unwrap(), "1\n");
        let mut sleep = space.command("sleep").unwrap().arg("60").spawn().unwrap();
        assert_eq!(space.processes(), [sleep.id() as i32]);
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        let error = space.ip_batch(&["link set lo up", "link set gone up"]).unwrap_err();
        assert!(error.to_string().contains("`ip link set gone up`"), "{error}");
        let name = space.name().to_owned();
        assert!(Netns::create(&name).is_err(), "it exists");
        drop(space);
        assert!(Netns::open(&name).is_err() && !path(&name).exists());
    }

    #[test]
    fn a_thread_has_its_own_and_a_panic_comes_through() {
        let Some(_space) = owned("b") else { return };
        let index = || nix::net::if_::if_nametoindex("mine");
        let made = crate::inside_new(|| {
            crate::forward().unwrap();
            crate::ip_batch(&["link add mine type veth peer name other"]).unwrap();
            index()
        });
        assert!(made.unwrap().is_ok() && index().is_err());
        let panic = std::panic::catch_unwind(|| crate::inside_new(|| panic!("on purpose")));
        assert!(panic.is_err());
    }
}
