//! Load: each key has one writer, which writes growing numbers, and one reader.

use crate::cluster::{Cluster, key_of};
use netchain_client::{Client, Failed, Key, Outcome};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(2);
/// Groups of each role, or in all.
const GROUPS_OF_A_ROLE: usize = 2;

/// What a key's writer has seen.
#[derive(Default)]
struct Written {
    /// Acknowledged writes: when, version, number.
    done: Vec<(Instant, u64, u64)>,
    /// The last number that was tried.
    tried: u64,
    unknown: u64,
    failed: Vec<String>,
}

struct Writer {
    key: Key,
    /// The place of the switch that will die, in its chain.
    place: Option<usize>,
    written: Arc<Mutex<Written>>,
    thread: JoinHandle<()>,
}

/// What a key's reader has seen.
#[derive(Default)]
struct Read {
    reads: u64,
    failed: Vec<String>,
}

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    writers: Vec<Writer>,
    readers: Vec<JoinHandle<Read>>,
}

/// What clients have seen.
pub struct Ended {
    keys: Vec<(Key, Written)>,
    reads: Vec<Read>,
}

fn number(value: Option<&[u8]>) -> u64 {
    let first = value.and_then(|value| value.first_chunk());
    first.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn said(outcome: Result<Outcome, Failed>) -> String {
    match outcome {
        Ok(outcome) => format!("{outcome:?}"),
        Err(error) => error.to_string(),
    }
}

fn write(client: &mut Client, key: Key, written: &Mutex<Written>) {
    let tried = {
        let mut written = written.lock().expect("no panic");
        written.tried += 1;
        written.tried
    };
    let outcome = client.put(&key, &tried.to_be_bytes());
    let mut written = written.lock().expect("no panic");
    match outcome {
        Ok(Outcome::Done(done)) => {
            // (None: so many writes came after it that nobody knows; there is no other writer.)
            let version = done.own.unwrap_or(done.now.version);
            let last = written.done.last().map_or(0, |(_, version, _)| *version);
            if version <= last {
                written.failed.push(format!("version {version} after {last}"));
            }
            written.done.push((Instant::now(), version, tried));
        }
        Ok(Outcome::Unknown) => written.unknown += 1,
        other => written.failed.push(said(other)),
    }
}

fn read(client: &mut Client, key: Key, newest: &mut (u64, u64), seen: &mut Read) {
    match client.get(&key) {
        Ok(Outcome::Done(done)) => {
            let (version, number) = (done.now.version, number(done.now.value.as_deref()));
            if version < newest.0 || number < newest.1 {
                let what = format!("read {version} ({number}) after {} ({})", newest.0, newest.1);
                seen.failed.push(what);
            }
            *newest = (version, number);
            seen.reads += 1;
        }
        Ok(Outcome::Unknown) => {}
        other => seen.failed.push(said(other)),
    }
}

impl Load {
    /// `place`: for a group, the place in its chain of the switch that will die.
    pub fn start(cluster: &Cluster, place: impl Fn(u16) -> Option<usize>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let requests = Arc::new(AtomicU64::new(0));
        let places: BTreeSet<Option<usize>> = (0..cluster.ring.groups()).map(&place).collect();
        let mut groups = vec![];
        for wanted in places {
            let of_place = (0..cluster.ring.groups()).filter(|group| place(*group) == wanted);
            groups.extend(of_place.take(GROUPS_OF_A_ROLE).map(|group| (group, wanted)));
        }
        let (mut writers, mut readers) = (vec![], vec![]);
        for (group, place) in groups {
            let key = key_of(&cluster.ring, group, 0);
            let written = Arc::<Mutex<Written>>::default();
            let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&requests));
            let (mut client, into) = (cluster.client(), Arc::clone(&written));
            let thread = std::thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    write(&mut client, key, &into);
                    counted.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                }
            });
            writers.push(Writer { key, place, written, thread });
            let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&requests));
            let mut client = cluster.client();
            readers.push(std::thread::spawn(move || {
                let (mut newest, mut seen) = ((0, 0), Read::default());
                while !stopped.load(Ordering::Relaxed) {
                    read(&mut client, key, &mut newest, &mut seen);
                    counted.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(PAUSE);
                }
                seen
            }));
        }
        Load { stop, requests, writers, readers }
    }

    /// Requests that are over.
    pub fn progress(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Of each key: the place of who died, and its first write that was acknowledged after then
    /// and began after what had been acknowledged before.
    pub fn first_writes_after(&self, then: Instant) -> Vec<(Option<usize>, Option<Instant>)> {
        let first = |writer: &Writer| {
            let written = writer.written.lock().expect("no panic");
            let at = written.done.iter().map(|(at, ..)| *at).find(|at| *at > then + PAUSE);
            (writer.place, at)
        };
        self.writers.iter().map(first).collect()
    }

    pub fn end(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        let reads = self.readers.into_iter().map(|it| it.join().expect("a reader")).collect();
        let keys = self.writers.into_iter().map(|writer| {
            writer.thread.join().expect("a writer");
            let written = std::mem::take(&mut *writer.written.lock().expect("no panic"));
            (writer.key, written)
        });
        Ended { keys: keys.collect(), reads }
    }
}

impl Ended {
    /// Requests that were refused, or got no answer in time.
    pub fn failed(&self) -> u64 {
        let unknown: u64 = self.keys.iter().map(|(_, it)| it.unknown).sum();
        let failed: usize = self.keys.iter().map(|(_, it)| it.failed.len()).sum::<usize>()
            + self.reads.iter().map(|it| it.failed.len()).sum::<usize>();
        unknown + failed as u64
    }

    pub fn summary(&self) -> String {
        let writes: usize = self.keys.iter().map(|(_, it)| it.done.len()).sum();
        let unknown: u64 = self.keys.iter().map(|(_, it)| it.unknown).sum();
        let reads: u64 = self.reads.iter().map(|it| it.reads).sum();
        format!("{writes} writes and {reads} reads acknowledged, {unknown} writes unknown")
    }

    /// No acknowledged write is lost, and no version went back.
    pub fn check(&self, cluster: &Cluster) {
        let mut client = cluster.client();
        for (key, written) in &self.keys {
            assert_eq!(written.failed, Vec::<String>::new(), "{key:?}");
            let (_, version, acknowledged) = *written.done.last().expect("writes");
            let now = client.get(key).expect("a read").done().expect("a value").now;
            let found = number(now.value.as_deref());
            assert!(
                now.version >= version && (acknowledged..=written.tried).contains(&found),
                "{key:?}: version {version} with {acknowledged} was acknowledged; there is version \
                 {} with {found}",
                now.version
            );
        }
        for read in &self.reads {
            assert_eq!(read.failed, Vec::<String>::new());
            assert!(read.reads > 0, "a reader read nothing");
        }
    }
}
