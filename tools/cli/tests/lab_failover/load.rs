//! Load: each key has one writer, which writes growing numbers, and one reader. All that they hear is
//! judged.

use crate::cluster::{Cluster, key_of};
use netchain_client::{Client, Failed, Key, Outcome, Request};
use netchain_sim::History;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(2);
/// Groups of each role, or in all.
const GROUPS_OF_A_ROLE: usize = 2;
/// Outcomes of requests that switches serve.
const SERVED: [&str; 2] = ["done", "refused"];

/// What a key's writer has seen.
#[derive(Default)]
struct Written {
    /// Acknowledged writes: when, version, number.
    done: Vec<(Instant, u64, u64)>,
    /// The last number that was tried.
    tried: u64,
}

/// A key's writer and its reader.
struct Pair {
    key: Key,
    /// The place of the switch that will die, in its chain.
    place: Option<usize>,
    written: Arc<Mutex<Written>>,
    /// All that they asked and heard; the key is number 0 in it.
    history: Arc<Mutex<History>>,
    threads: [JoinHandle<()>; 2],
}

/// Clients at work.
pub struct Load {
    began: Instant,
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    pairs: Vec<Pair>,
}

/// What clients have seen.
pub struct Ended {
    began: Instant,
    keys: Vec<(Key, Written, History)>,
}

fn number(value: Option<&[u8]>) -> u64 {
    let first = value.and_then(|value| value.first_chunk());
    first.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Asks, and notes it. `client`: 0 the writer, 1 the reader.
fn ask(
    client: &mut Client,
    (who, began): (usize, Instant),
    request: Request,
    history: &Mutex<History>,
) -> Option<Outcome> {
    let now = || began.elapsed().as_nanos() as u64;
    let asked = (request.operation, request.operand, request.value.as_deref());
    let number = history.lock().expect("no panic").ask(now(), who, 0, asked);
    let result = match client.ask(request) {
        Ok(outcome) => Ok(outcome),
        Err(Failed::Refused(failure)) => Err(failure),
        Err(error) => panic!("{error}"),
    };
    history.lock().expect("no panic").over(now(), number, &result);
    result.ok()
}

/// Writes the next number; now and then by the version that it knows.
fn write(client: &mut Client, began: Instant, pair: (Key, &Mutex<Written>, &Mutex<History>)) {
    let (key, written, history) = pair;
    let (tried, last) = {
        let mut written = written.lock().expect("no panic");
        written.tried += 1;
        (written.tried, written.done.last().map_or(0, |(_, version, _)| *version))
    };
    let value = tried.to_be_bytes();
    let request = match tried % 4 {
        0 => Request::compare_and_set(&key, last, &value),
        _ => Request::put(&key, &value),
    };
    if let Some(Outcome::Done(done)) = ask(client, (0, began), request, history) {
        // (None: so many writes came after it that nobody knows; there is no other writer.)
        let version = done.own.unwrap_or(done.now.version);
        written.lock().expect("no panic").done.push((Instant::now(), version, tried));
    }
}

impl Load {
    /// `place`: for a group, the place in its chain of the switch that will die. `round`: each has
    /// keys of its own.
    pub fn start(cluster: &Cluster, round: usize, place: impl Fn(u16) -> Option<usize>) -> Load {
        let (stop, requests) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let places: BTreeSet<Option<usize>> = (0..cluster.ring.groups()).map(&place).collect();
        let mut groups = vec![];
        for wanted in places {
            let of_place = (0..cluster.ring.groups()).filter(|group| place(*group) == wanted);
            groups.extend(of_place.take(GROUPS_OF_A_ROLE).map(|group| (group, wanted)));
        }
        let began = Instant::now();
        let mut pairs = vec![];
        for (group, place) in groups {
            let key = key_of(&cluster.ring, group, round);
            let written = Arc::<Mutex<Written>>::default();
            let history = Arc::<Mutex<History>>::default();
            let go_on = |mut step: Box<dyn FnMut() + Send>| {
                let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&requests));
                std::thread::spawn(move || {
                    while !stopped.load(Ordering::Relaxed) {
                        step();
                        counted.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(PAUSE);
                    }
                })
            };
            let (mut client, mut reader) = (cluster.client(), cluster.client());
            let (into, heard) = (Arc::clone(&written), Arc::clone(&history));
            let writes = go_on(Box::new(move || write(&mut client, began, (key, &into, &heard))));
            let heard = Arc::clone(&history);
            let mut count = 1 << 32;
            let reads = go_on(Box::new(move || {
                count += 1;
                let request = match count % 8 {
                    // (The key has a value: it is refused, and shown.)
                    0 => Request::insert(&key, &u64::to_be_bytes(count)),
                    _ => Request::get(&key),
                };
                ask(&mut reader, (1, began), request, &heard);
            }));
            pairs.push(Pair { key, place, written, history, threads: [writes, reads] });
        }
        Load { began, stop, requests, pairs }
    }

    /// Requests that are over.
    pub fn progress(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Of each key: the place of who died, and its first write that was acknowledged after then
    /// and began after what had been acknowledged before.
    pub fn first_writes_after(&self, then: Instant) -> Vec<(Option<usize>, Option<Instant>)> {
        let first = |pair: &Pair| {
            let written = pair.written.lock().expect("no panic");
            let at = written.done.iter().map(|(at, ..)| *at).find(|at| *at > then + PAUSE);
            (pair.place, at)
        };
        self.pairs.iter().map(first).collect()
    }

    pub fn end(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        let keys = self.pairs.into_iter().map(|pair| {
            pair.threads.into_iter().for_each(|it| it.join().expect("a client"));
            let written = std::mem::take(&mut *pair.written.lock().expect("no panic"));
            let history = std::mem::take(&mut *pair.history.lock().expect("no panic"));
            (pair.key, written, history)
        });
        Ended { keys: keys.collect(), began: self.began }
    }
}

impl Ended {
    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (what, count) in self.keys.iter().flat_map(|(.., history)| &history.counts) {
            *counts.entry(*what).or_default() += count;
        }
        counts
    }

    /// Requests whose outcome is not known, or that nobody serves.
    pub fn failed(&self) -> u64 {
        self.counts().iter().filter(|(what, _)| !SERVED.contains(what)).map(|(_, it)| it).sum()
    }

    /// Those whose outcome is not known.
    pub fn unknown(&self) -> u64 {
        self.counts().get("unknown").copied().unwrap_or(0)
    }

    pub fn summary(&self) -> String {
        format!("{:?}", self.counts())
    }

    /// No acknowledged write is lost, no version went back, and each key's history is linearizable.
    pub fn check(mut self, cluster: &Cluster) {
        let mut client = cluster.client();
        for (key, written, history) in &mut self.keys {
            let last = Mutex::new(std::mem::take(history));
            let now = ask(&mut client, (1, self.began), Request::get(key), &last);
            let now = now.expect("a read").done().expect("a value").now;
            let (_, version, acknowledged) = *written.done.last().expect("writes");
            let found = number(now.value.as_deref());
            assert!(
                now.version >= version && (acknowledged..=written.tried).contains(&found),
                "{key:?}: version {version} with {acknowledged} was acknowledged; there is version \
                 {} with {found}",
                now.version
            );
            let history = last.into_inner().expect("no panic");
            assert_eq!(history.judge(1), Ok(0), "{key:?}: {} requests", history.begun());
        }
    }
}
