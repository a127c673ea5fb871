//! Many clients add to few counters: what is counted is what was acknowledged, and what may have
//! happened besides.

use crate::cluster::{Cluster, key_of};
use netchain_client::{Key, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Clients of a counter.
const OF_A_COUNTER: usize = 4;
/// The counters' place among a group's keys: others have the first ones.
const NUMBER: usize = 999;
/// Between two additions of a client.
const PAUSE: Duration = Duration::from_millis(20);

/// What a client has added.
#[derive(Clone, Copy, Default)]
struct Added {
    done: u64,
    unknown: u64,
    other: u64,
}

/// Clients at work.
pub struct Counters {
    stop: Arc<AtomicBool>,
    clients: Vec<(Key, JoinHandle<Added>)>,
}

impl Counters {
    pub fn start(cluster: &Cluster, clients: usize) -> Counters {
        let stop = Arc::<AtomicBool>::default();
        let groups = usize::from(cluster.ring.groups());
        let start = |at: usize| {
            let key = key_of(&cluster.ring, (at / OF_A_COUNTER % groups) as u16, NUMBER);
            let (stop, mut client) = (Arc::clone(&stop), cluster.client());
            let work = move || {
                let mut added = Added::default();
                while !stop.load(Ordering::Relaxed) {
                    match client.add(&key, 1) {
                        Ok(Outcome::Done(_)) => added.done += 1,
                        Ok(Outcome::Unknown) => added.unknown += 1,
                        _ => added.other += 1,
                    }
                    std::thread::sleep(PAUSE);
                }
                added
            };
            (key, std::thread::spawn(work))
        };
        Counters { clients: (0..clients).map(start).collect(), stop }
    }

    /// Each counter has all additions that were acknowledged, and none that nobody made.
    pub fn end(self, cluster: &Cluster) -> String {
        self.stop.store(true, Ordering::Relaxed);
        let mut client = cluster.client();
        let all: Vec<(Key, Added)> =
            self.clients.into_iter().map(|(key, it)| (key, it.join().expect("a client"))).collect();
        let (mut sum, mut exact) = (Added::default(), 0);
        for of_key in all.chunk_by(|(a, _), (b, _)| a == b) {
            let key = of_key[0].0;
            let total = of_key.iter().fold(Added::default(), |sum, (_, it)| Added {
                done: sum.done + it.done,
                unknown: sum.unknown + it.unknown,
                other: sum.other + it.other,
            });
            let value = client.get(&key).expect("a read").done().expect("a value").now.value;
            let value = value.as_deref().and_then(|value| value.first_chunk());
            let value = value.map_or(0, |bytes| u64::from_be_bytes(*bytes));
            let Added { done, unknown, other } = total;
            assert!(
                (done..=done + unknown).contains(&value),
                "{key:?}: {value}; {done} additions were acknowledged, {unknown} may have happened"
            );
            exact += usize::from(unknown == 0);
            sum = Added {
                done: sum.done + done,
                unknown: sum.unknown + unknown,
                other: sum.other + other,
            };
        }
        let Added { done, unknown, other } = sum;
        format!("{done} additions, {unknown} unknown, {other} not made; {exact} counters exact")
    }
}
