//! The write-ahead log's files under power cuts and damage: what is read is what was written up to
//! some batch, at least up to the last durable one if nothing is damaged; damage in the middle is
//! named with file and offset. The seed is printed; `WAL_SEED=n` replays it.

mod common;

use common::*;
use state_store::core::{Input, Node, Outputs, Records, Settings, SplitMix64};
use std::path::{Path, PathBuf};
use wal::frame::FileHeader;
use wal::{Directory, WalError, Writer};
use wire::{Member, ShardView, Views};

type Log = wal::Log<Records>;

const REQUESTS: u64 = 60;
const DAMAGES: usize = 400;

fn seed() -> SplitMix64 {
    let given = std::env::var("WAL_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given
        .unwrap_or_else(|| std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    println!("WAL_SEED={seed}");
    SplitMix64::new(seed)
}

/// A server that is a whole chain, with its log.
struct Logged {
    node: Node,
    writer: Writer,
    settings: Settings,
    now: u64,
    /// What was durable after each batch: the last entry and the records' digest.
    states: Vec<(u64, u64)>,
    replies: usize,
}

fn read_of(directory: &Directory, settings: &Settings) -> Result<Option<Log>, WalError> {
    directory.read(settings.digest(), settings.nothing_restored())
}

fn digest(log: &Log) -> (u64, u64) {
    log.restored
        .replicas()
        .next()
        .map_or((0, 0), |(_, replica)| (replica.index, replica.state().shared_digest()))
}

#[test]
fn a_log_is_not_read_by_a_server_with_another_address() {
    let folder = tempfile::tempdir().unwrap();
    drop(Logged::start(folder.path()));
    let directory = Directory::open(folder.path()).unwrap();
    let log = read_of(&directory, &settings()).unwrap().unwrap();
    directory.is_of(&log, server_address(0)).unwrap();
    let error = directory.is_of(&log, server_address(1)).unwrap_err().to_string();
    assert!(error.contains(&format!("write `listen = \"{}\"`", server_address(0))), "{error}");
}

impl Logged {
    fn start(path: &Path) -> Logged {
        let settings = settings();
        let directory = Directory::open(path).unwrap();
        let log = read_of(&directory, &settings).unwrap();
        let (mut out, mut files, mut first_batch) = (Outputs::new(), Vec::new(), 1);
        let mut node =
            Node::new(settings.clone(), start(7, 0), keys(), server_address(0), Vec::new());
        let restored = log.map(|log| {
            directory.settle_end(&log).unwrap();
            assert_eq!(log.incarnation, 7);
            (files, first_batch) = (log.files, log.next_batch);
            log.restored
        });
        let is_new = restored.is_none();
        node.keep_journal(0, restored, &mut out);
        let header = FileHeader {
            incarnation: 7,
            config_digest: settings.digest(),
            shards: settings.shards,
            first_batch,
        };
        let writer = Writer::start(directory, header, files).unwrap();
        let mut logged =
            Logged { node, writer, settings, now: 0, states: vec![(0, 0)], replies: 0 };
        if is_new {
            let members = vec![Member { address: server_address(0), incarnation: 7 }];
            let views = Views {
                version: 1,
                shards: vec![ShardView {
                    number: 1,
                    founded: 1,
                    members,
                    joining: None,
                    draining: false,
                }],
            };
            logged.node.adopt(0, &views, &mut out);
        }
        logged.finish(out, false);
        logged
    }

    /// Ends a batch: durable, then answered.
    fn finish(&mut self, mut out: Outputs, rotate: bool) {
        self.node.flush(self.now, &mut out);
        let ticket = out.ticket;
        let before = out.len();
        self.writer.append(ticket, &out.journal, rotate);
        self.writer.wait(ticket);
        assert!(self.writer.error().is_none() && self.writer.done() == ticket);
        out.journal.clear();
        self.node.durable(ticket, &mut out);
        self.node.flush(self.now, &mut out);
        assert!(out.journal.is_empty());
        self.replies += out.len() - before;
        let replica = self.node.replica(0).unwrap();
        let index = replica.status(self.now).index;
        self.states.push((index, replica.records().shared_digest()));
    }

    fn request(&mut self, n: u64) {
        self.now += 40 * MS;
        let one = owner(1, 1);
        let key = (n as u32 % 8).to_be_bytes();
        let (nat, value) =
            ([10, 0, 0, n as u8 % 3, 8, 8, 8, 8, 7, 0xd0, 0, 53, 17], n.to_be_bytes());
        let record = self.node.replica(0).unwrap().records();
        let epoch = record.find(0, &key).map_or(0, |slot| record.get(slot).epoch);
        let message = match n % 4 {
            _ if epoch == 0 => lease(COUNTER, one, &key),
            0 => lease(NAT, one, &nat),
            1 => heartbeat(one),
            _ => update(one, &key, epoch, n, &value),
        };
        let message = state_protocol::Message { request_ns: self.now, ..message };
        let bytes = signed(&message, switch_address(1), server_address(0));
        let mut out = Outputs::new();
        self.node.handle(
            self.now,
            Input::Datagram { from: switch_address(1), bytes: &bytes },
            &mut out,
        );
        self.node.handle(self.now, Input::Timer, &mut out);
        self.finish(out, false);
    }

    fn checkpoint(&mut self) {
        let mut out = Outputs::new();
        self.node.checkpoint_views(&mut out);
        self.node.checkpoint(0);
        self.finish(out, true);
        self.writer.remove_old();
    }
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "wal"));
    files.sort();
    files
}

fn read(path: &Path) -> Result<Option<Log>, WalError> {
    read_of(&Directory::open(path).unwrap(), &settings())
}

/// Serves until there is something to remember.
fn some_history(path: &Path) -> Logged {
    let mut logged = Logged::start(path);
    logged.now = 2 * SECOND;
    (0..REQUESTS).for_each(|n| logged.request(n));
    assert!(logged.replies > 40, "only {} answers", logged.replies);
    logged
}

#[test]
fn a_server_goes_on_where_its_log_ends() {
    let directory = tempfile::tempdir().unwrap();
    for life in 1..=3 {
        let mut logged = Logged::start(directory.path());
        logged.now = 2 * SECOND * life;
        let at_start = logged.states.last().copied();
        (0..REQUESTS).for_each(|n| logged.request(life * 1_000 + n));
        if life == 2 {
            logged.checkpoint();
            (0..REQUESTS).for_each(|n| logged.request(life * 1_000 + REQUESTS + n));
        }
        let last = logged.states.last().copied();
        assert_ne!(at_start, last);
        drop(logged);
        assert_eq!(read(directory.path()).unwrap().map(|log| digest(&log)), last);
        // What was being written when power was lost.
        let newest = files(directory.path()).pop().unwrap();
        let mut bytes = std::fs::read(&newest).unwrap();
        bytes.extend_from_slice(b"SPWB\0\0\x10\0 half a batch");
        std::fs::write(&newest, bytes).unwrap();
        let log = read(directory.path()).unwrap().unwrap();
        assert_eq!((Some(digest(&log)), log.torn.map(|(_, bytes)| bytes)), (last, Some(21)));
    }
}

#[test]
fn a_checkpoint_takes_the_place_of_what_was_before() {
    let directory = tempfile::tempdir().unwrap();
    let mut logged = some_history(directory.path());
    let before: u64 =
        files(directory.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    for n in 0..20 {
        logged.checkpoint();
        logged.request(REQUESTS + n);
    }
    let last = logged.states.last().copied();
    drop(logged);
    let left = files(directory.path());
    let after: u64 = left.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(left.len() <= 2 && after < before, "{} files, {after} bytes of {before}", left.len());
    assert_eq!(read(directory.path()).unwrap().map(|log| digest(&log)), last);
}

#[test]
fn a_torn_end_is_cut_off_and_damage_is_named() {
    let mut rng = seed();
    let directory = tempfile::tempdir().unwrap();
    let logged = some_history(directory.path());
    let states = logged.states.clone();
    let settings = logged.settings.clone();
    drop(logged);
    let file = files(directory.path()).pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let (mut torn, mut named) = (0, 0);
    for _ in 0..DAMAGES {
        let mut bytes = whole.clone();
        let at = rng.draw() as usize % bytes.len();
        let cut = rng.draw().is_multiple_of(2);
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << (rng.draw() % 8);
        }
        std::fs::write(&file, &bytes).unwrap();
        match read_of(&Directory::open(directory.path()).unwrap(), &settings) {
            Ok(log) => {
                let state = log.as_ref().map_or((0, 0), digest);
                assert!(states.contains(&state), "byte {at}: a state that never was");
                let log = log.filter(|log| log.torn.is_some());
                // A flipped bit in the last batch looks like a torn end; one before that does not.
                let last_batch = || states[states.len() - 2..].contains(&state);
                assert!(
                    cut || last_batch(),
                    "byte {at} of {}: damage was taken for a torn end",
                    whole.len()
                );
                torn += usize::from(log.is_some());
            }
            Err(WalError::Corrupt { path, offset, .. }) => {
                assert!(!cut, "byte {at}: a torn end was taken for damage");
                assert!(path == file && offset <= at, "byte {at}: damage found at {offset}");
                named += 1;
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    assert!(torn > DAMAGES / 4 && named > DAMAGES / 4, "{torn} torn, {named} named");
    // A file is missing.
    std::fs::write(&file, &whole).unwrap();
    std::fs::rename(&file, file.with_file_name("00000000000000ff.wal")).unwrap();
    assert!(read(directory.path()).unwrap().is_some(), "the name orders files, no more");
}

#[test]
fn a_log_is_one_servers_and_one_configurations() {
    let directory = tempfile::tempdir().unwrap();
    let logged = some_history(directory.path());
    assert!(matches!(Directory::open(directory.path()), Err(WalError::InUse(_))));
    drop(logged);
    let other = Settings { lease_us: LEASE_US * 2, ..settings() };
    let read = read_of(&Directory::open(directory.path()).unwrap(), &other);
    assert!(matches!(read, Err(WalError::OtherConfiguration(_))));
}

/// A file system that has little room; it goes with the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// None: mounting takes root.
    fn mount() -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(folder.path());
        mount.status().is_ok_and(|status| status.success()).then(|| SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_told_with_its_remedy() {
    let Some(disk) = SmallDisk::mount() else { return println!("SKIPPED: mounting takes root") };
    let settings = settings();
    let header = FileHeader {
        incarnation: 7,
        config_digest: settings.digest(),
        shards: settings.shards,
        first_batch: 1,
    };
    let writer =
        Writer::start(Directory::open(disk.0.path()).unwrap(), header, Vec::new()).unwrap();
    // Some of these fit, not all.
    for ticket in 1..=40 {
        writer.append(ticket, &[0; 4096], false);
        writer.wait(ticket);
    }
    let error = writer.error().expect("64 KiB are less than 160").to_string();
    assert!(writer.done() < 16, "{}", writer.done());
    assert!(error.contains("No space left on device") && error.contains("make room"), "{error}");
}
