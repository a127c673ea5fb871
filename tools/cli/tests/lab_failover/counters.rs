//! Many clients add to few counters: what is counted is what was acknowledged, and those additions
//! without an answer that happened.
//!
//! A counter is a number of 64 bits, and each of its four clients adds to 16 bits of its own. So a
//! read tells a client whether its addition without an answer happened, and in the end all is
//! exact.

use crate::cluster::{Cluster, key_of};
use netchain_client::{Client, Key, Outcome, Shown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clients of a counter.
const OF_A_COUNTER: usize = 4;
/// Of a client's part of the counter.
const BITS: u32 = u64::BITS / OF_A_COUNTER as u32;
/// The counters' place among a group's keys: others have the first ones.
const NUMBER: usize = 999;
/// Between two additions of a client.
const PAUSE: Duration = Duration::from_millis(20);
/// No copy of a request is on its way so long after its deadline.
const ON_THE_WAY: Duration = Duration::from_millis(200);
/// After a failover, a read has an answer within this.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client has added.
#[derive(Clone, Copy, Default)]
struct Added {
    done: u64,
    unknown: u64,
    /// Of the unknown ones.
    happened: u64,
    other: u64,
}

/// Clients at work.
pub struct Counters {
    stop: Arc<AtomicBool>,
    /// Each with its counter, and its place in it.
    clients: Vec<(Key, usize, JoinHandle<Added>)>,
}

/// A client's part of a counter.
fn part(shown: &Shown, place: usize) -> u64 {
    let value = shown.value.as_deref().and_then(|value| value.first_chunk());
    let value = value.map_or(0, |bytes| u64::from_be_bytes(*bytes));
    value >> (place as u32 * BITS) & ((1 << BITS) - 1)
}

fn read(client: &mut Client, key: &Key) -> Shown {
    let until = Instant::now() + PATIENCE;
    loop {
        match client.get(key) {
            Ok(Outcome::Done(done)) => return done.now,
            other => assert!(Instant::now() < until, "{key:?}: {other:?}"),
        }
    }
}

/// Adds once: what it is, and what the counter has, must go together.
fn add(client: &mut Client, key: &Key, place: usize, added: &mut Added) {
    let before = added.done + added.happened;
    let shown = match client.add(key, 1 << (place as u32 * BITS)) {
        Ok(Outcome::Done(done)) => {
            added.done += 1;
            done.now
        }
        Ok(Outcome::Unknown) => {
            added.unknown += 1;
            std::thread::sleep(ON_THE_WAY);
            let shown = read(client, key);
            added.happened += u64::from(part(&shown, place) != before);
            shown
        }
        _ => {
            added.other += 1;
            return;
        }
    };
    assert_eq!(part(&shown, place), added.done + added.happened, "{key:?}, place {place}");
}

impl Counters {
    pub fn start(cluster: &Cluster, clients: usize) -> Counters {
        let stop = Arc::<AtomicBool>::default();
        let groups = usize::from(cluster.ring.groups());
        assert!(clients <= groups * OF_A_COUNTER, "{groups} counters for {clients} clients");
        let start = |at: usize| {
            let key = key_of(&cluster.ring, (at / OF_A_COUNTER) as u16, NUMBER);
            let (place, stop, mut client) =
                (at % OF_A_COUNTER, Arc::clone(&stop), cluster.client());
            let work = move || {
                let mut added = Added::default();
                while !stop.load(Ordering::Relaxed) {
                    add(&mut client, &key, place, &mut added);
                    std::thread::sleep(PAUSE);
                }
                added
            };
            (key, place, std::thread::spawn(work))
        };
        Counters { clients: (0..clients).map(start).collect(), stop }
    }

    /// Each counter has all additions that were acknowledged, those without an answer that its
    /// clients have seen, and none that nobody made.
    pub fn end(self, cluster: &Cluster) -> String {
        self.stop.store(true, Ordering::Relaxed);
        let mut client = cluster.client();
        let mut sum = Added::default();
        let (mut all, most) = (vec![], (1 << BITS) - 1);
        for (key, place, work) in self.clients {
            all.push((key, place, work.join().expect("a client's additions are exact")));
        }
        for (key, place, added) in all {
            let Added { done, unknown, happened, other } = added;
            assert!(done + unknown < most, "{key:?}: its {BITS} bits are too few");
            let value = part(&read(&mut client, &key), place);
            assert_eq!(
                value,
                done + happened,
                "{key:?}, place {place}: {done} additions were acknowledged, {happened} of \
                 {unknown} without an answer happened"
            );
            sum.done += done;
            sum.unknown += unknown;
            sum.happened += happened;
            sum.other += other;
        }
        let Added { done, unknown, happened, other } = sum;
        format!(
            "{done} additions, {unknown} unknown ({happened} of them happened), {other} not made; \
             all exact"
        )
    }
}
