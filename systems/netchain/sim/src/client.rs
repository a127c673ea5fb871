//! A simulated client: the real core, with many requests at a time, and a clock of its own.

use netchain_client::core::{Core, Pending, Send, Step};
use netchain_client::{Failure, NotBegun, Outcome};
use netchain_protocol::{Key, Operation, Ring};
use simnet::Clock;

/// As the client's configuration has them by default.
const RETRY_US: u64 = 2_000;
const DEADLINE_US: u64 = 1_000_000;

/// A request under way, and its number in the history.
struct Waits {
    pending: Pending,
    number: usize,
}

/// A client.
pub(crate) struct Client {
    core: Core,
    waiting: Vec<Waits>,
    pub(crate) clock: Clock,
    pub(crate) frozen_until_ns: u64,
    /// When it wakes next; `u64::MAX`: nothing is to come.
    pub(crate) wakes_ns: u64,
}

/// A request that is over: its number in the history.
pub(crate) type Over = (usize, Result<Outcome, Failure>);

impl Client {
    pub(crate) fn new(ring: Ring, identity: u64, clock: Clock) -> Client {
        let core = Core::new(ring, identity, RETRY_US, DEADLINE_US);
        Client { core, waiting: Vec::new(), clock, frozen_until_ns: 0, wakes_ns: u64::MAX }
    }

    fn now_us(&self, now_ns: u64) -> u64 {
        self.clock.local(now_ns) / 1000
    }

    /// Begins a request; [`Client::time`] then says what to send.
    pub(crate) fn begin(
        &mut self,
        number: usize,
        key: Key,
        (operation, operand, value): (Operation, u64, Option<Vec<u8>>),
        now_ns: u64,
    ) -> Result<(), NotBegun> {
        let now_us = self.now_us(now_ns);
        let pending = self.core.begin(operation, key, value, operand, now_us)?;
        self.waiting.push(Waits { pending, number });
        Ok(())
    }

    /// When [`Client::time`] is to be called.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let next_us = self.waiting.iter().map(|it| it.pending.next_us()).min()?;
        Some(self.clock.time(next_us * 1000).max(self.frozen_until_ns))
    }

    /// Requests under way.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What is due now.
    pub(crate) fn time(&mut self, now_ns: u64) -> (Vec<Send>, Vec<Over>) {
        let now_us = self.now_us(now_ns);
        self.each(now_us, |core, pending| core.time(pending, now_us))
    }

    /// A reply comes.
    pub(crate) fn receive(&mut self, payload: &[u8], now_ns: u64) -> (Vec<Send>, Vec<Over>) {
        let now_us = self.now_us(now_ns);
        self.each(now_us, |core, pending| core.receive(pending, payload, now_us))
    }

    /// A step of each request, and of those that it lets go again.
    fn each(
        &mut self,
        now_us: u64,
        step: impl FnMut(&mut Core, &mut Pending) -> Step,
    ) -> (Vec<Send>, Vec<Over>) {
        let mut done = (vec![], vec![]);
        self.step(step, &mut done);
        while let Some(group) = self.core.freed_group() {
            self.step(|core, pending| core.free(pending, group, now_us), &mut done);
        }
        done
    }

    fn step(
        &mut self,
        mut step: impl FnMut(&mut Core, &mut Pending) -> Step,
        (sends, over): &mut (Vec<Send>, Vec<Over>),
    ) {
        let core = &mut self.core;
        self.waiting.retain_mut(|waits| match step(core, &mut waits.pending) {
            Step::Send(send) => {
                sends.push(send);
                true
            }
            Step::Wait => true,
            Step::Over(result) => {
                over.push((waits.number, result));
                false
            }
        });
    }
}
