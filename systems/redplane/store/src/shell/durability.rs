//! The write-ahead log of a running server: recovery at its start, the order of writing and
//! sending, checkpoints.

use super::{RunError, now_ns};
use crate::config::WalSettings;
use crate::core::{Node, Outputs, Records, Settings};
use std::net::SocketAddrV4;
use std::os::fd::RawFd;
use wal::frame::FileHeader;
use wal::{Directory, Log, Stats, Writer};

/// A log that was read, and is not written to yet.
pub struct OpenLog {
    directory: Directory,
    log: Option<Log<Records>>,
    checkpoint_bytes: u64,
}

impl OpenLog {
    /// Opens the log of the server at this address, and reads it. A torn end is cut off.
    pub fn open(
        wal: &WalSettings,
        settings: &Settings,
        listen: SocketAddrV4,
    ) -> Result<OpenLog, RunError> {
        let directory = Directory::open(&wal.directory)?;
        let start_ns = now_ns();
        let log = directory.read(settings.digest(), settings.nothing_restored())?;
        if let Some(log) = &log {
            directory.is_of(log, listen)?;
            directory.settle_end(log)?;
            let torn_bytes = log.torn.map_or(0, |(_, bytes)| bytes);
            let (files, batches, bytes) = (log.files.len(), log.batches, log.bytes);
            let ms = (now_ns() - start_ns) / 1_000_000;
            tracing::info!(directory = %wal.directory.display(), files, batches, bytes, torn_bytes, ms, "log read");
        }
        Ok(OpenLog { directory, log, checkpoint_bytes: wal.checkpoint_bytes })
    }

    /// Who wrote it, if anybody did.
    pub fn incarnation(&self) -> Option<u64> {
        self.log.as_ref().map(|log| log.incarnation)
    }
}

#[derive(Clone, Copy)]
enum Checkpoint {
    None,
    /// The next shard to describe.
    Describing(u16),
    /// The shards before this one are described, and that is to be given to the writer.
    Described(u16),
    /// It goes on with this shard when this ticket is durable: what is described does not pile up
    /// in memory before a slow disk.
    Waiting(u16, u64),
}

/// A log that is written to.
pub struct Durability {
    writer: Writer,
    shards: u16,
    checkpoint: Checkpoint,
    checkpoint_bytes: u64,
    /// Bytes that were written when the last checkpoint began and was complete.
    began_at: u64,
    written: u64,
    next_at: u64,
}

impl Durability {
    /// The server goes on as the log says; the log begins anew with that.
    pub fn start(
        open: OpenLog,
        settings: &Settings,
        server: &mut Node,
        now_ns: u64,
        out: &mut Outputs,
    ) -> Result<Durability, RunError> {
        let OpenLog { directory, log, checkpoint_bytes } = open;
        let (next_batch, files, restored) = match log {
            Some(log) => (log.next_batch, log.files, Some(log.restored)),
            None => (1, Vec::new(), None),
        };
        let header = FileHeader {
            incarnation: server.me().incarnation,
            config_digest: settings.digest(),
            shards: settings.shards,
            first_batch: next_batch,
        };
        let checkpoint =
            if restored.is_some() { Checkpoint::Describing(0) } else { Checkpoint::None };
        server.keep_journal(now_ns, restored, out);
        let writer = Writer::start(directory, header, files)?;
        Ok(Durability {
            writer,
            shards: settings.shards,
            checkpoint,
            checkpoint_bytes,
            began_at: 0,
            written: 0,
            next_at: checkpoint_bytes,
        })
    }

    /// Ends a batch of inputs. What `out` has afterwards may be sent.
    pub fn turn(
        &mut self,
        now_ns: u64,
        server: &mut Node,
        out: &mut Outputs,
    ) -> Result<(), RunError> {
        self.writer.quiet();
        if let Some(error) = self.writer.error() {
            return Err(error.into());
        }
        let done = self.writer.done();
        server.durable(done, out);
        let rotate = self.advance_checkpoint(done, server, out);
        server.flush(now_ns, out);
        if out.journal.is_empty() {
            return Ok(());
        }
        self.written += out.journal.len() as u64;
        self.writer.append(out.ticket, &out.journal, rotate);
        out.journal.clear();
        if let Checkpoint::Described(shard) = self.checkpoint {
            self.checkpoint = Checkpoint::Waiting(shard, out.ticket);
        }
        if std::mem::take(&mut out.barrier) {
            let ticket = out.ticket;
            self.writer.wait(ticket);
            return self.turn(now_ns, server, out);
        }
        Ok(())
    }

    /// Does the next step of a checkpoint: one shard, so that requests do not wait for all. Whether
    /// a new file is to begin.
    fn advance_checkpoint(&mut self, done: u64, server: &mut Node, out: &mut Outputs) -> bool {
        match self.checkpoint {
            Checkpoint::None if self.written >= self.next_at => {
                (self.checkpoint, self.began_at) = (Checkpoint::Describing(0), self.written);
                server.checkpoint_views(out);
                true
            }
            Checkpoint::Describing(shard) => {
                server.checkpoint(shard);
                self.checkpoint = Checkpoint::Described(shard + 1);
                // Something is written in any case, so that each step has a ticket.
                server.checkpoint_views(out);
                false
            }
            Checkpoint::Waiting(shard, ticket) if ticket <= done && shard < self.shards => {
                self.checkpoint = Checkpoint::Describing(shard);
                false
            }
            Checkpoint::Waiting(_, ticket) if ticket <= done => {
                self.writer.remove_old();
                // A large state is described again when at least twice as much was written since.
                let described = self.written - self.began_at;
                self.next_at = self.written + self.checkpoint_bytes.max(2 * described);
                self.checkpoint = Checkpoint::None;
                false
            }
            _ => false,
        }
    }

    /// Whether there is more to describe, now: what waits for the disk is woken by the descriptor.
    pub fn is_checkpointing(&self) -> bool {
        matches!(self.checkpoint, Checkpoint::Describing(_))
    }

    /// Readable when something became durable.
    pub fn descriptor(&self) -> RawFd {
        self.writer.descriptor()
    }

    /// What the log has done.
    pub fn stats(&self) -> &Stats {
        self.writer.stats()
    }
}
