//! The write-ahead log: what the replicas of a server write down, in files. The README names the
//! page with the rules.
//!
//! `frame` is the bytes, `writer` the thread that writes and synchronises, and this module the
//! directory: which files there are, what they say, what is wrong with them. A checkpoint begins a
//! new file; once it is durable the files before it are removed. So the directory holds at most two
//! checkpoints and what was written between and after them.

pub mod frame;
mod writer;

pub use writer::{Stats, Writer};

use chain::{BadJournal, Restored, StateMachine};
use frame::{End, FileHeader};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use thiserror::Error;

const SUFFIX: &str = ".wal";
const LOCK: &str = "lock";
const REMEDY: &str = "look first at the chains (`stateplane status --controller IP:PORT --secrets \
                      FILE`). If this server is the only member of a shard's chain, the shard's \
                      state is in this log only: keep the log, and repair it as far as possible. \
                      If every shard of this server has another member that is up, move the \
                      directory away and start the server again: the server begins empty, and the \
                      other members send it everything (one server of a chain at a time)";

/// Why a log cannot be used.
#[derive(Debug, Error)]
pub enum WalError {
    /// The operating system refused.
    #[error("{path}: {what}: {source}")]
    System {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// No room.
    #[error(
        "{path}: {what}: {source}: make room (twice what the log's directory holds now, as a checkpoint stands beside the files that it replaces) and start the server again: it goes on with the state on the disk, \
         and its chains send it the rest"
    )]
    Full {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Another process writes this log.
    #[error("{0}: another server uses this log; give each server a directory of its own")]
    InUse(PathBuf),
    /// Something in the middle is not what was written.
    #[error(
        "{path}: byte {offset}: {problem}: the log is damaged, and the rest cannot be trusted; {REMEDY}"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: usize,
        /// What is wrong there.
        problem: String,
    },
    /// It is another server's.
    #[error(
        "{path}: this is the log of the server at {address}: write `listen = \"{address}\"` instead of {listen}; or, so that this server begins empty and is sent everything, {REMEDY}"
    )]
    OtherAddress {
        /// The log's directory.
        path: PathBuf,
        /// The address that its views name this life at.
        address: SocketAddrV4,
        /// The configured one.
        listen: SocketAddrV4,
    },
    /// It was written with other shards, or other settings that the digest covers.
    #[error(
        "{0}: the log was written with other shards, or with other settings that all servers of a chain share (lease, objects); write them as they were, or {REMEDY}"
    )]
    OtherConfiguration(PathBuf),
}

impl WalError {
    fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> WalError {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                WalError::Full { path: path.to_owned(), what, source }
            }
            _ => WalError::System { path: path.to_owned(), what, source },
        }
    }
}

/// A log's directory, locked.
pub struct Directory {
    path: PathBuf,
    /// Locked as long as this lives.
    _lock: Flock<File>,
}

/// What a log says.
pub struct Log<S> {
    /// Who wrote it, and so who goes on with it.
    pub incarnation: u64,
    /// Its state.
    pub restored: Restored<S>,
    /// The next batch's number.
    pub next_batch: u64,
    /// Batches read.
    pub batches: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Its files, in order.
    pub files: Vec<PathBuf>,
    /// The last file's end that was being written when power was lost: where it begins, and how
    /// many bytes.
    pub torn: Option<(usize, usize)>,
}

impl Directory {
    /// Opens, or makes, a log's directory, and sees that nobody else uses it.
    pub fn open(path: &Path) -> Result<Directory, WalError> {
        std::fs::create_dir_all(path)
            .map_err(WalError::system(path, "making the log's directory"))?;
        let lock = path.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&lock);
        let file = file.map_err(WalError::system(&lock, "opening"))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Directory { path: path.to_owned(), _lock: lock }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(WalError::InUse(path.to_owned())),
            Err((_, error)) => Err(WalError::system(&lock, "locking")(error.into())),
        }
    }

    /// Reads the whole log into `nothing`, in which nothing was read so far; `None`: there is no
    /// log yet. It must be of a server with this digest of its configuration. Changes nothing.
    pub fn read<S: StateMachine>(
        &self,
        config_digest: u32,
        nothing: Restored<S>,
    ) -> Result<Option<Log<S>>, WalError> {
        let mut files = Vec::new();
        let listing =
            std::fs::read_dir(&self.path).map_err(WalError::system(&self.path, "listing"))?;
        for entry in listing {
            let path = entry.map_err(WalError::system(&self.path, "listing"))?.path();
            if path.extension().is_some_and(|extension| extension == &SUFFIX[1..]) {
                files.push(path);
            }
        }
        files.sort(); // by the number of the first batch, in 16 hexadecimal digits
        let mut log = Log {
            incarnation: 0,
            restored: nothing,
            next_batch: 0,
            batches: 0,
            bytes: 0,
            files: Vec::new(),
            torn: None,
        };
        let last = files.len().saturating_sub(1);
        let mut begun = false;
        for (at, path) in files.iter().enumerate() {
            begun |= read_file(&mut log, begun, path, at == last, config_digest)?;
        }
        Ok(begun.then_some(Log { files, ..log }))
    }

    /// Whether a log is of the server with this address. The views name it by address and life: at
    /// another address it would be no member, and drop all that it has.
    pub fn is_of<S: StateMachine>(
        &self,
        log: &Log<S>,
        listen: SocketAddrV4,
    ) -> Result<(), WalError> {
        let shards = log.restored.views().shards.iter();
        let mut members = shards
            .flat_map(|view| view.members.iter().chain(view.joining.iter().map(|it| &it.member)));
        match members
            .find(|member| member.incarnation == log.incarnation && member.address != listen)
        {
            Some(member) => Err(WalError::OtherAddress {
                path: self.path.clone(),
                address: member.address,
                listen,
            }),
            None => Ok(()),
        }
    }

    /// Cuts off what was being written when power was lost, and sees that the rest is on the disk:
    /// after a crash of the process alone, what it wrote last may be in the kernel's memory only,
    /// and whoever goes on from it takes it for durable ("Durability" 2).
    pub fn settle_end<S>(&self, log: &Log<S>) -> Result<(), WalError> {
        let Some(path) = log.files.last() else { return Ok(()) };
        let file =
            File::options().write(true).open(path).map_err(WalError::system(path, "opening"))?;
        if let Some((offset, _)) = log.torn {
            file.set_len(offset as u64)
                .map_err(WalError::system(path, "cutting off its torn end"))?;
        }
        file.sync_all().map_err(WalError::system(path, "synchronising"))
    }
}

/// Reads a file behind those that were read, if any `begun` the log; whether it has a header.
fn read_file<S: StateMachine>(
    log: &mut Log<S>,
    begun: bool,
    path: &Path,
    is_last: bool,
    config_digest: u32,
) -> Result<bool, WalError> {
    let corrupt = |offset, problem: &str| WalError::Corrupt {
        path: path.to_owned(),
        offset,
        problem: problem.to_owned(),
    };
    let bytes = std::fs::read(path).map_err(WalError::system(path, "reading"))?;
    let Some(header) = FileHeader::decode(&bytes) else {
        // The last file may have been made just before power was lost: then it has no batch.
        if is_last && bytes.len() <= frame::FILE_HEADER_BYTES {
            log.torn = Some((0, bytes.len()));
            return Ok(false);
        }
        return Err(corrupt(0, "the file's header differs from the written one"));
    };
    if (header.config_digest, header.shards) != (config_digest, log.restored.shards()) {
        return Err(WalError::OtherConfiguration(path.to_owned()));
    }
    if !begun {
        (log.incarnation, log.next_batch) = (header.incarnation, header.first_batch);
    }
    if (header.incarnation, header.first_batch) != (log.incarnation, log.next_batch) {
        return Err(corrupt(0, "the file does not continue the one before it"));
    }
    let first = log.next_batch;
    let (restored, next) = (&mut log.restored, &mut log.next_batch);
    let end = frame::read_batches(&bytes, next, |offset, items| {
        restored.read(items).map_err(|problem: BadJournal| corrupt(offset, &problem.to_string()))
    })?;
    log.batches += log.next_batch - first;
    log.bytes += bytes.len() as u64;
    match end {
        End::Clean => Ok(true),
        End::Torn(offset) if is_last => {
            log.torn = Some((offset, bytes.len() - offset));
            Ok(true)
        }
        End::Torn(offset) | End::Corrupt(offset) => {
            Err(corrupt(offset, "a batch differs from the written one"))
        }
    }
}
