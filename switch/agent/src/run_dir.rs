//! `/run/stateplane/NAME`: where a switch keeps what outlives its agent.
//!
//! `bpf/` is a bpffs of its own: `gN/` holds generation N's programs and maps, `links/port_N` the
//! XDP links. `state.json` says which generation runs; `views.json` is what the controllers said
//! last, without a `state_directory`; `control.sock` is the control socket; `lock` is held by the
//! agent.

use crate::client;
use crate::error::{Error, Result};
use dataplane::{ActionSpec, EntrySpec};
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statfs::FsType;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Parent of all run directories.
const ROOT: &str = "/run/stateplane";
/// How long an agent that no longer answers may hold its lock: it is ending, or just starting.
const ENDING: Duration = Duration::from_secs(2);
/// `statfs` type of a bpffs.
const BPF_FS: FsType = FsType(0xcafe_4a11);

/// What a later agent must know of the generation that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Directory `bpf/gN`.
    pub generation: u32,
    /// Of object file, manifest and settings.
    pub hash: String,
    /// Drawn when the maps were made; in the state protocol it tells this state from an earlier,
    /// lost one.
    pub incarnation: u32,
    /// Controllers have answered this life for a while: no other switch takes its number.
    #[serde(default)]
    pub accepted: bool,
    /// `(P4 port, interface index)` that the maps have.
    pub ports: Vec<(u32, u32)>,
    /// Entries that came from the configuration.
    pub entries: Vec<(String, EntrySpec)>,
    /// Default actions that came from the configuration.
    pub defaults: Vec<(String, ActionSpec)>,
}

/// A switch's run directory.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
    name: String,
}

/// The agent's hold on its run directory; the kernel ends it when the process dies.
pub struct Hold(#[allow(dead_code, reason = "held for its lock")] Flock<File>);

/// May a switch be called so? It becomes a directory's name.
pub fn valid_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

impl RunDirectory {
    /// The run directory of the switch `name`; it need not exist.
    pub fn of(name: &str) -> Result<RunDirectory> {
        if !valid_name(name) {
            return Err(Error::Other(format!(
                "{name:?} is not a switch's name (letters, digits, - and _)"
            )));
        }
        Ok(RunDirectory { path: Path::new(ROOT).join(name), name: name.to_owned() })
    }

    /// The switch's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    pub(crate) fn bpffs(&self) -> PathBuf {
        self.path.join("bpf")
    }

    pub(crate) fn links(&self) -> PathBuf {
        self.bpffs().join("links")
    }

    pub(crate) fn generation(&self, number: u32) -> PathBuf {
        self.bpffs().join(format!("g{number}"))
    }

    /// The manifest of a generation, which may be another than the one beside the object by now.
    pub(crate) fn manifest(&self, number: u32) -> PathBuf {
        self.path.join(format!("manifest-{number}.json"))
    }

    /// The manifest of the program that runs. The one beside the object may be newer.
    ///
    /// # Errors
    /// The switch was not started, or this user may not read its files.
    pub fn running_manifest(&self) -> Result<manifest::Manifest> {
        let path = self.state_path();
        let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::Other(format!(
                "switch {} has no program; start it with `stateplane switch --config switch.toml`",
                self.name
            )),
            _ => Error::path("read", &path, error),
        })?;
        let state: State = serde_json::from_str(&text).map_err(|error| {
            Error::Other(format!("{}: {error}; start the switch again", path.display()))
        })?;
        Ok(manifest::Manifest::read(&self.manifest(state.generation))?)
    }

    /// The controllers' last views without a `state_directory` (`kept_views.rs`); stays when an
    /// agent starts with `--fresh`.
    pub(crate) fn views(&self) -> PathBuf {
        self.path.join("views.json")
    }

    fn state_path(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// Makes the directory, takes the lock and mounts the bpffs.
    pub(crate) fn open(&self) -> Result<Hold> {
        let bpffs = self.bpffs();
        std::fs::create_dir_all(&bpffs).map_err(|error| Error::path("make", &bpffs, error))?;
        let hold = self.lock()?;
        self.mount()?;
        let links = self.links();
        std::fs::create_dir_all(&links).map_err(|error| Error::path("make", &links, error))?;
        Ok(hold)
    }

    /// The lock that only one agent has. A holder that answers on its socket keeps it. A holder
    /// that does not answer may be ending, so this waits: the kernel closes the files of a killed
    /// process one after the other, and may close the socket before the lock.
    pub(crate) fn lock(&self) -> Result<Hold> {
        let path = self.path.join("lock");
        let mut file = File::create(&path).map_err(|error| Error::path("open", &path, error))?;
        let until = Instant::now() + ENDING;
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(Hold(lock)),
                Err((file, _)) => file,
            };
            let answers = match client::connected(&self.socket()) {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            };
            if answers || Instant::now() > until {
                return Err(Error::Other(format!(
                    "switch {} is running already (its agent holds {}); stop it with `stateplane switch stop {}`",
                    self.name,
                    path.display(),
                    self.name
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether an agent has it, also one that no longer answers because it is ending.
    pub fn is_held(&self) -> bool {
        let Ok(file) = File::open(self.path.join("lock")) else { return false };
        Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
    }

    /// A bpffs of its own: `/sys/fs/bpf` is another one after `ip netns exec`, which mounts a new
    /// `/sys`.
    fn mount(&self) -> Result<()> {
        let path = self.bpffs();
        if is_bpffs(&path) {
            return Ok(());
        }
        mount(Some("bpf"), &path, Some("bpf"), MsFlags::empty(), None::<&str>).map_err(|errno| {
            if errno == nix::errno::Errno::EPERM {
                return Error::Other(format!(
                    "mount a bpffs on {}: not permitted; run the switch as root",
                    path.display()
                ));
            }
            Error::path("mount a bpffs on", &path, errno.into())
        })
    }

    /// What the last agent left, if its pins are still there. What cannot be read is as good as
    /// nothing, and the log says so.
    pub(crate) fn state(&self) -> Option<State> {
        let path = self.state_path();
        let unusable = |why: String| {
            tracing::warn!(
                "{}: {why}: the program that runs and its state are discarded, and the switch begins anew",
                path.display()
            );
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                unusable(error.to_string());
                return None;
            }
        };
        let state: State =
            serde_json::from_str(&text).map_err(|error| unusable(error.to_string())).ok()?;
        if !self.generation(state.generation).join("programs/sp_main").exists() {
            unusable(format!("the pins of generation {} are not there", state.generation));
            return None;
        }
        Some(state)
    }

    /// Writes the state, all or nothing.
    pub(crate) fn write_state(&self, state: &State) -> Result<()> {
        let text =
            serde_json::to_string_pretty(state).map_err(|error| Error::Other(error.to_string()))?;
        let (path, fresh) = (self.state_path(), self.path.join("state.json.new"));
        std::fs::write(&fresh, text).map_err(|error| Error::path("write", &fresh, error))?;
        std::fs::rename(&fresh, &path).map_err(|error| Error::path("write", &path, error))
    }

    /// Unpins a generation.
    pub(crate) fn remove_generation(&self, number: u32) -> Result<()> {
        let path = self.generation(number);
        remove(&path)?;
        let _ = std::fs::remove_file(self.manifest(number));
        Ok(())
    }

    /// Every generation that has pins.
    pub(crate) fn generations(&self) -> Vec<u32> {
        let names = std::fs::read_dir(self.bpffs()).into_iter().flatten().flatten();
        names
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix('g')?.parse().ok())
            .collect()
    }

    /// Port numbers that have a pinned link.
    pub(crate) fn linked_ports(&self) -> Vec<u32> {
        let names = std::fs::read_dir(self.links()).into_iter().flatten().flatten();
        names
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("port_")?.parse().ok())
            .collect()
    }

    pub(crate) fn link(&self, port: u32) -> PathBuf {
        self.links().join(format!("port_{port}"))
    }

    /// Takes the program off all ports and forgets all pins; the directory stays.
    pub(crate) fn discard(&self) -> Result<()> {
        for port in self.linked_ports() {
            self.remove_link(port)?;
        }
        crate::commit::end(self)?;
        for generation in self.generations() {
            self.remove_generation(generation)?;
        }
        remove(&self.state_path())
    }

    /// Detaches and unpins a port's link.
    pub(crate) fn remove_link(&self, port: u32) -> Result<()> {
        let path = self.link(port);
        dataplane::Link::open(&path)?.detach()?;
        std::fs::remove_file(&path).map_err(|error| Error::path("unpin", &path, error))
    }

    /// Removes the directory with everything in it; call [`RunDirectory::discard`] before.
    pub(crate) fn remove(&self) -> Result<()> {
        let bpffs = self.bpffs();
        if is_bpffs(&bpffs) {
            umount2(&bpffs, MntFlags::MNT_DETACH)
                .map_err(|error| Error::path("unmount", &bpffs, error.into()))?;
        }
        remove(&self.path)
    }
}

fn is_bpffs(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|found| found.filesystem_type() == BPF_FS)
}

/// Removes a file or directory that may be gone already.
fn remove(path: &Path) -> Result<()> {
    let result =
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::path("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Names of the switches whose agents live; one that hangs does, too ([`crate::client::ask_within`]
/// tells).
pub fn running() -> Vec<String> {
    let names = std::fs::read_dir(ROOT).into_iter().flatten().flatten();
    let mut found: Vec<String> = names
        .filter(|entry| match crate::client::connected(&entry.path().join("control.sock")) {
            Ok(_) => true,
            // No room in the queue: somebody holds the socket, and accepts nothing. Or this user
            // may not ask: the first question says so.
            Err(error) => {
                matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::PermissionDenied)
            }
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    found.sort();
    found
}

/// Names of all switches of this machine: those whose agents live ([`running`]), and those whose
/// agents ended or died without taking the program off. An agent that failed before it put the
/// program on a port leaves nothing that counts.
pub fn known() -> Vec<String> {
    let names = std::fs::read_dir(ROOT).into_iter().flatten().flatten();
    // Labs and their files are here, too; only a switch has a bpffs.
    let left = names.filter(|entry| entry.path().join("bpf").is_dir());
    let mut found: Vec<String> =
        left.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let runs = |run: RunDirectory| run.state_path().exists() || !run.linked_ports().is_empty();
    found.retain(|name| RunDirectory::of(name).is_ok_and(runs));
    found.extend(running());
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A run directory in a temporary folder, as another process sees it that holds its lock.
    fn held() -> (tempfile::TempDir, RunDirectory, Hold) {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunDirectory { path: folder.path().to_owned(), name: "s1".into() };
        let hold = run.lock().expect("nobody holds it");
        (folder, run, hold)
    }

    #[test]
    fn an_agent_that_ends_is_waited_for() {
        let (_folder, run, hold) = held();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                drop(hold);
            });
            run.lock().expect("its end was waited for");
        });
    }

    #[test]
    fn an_agent_that_answers_keeps_its_lock() {
        let (_folder, run, _hold) = held();
        let _socket = UnixListener::bind(run.socket()).expect("a socket");
        let error = run.lock().err().expect("it is held").to_string();
        assert!(error.contains("switch s1 is running already"), "{error}");
    }
}
