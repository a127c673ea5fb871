//! Many requests at a time, without sockets and clocks.
//!
//! [`Core`] has the rules of one request; this finds the request that a reply is for, and knows
//! when each must go again.

use crate::Request;
use crate::core::{Core, Pending, Send, Step};
use crate::outcome::{Failure, NotBegun, Outcome};
use foldhash::fast::RandomState;
use netchain_protocol::message::FORMAT;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

/// The longest deadline: a head forgets a client that is silent for 60 s.
pub const DEADLINE_MAX: Duration = Duration::from_secs(30);
/// Requests under way at the most: their replies must have room in the socket's buffer.
pub const OUTSTANDING_MAX: usize = 4096;

/// What a request came to.
pub type Answer = Result<Outcome, Failure>;

/// Names a request under way. No two requests of an engine have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Ticket {
    /// As a number, for languages that have no types for it. Never 0.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The ticket with this number. A number that no ticket had is one of a request that is over.
    pub fn from_number(number: u64) -> Ticket {
        Ticket(number)
    }
}

/// A request under way.
struct Entry {
    pending: Pending,
    /// The earliest time at which it stands in the queue of times.
    queued_us: u64,
}

/// See the module.
pub struct Engine {
    core: Core,
    begun: u64,
    entries: HashMap<Ticket, Entry, RandomState>,
    by_name: HashMap<(u64, u32), Ticket, RandomState>,
    /// When which request is due. What is no longer true is skipped when its time comes.
    times: BinaryHeap<Reverse<(u64, Ticket)>>,
    sends: Vec<(Ticket, Send)>,
    answers: VecDeque<(Ticket, Answer)>,
}

impl Engine {
    /// Without requests.
    pub fn new(core: Core) -> Engine {
        Engine {
            core,
            begun: 0,
            entries: HashMap::default(),
            by_name: HashMap::default(),
            times: BinaryHeap::new(),
            sends: vec![],
            answers: VecDeque::new(),
        }
    }

    /// Begins a request.
    ///
    /// # Errors
    /// See [`NotBegun`]: nothing was sent.
    pub fn submit(&mut self, request: Request, now_us: u64) -> Result<Ticket, NotBegun> {
        if self.entries.len() >= OUTSTANDING_MAX {
            return Err(NotBegun::Busy);
        }
        let Request { operation, key, value, operand, group, deadline } = request;
        let mut pending = self.core.begin(operation, key, value, operand, now_us)?;
        if let Some(group) = group {
            pending.set_group(group);
        }
        if let Some(deadline) = deadline {
            let deadline_us = deadline.min(DEADLINE_MAX).as_micros() as u64;
            pending.set_deadline_us(now_us.saturating_add(deadline_us));
        }
        self.begun += 1;
        let ticket = Ticket(self.begun);
        let step = self.core.time(&mut pending, now_us);
        self.by_name.insert(pending.name(), ticket);
        self.entries.insert(ticket, Entry { pending, queued_us: u64::MAX });
        self.settle(ticket, step);
        Ok(ticket)
    }

    /// Nobody waits for a request any more. It may have been carried out, or may still be; its
    /// number is free for others.
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entries.remove(&ticket) {
            self.by_name.remove(&entry.pending.name());
            self.core.abandon(&entry.pending);
        }
        self.answers.retain(|(answered, _)| *answered != ticket);
    }

    /// What follows a step of a request.
    fn settle(&mut self, ticket: Ticket, step: Step) {
        match step {
            Step::Over(answer) => {
                if let Some(entry) = self.entries.remove(&ticket) {
                    self.by_name.remove(&entry.pending.name());
                }
                self.answers.push_back((ticket, answer));
                return;
            }
            Step::Send(send) => self.sends.push((ticket, send)),
            Step::Wait => {}
        }
        if let Some(entry) = self.entries.get_mut(&ticket)
            && entry.pending.next_us() < entry.queued_us
        {
            entry.queued_us = entry.pending.next_us();
            self.times.push(Reverse((entry.queued_us, ticket)));
        }
    }

    /// A UDP payload came.
    pub fn receive(&mut self, payload: &[u8], now_us: u64) {
        if payload.first().is_some_and(|format| *format != FORMAT) {
            // (It does not say which request it is about.)
            let tickets: Vec<Ticket> = self.entries.keys().copied().collect();
            for ticket in tickets {
                self.receive_for(ticket, payload, now_us);
            }
            return;
        }
        match name_in(payload).and_then(|name| self.by_name.get(&name)) {
            Some(&ticket) => self.receive_for(ticket, payload, now_us),
            None => self.core.stray(payload),
        }
    }

    fn receive_for(&mut self, ticket: Ticket, payload: &[u8], now_us: u64) {
        if let Some(entry) = self.entries.get_mut(&ticket) {
            let step = self.core.receive(&mut entry.pending, payload, now_us);
            self.settle(ticket, step);
        }
        self.free(now_us);
    }

    /// Lets requests go again that waited for another one of their group.
    fn free(&mut self, now_us: u64) {
        while let Some(group) = self.core.freed_group() {
            let mut steps = vec![];
            for (ticket, entry) in &mut self.entries {
                let step = self.core.free(&mut entry.pending, group, now_us);
                if step != Step::Wait {
                    steps.push((*ticket, step));
                }
            }
            // (In the order in which they began: replies come in it, and tests repeat.)
            steps.sort_unstable_by_key(|(ticket, _)| *ticket);
            steps.into_iter().for_each(|(ticket, step)| self.settle(ticket, step));
        }
    }

    /// The time is `now_us`: what is due goes again, or is over.
    pub fn time(&mut self, now_us: u64) {
        while let Some(&Reverse((due_us, ticket))) = self.times.peek() {
            if due_us > now_us {
                break;
            }
            self.times.pop();
            if let Some(entry) = self.entries.get_mut(&ticket) {
                entry.queued_us = u64::MAX;
                let step = self.core.time(&mut entry.pending, now_us);
                self.settle(ticket, step);
            }
        }
        self.free(now_us);
    }

    /// When [`Engine::time`] must be called. None: nothing is under way.
    pub fn next_us(&mut self) -> Option<u64> {
        while let Some(&Reverse((due_us, ticket))) = self.times.peek() {
            if self.entries.contains_key(&ticket) {
                return Some(due_us);
            }
            self.times.pop();
        }
        None
    }

    /// Gives what is to be sent to `out`, but for requests that are over.
    pub fn take_sends(&mut self, out: &mut Vec<Send>) {
        let due = self.sends.drain(..);
        let entries = &self.entries;
        out.extend(due.filter_map(|(ticket, send)| entries.contains_key(&ticket).then_some(send)));
    }

    /// Messages that are to be sent.
    pub fn to_send(&self) -> usize {
        self.sends.len()
    }

    /// The next answer that nobody has taken.
    pub fn answer(&mut self) -> Option<(Ticket, Answer)> {
        self.answers.pop_front()
    }

    /// Requests that are not over.
    pub fn outstanding(&self) -> usize {
        self.entries.len()
    }

    /// Replies that no switch made for this client: they changed nothing.
    pub fn forged(&self) -> u64 {
        self.core.forged()
    }
}

/// Client and number of a message of this format.
fn name_in(payload: &[u8]) -> Option<(u64, u32)> {
    let number = payload.get(28..32)?.try_into().ok()?;
    let client = payload.get(32..40)?.try_into().ok()?;
    Some((u64::from_be_bytes(client), u32::from_be_bytes(number)))
}

#[cfg(test)]
mod tests;
