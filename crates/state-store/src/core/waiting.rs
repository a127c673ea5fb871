//! Requests that the head holds until a lease ends or an update comes: the store's memory is the delay line (RedPlane §5.1).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddrV4;

/// A held request.
pub struct Waiter {
    /// When it is dropped, in ns.
    pub expires_ns: u64,
    /// Who asked.
    pub client: SocketAddrV4,
    /// The request as it came.
    pub datagram: Vec<u8>,
    /// A `LEASE_REQUEST` of another switch than the owner.
    pub for_lease: bool,
}

#[derive(Default)]
struct Flow {
    queue: VecDeque<Waiter>,
    for_lease: usize,
    wake_ns: u64,
}

/// All held requests, by the slot of their record (a record with held requests is never removed).
#[derive(Default)]
pub struct Waiting {
    flows: HashMap<u32, Flow>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    count: usize,
    bytes: usize,
}

impl Waiting {
    /// How many requests are held.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Bytes of all held requests.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many requests are held for one record.
    pub fn len_of(&self, slot: u32) -> usize {
        if self.count == 0 {
            return 0;
        }
        self.flows.get(&slot).map_or(0, |flow| flow.queue.len())
    }

    /// Whether another switch waits for the record's lease.
    pub fn wanted_by_another(&self, slot: u32) -> bool {
        self.count > 0 && self.flows.get(&slot).is_some_and(|flow| flow.for_lease > 0)
    }

    /// Holds a request, and wakes its record's requests at `wake_ns` at the latest.
    pub fn hold(&mut self, slot: u32, wake_ns: u64, waiter: Waiter) {
        let flow = self.flows.entry(slot).or_insert_with(|| Flow { wake_ns: u64::MAX, ..Flow::default() });
        self.count += 1;
        self.bytes += waiter.datagram.len();
        flow.for_lease += usize::from(waiter.for_lease);
        flow.queue.push_back(waiter);
        if wake_ns < flow.wake_ns {
            flow.wake_ns = wake_ns;
            self.timers.push(Reverse((wake_ns, slot)));
        }
    }

    /// Takes all requests held for a record, oldest first.
    pub fn take(&mut self, slot: u32) -> VecDeque<Waiter> {
        let Some(flow) = self.flows.remove(&slot) else { return VecDeque::new() };
        self.count -= flow.queue.len();
        self.bytes -= flow.queue.iter().map(|waiter| waiter.datagram.len()).sum::<usize>();
        flow.queue
    }

    /// A record whose held requests are due by `now_ns`.
    pub fn due(&mut self, now_ns: u64) -> Option<u32> {
        while let Some(&Reverse((at, slot))) = self.timers.peek() {
            let stale = self.flows.get(&slot).is_none_or(|flow| flow.wake_ns != at);
            if !stale && at > now_ns {
                return None;
            }
            self.timers.pop();
            if !stale {
                return Some(slot);
            }
        }
        None
    }

    /// When `due` must be asked next, in ns (or earlier).
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }
}
