//! A simulated client: the real core, with many requests and listings at a time, and a clock of its
//! own.

use crate::history::listings::HeardPage;
use listings::Lists;
use netchain_client::core::{Core, Pending, Send, Step};
use netchain_client::{Failure, NotBegun, Outcome};
use netchain_protocol::{Key, Operation, Ring};
use simnet::Clock;

mod listings;

/// As the client's configuration has them by default.
const RETRY_US: u64 = 2_000;
const DEADLINE_US: u64 = 1_000_000;

/// A request under way.
struct Waits {
    pending: Pending,
    what: What,
    /// Messages that it was sent as.
    messages: u32,
}

/// What a request is for.
#[derive(Clone, Copy)]
enum What {
    /// A request of the history, by its number there.
    Request(usize),
    /// The next page of a listing, by the listing's number there.
    Page(usize),
}

/// A client.
pub(crate) struct Client {
    core: Core,
    ring: Ring,
    waiting: Vec<Waits>,
    listings: Vec<Lists>,
    pub(crate) clock: Clock,
    pub(crate) frozen_until_ns: u64,
    /// When it wakes next; `u64::MAX`: nothing is to come.
    pub(crate) wakes_ns: u64,
}

/// What is over, by its number in the history.
pub(crate) enum Over {
    Request(usize, Result<Outcome, Failure>),
    /// A page of a listing.
    Page(usize, Result<HeardPage, Failure>),
    Listing(usize),
}

/// What a client does: it sends, and something is over.
pub(crate) type Does = (Vec<Send>, Vec<Over>);

impl Client {
    pub(crate) fn new(ring: Ring, identity: u64, clock: Clock) -> Client {
        let core = Core::new(ring.clone(), identity, RETRY_US, DEADLINE_US);
        let (waiting, listings) = (Vec::new(), Vec::new());
        Client { core, ring, waiting, listings, clock, frozen_until_ns: 0, wakes_ns: u64::MAX }
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
        self.waiting.push(Waits { pending, what: What::Request(number), messages: 0 });
        Ok(())
    }

    /// Begins a listing, with this pause before each page but the first; [`Client::time`] then says
    /// what to send.
    pub(crate) fn list(&mut self, number: usize, prefix: &[u8], times: (u64, u64)) {
        self.listings.extend(Lists::new(&self.ring, number, prefix, times));
    }

    /// From now on listings have no pauses.
    pub(crate) fn hurry(&mut self, now_ns: u64) {
        self.listings.iter_mut().for_each(|it| it.hurry(now_ns));
    }

    /// When [`Client::time`] is to be called.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let next_us = self.waiting.iter().map(|it| it.pending.next_us()).min();
        let next_ns = next_us.map(|next_us| self.clock.time(next_us * 1000));
        let pages = self.listings.iter().filter_map(Lists::asks_ns);
        Some(pages.chain(next_ns).min()?.max(self.frozen_until_ns))
    }

    /// Requests under way, without those for pages.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().filter(|it| matches!(it.what, What::Request(_))).count()
    }

    /// Listings under way.
    pub(crate) fn listings(&self) -> usize {
        self.listings.len()
    }

    /// What is due now.
    pub(crate) fn time(&mut self, now_ns: u64) -> Does {
        let now_us = self.now_us(now_ns);
        let (core, waiting) = (&mut self.core, &mut self.waiting);
        for lists in &mut self.listings {
            // (Reads are never too many.)
            if let Ok(Some(pending)) = lists.ask(core, (now_ns, now_us)) {
                waiting.push(Waits { pending, what: What::Page(lists.number), messages: 0 });
            }
        }
        self.each(now_ns, |core, pending| core.time(pending, now_us))
    }

    /// A reply comes.
    pub(crate) fn receive(&mut self, payload: &[u8], now_ns: u64) -> Does {
        let now_us = self.now_us(now_ns);
        self.each(now_ns, |core, pending| core.receive(pending, payload, now_us))
    }

    /// A step of each request, and of those that it lets go again.
    fn each(&mut self, now_ns: u64, step: impl FnMut(&mut Core, &mut Pending) -> Step) -> Does {
        let now_us = self.now_us(now_ns);
        let mut does = (vec![], vec![]);
        self.step(now_ns, step, &mut does);
        while let Some(group) = self.core.freed_group() {
            self.step(now_ns, |core, pending| core.free(pending, group, now_us), &mut does);
        }
        self.listings.retain(|lists| {
            if lists.is_over() {
                does.1.push(Over::Listing(lists.number));
            }
            !lists.is_over()
        });
        does
    }

    fn step(
        &mut self,
        now_ns: u64,
        mut step: impl FnMut(&mut Core, &mut Pending) -> Step,
        (sends, over): &mut Does,
    ) {
        let (core, listings) = (&mut self.core, &mut self.listings);
        self.waiting.retain_mut(|waits| match step(core, &mut waits.pending) {
            Step::Send(send) => {
                waits.messages += 1;
                sends.push(send);
                true
            }
            Step::Wait => true,
            Step::Over(result) => {
                over.extend(match waits.what {
                    What::Request(number) => Some(Over::Request(number, result)),
                    What::Page(number) => {
                        let lists = listings.iter_mut().find(|it| it.number == number);
                        let take = |it: &mut Lists| it.take(result, waits.messages, now_ns);
                        lists.map(|it| Over::Page(number, take(it)))
                    }
                });
                false
            }
        });
    }
}
