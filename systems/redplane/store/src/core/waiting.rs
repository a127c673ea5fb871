//! Requests that the head holds until a flow is released or an update comes (the store's memory is
//! the delay line: RedPlane §5.1), and the recalls that are out.

use foldhash::fast::RandomState;
use state_protocol::Owner;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddrV4;

/// A held request.
pub struct Waiter {
    /// When it came, in ns.
    pub received_ns: u64,
    /// When it is dropped, in ns.
    pub expires_ns: u64,
    /// Who asked.
    pub client: SocketAddrV4,
    /// The request as it came.
    pub datagram: Vec<u8>,
    /// A `LEASE_REQUEST`; otherwise a `READ_COMMIT`.
    pub for_lease: bool,
}

/// A flow that its owner was asked to release.
#[derive(Debug, Clone, Copy)]
pub struct Recall {
    /// The owner,
    pub owner: Owner,
    /// its session,
    pub session: u32,
    /// and its grant.
    pub epoch: u32,
    /// When it was asked first, in ns.
    pub since_ns: u64,
    /// When it is asked again, in ns.
    pub next_ns: u64,
    /// After how long then, in ns.
    pub resend_ns: u64,
    /// Unanswered for half a lease: counted in the session.
    pub overdue: bool,
}

struct Flow {
    queue: VecDeque<Waiter>,
    for_lease: usize,
    recall: Option<Recall>,
    wake_ns: u64,
}

/// All held requests and recalls, by the slot of their record (a record that has any is never
/// removed).
#[derive(Default)]
pub struct Waiting {
    flows: HashMap<u32, Flow, RandomState>,
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

    /// How many recalls are out.
    pub fn recalls(&self) -> usize {
        self.flows.values().filter(|flow| flow.recall.is_some()).count()
    }

    /// Whether there is anything about this record.
    pub fn concerns(&self, slot: u32) -> bool {
        !self.flows.is_empty() && self.flows.contains_key(&slot)
    }

    /// How many requests are held for one record.
    pub fn len_of(&self, slot: u32) -> usize {
        self.flows.get(&slot).map_or(0, |flow| flow.queue.len())
    }

    /// How many of them want the flow.
    pub fn wanted(&self, slot: u32) -> usize {
        self.flows.get(&slot).map_or(0, |flow| flow.for_lease)
    }

    /// The recall that is out for a record.
    pub fn recall(&mut self, slot: u32) -> Option<&mut Recall> {
        self.flows.get_mut(&slot)?.recall.as_mut()
    }

    /// Whether a recall is out for a record.
    pub fn is_recalled(&self, slot: u32) -> bool {
        !self.flows.is_empty() && self.flows.get(&slot).is_some_and(|flow| flow.recall.is_some())
    }

    fn flow(&mut self, slot: u32) -> &mut Flow {
        let empty =
            || Flow { queue: VecDeque::new(), for_lease: 0, recall: None, wake_ns: u64::MAX };
        self.flows.entry(slot).or_insert_with(empty)
    }

    /// Holds a request behind those held already.
    pub fn hold(&mut self, slot: u32, waiter: Waiter) {
        self.count += 1;
        self.bytes += waiter.datagram.len();
        let flow = self.flow(slot);
        flow.for_lease += usize::from(waiter.for_lease);
        flow.queue.push_back(waiter);
    }

    /// Notes that a recall is out.
    pub fn set_recall(&mut self, slot: u32, recall: Recall) {
        self.flow(slot).recall = Some(recall);
    }

    /// Notes that none is out any more.
    pub fn end_recall(&mut self, slot: u32) -> Option<Recall> {
        let flow = self.flows.get_mut(&slot)?;
        let recall = flow.recall.take();
        if flow.queue.is_empty() {
            self.flows.remove(&slot);
        }
        recall
    }

    /// Has `due` name this record at `at_ns`, or earlier.
    pub fn wake_at(&mut self, slot: u32, at_ns: u64) {
        if let Some(flow) = self.flows.get_mut(&slot)
            && at_ns < flow.wake_ns
        {
            flow.wake_ns = at_ns;
            self.timers.push(Reverse((at_ns, slot)));
        }
    }

    /// Takes all requests held for a record, oldest first.
    pub fn take(&mut self, slot: u32) -> VecDeque<Waiter> {
        let Some(flow) = self.flows.get_mut(&slot) else { return VecDeque::new() };
        let queue = std::mem::take(&mut flow.queue);
        flow.for_lease = 0;
        if flow.recall.is_none() {
            self.flows.remove(&slot);
        }
        self.count -= queue.len();
        self.bytes -= queue.iter().map(|waiter| waiter.datagram.len()).sum::<usize>();
        queue
    }

    /// Drops the requests of a record whose time is over; returns how many. (Held equally long,
    /// they run out in order of arrival.)
    pub fn expire(&mut self, slot: u32, now_ns: u64) -> u64 {
        let Some(flow) = self.flows.get_mut(&slot) else { return 0 };
        let mut expired = 0;
        while flow.queue.front().is_some_and(|waiter| waiter.expires_ns <= now_ns) {
            let Some(waiter) = flow.queue.pop_front() else { break };
            expired += 1;
            self.count -= 1;
            self.bytes -= waiter.datagram.len();
            flow.for_lease -= usize::from(waiter.for_lease);
        }
        if flow.queue.is_empty() && flow.recall.is_none() {
            self.flows.remove(&slot);
        }
        expired
    }

    /// When the oldest request of a record runs out, in ns.
    pub fn first_expiry(&self, slot: u32) -> Option<u64> {
        self.flows.get(&slot)?.queue.front().map(|waiter| waiter.expires_ns)
    }

    /// A record that is due by `now_ns`; the caller sees to it and calls `wake_at` again.
    pub fn due(&mut self, now_ns: u64) -> Option<u32> {
        while let Some(&Reverse((at, slot))) = self.timers.peek() {
            let current = self.flows.get_mut(&slot).filter(|flow| flow.wake_ns == at);
            if current.is_some() && at > now_ns {
                return None;
            }
            self.timers.pop();
            if let Some(flow) = current {
                flow.wake_ns = u64::MAX;
                return Some(slot);
            }
        }
        None
    }

    /// When `due` must be asked next, in ns (or earlier).
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The records that there is anything about.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.flows.keys().copied()
    }

    /// Forgets everything: this server is not the head any more.
    pub fn clear(&mut self) {
        *self = Waiting::default();
    }
}
