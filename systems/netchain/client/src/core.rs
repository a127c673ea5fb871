//! The client's rules: which switch a request goes to, when it goes again, and what its outcome is.
//! No sockets, no clocks: `now_us` is a number that grows.
//!
//! A request is sent as one copy or more, all with one number. Only a copy with the group's view
//! can be carried out. What the client needs to know of a group (its view and chain) it asks with a
//! read in view 0, a *probe*, which no switch carries out.

use crate::outcome::{Done, Failure, NotBegun, Outcome, Page, Refused, Shown};
use foldhash::fast::RandomState;
use heard::Heard;
use lanes::Lanes;
use netchain_protocol::message::{AGAIN, FORMAT, MOVED, REPLY, TOLD};
use netchain_protocol::{ClientKey, Key, Message, Operation, Ring, Room, Status, VALUE_MAX};
use stalls::Stalls;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

mod heard;
mod lanes;
mod stalls;

/// Numbers between a client's lowest unfinished request and its newest one at the most: the head
/// remembers 256.
pub const WINDOW: u32 = 255;

/// As the cursor of a page: there are no more keys.
const LIST_END: u32 = u32::MAX;
/// The longest time between two copies, unless the first one waits longer: a failover is not to be
/// waited out.
const LONGEST_WAIT_US: u64 = 16_000;

/// After so many PAUSED replies another member is asked: the sender may be the only one without the
/// newer view.
const PAUSES_OF_ONE: u32 = 8;

/// A copy goes again so soon after a switch answered that its view does not serve yet.
const PAUSED_WAIT_US: u64 = 2_000;

/// After so many copies and probes without an answer, one request of a group asks for all.
const STALLED_AFTER: u32 = 3;
/// The others go again after this at the latest, in case that its copies are lost.
const STALLED_WAIT_US: u64 = 64_000;

/// A group's chain.
#[derive(Clone, Debug)]
struct Chain {
    view: u32,
    members: Vec<Ipv4Addr>,
    /// A request that is sent in this view makes a newer version than this one.
    floor: u64,
    /// The view since which the head is this one.
    head_since: u32,
    /// So many members at its end answer no reads, as far as is known: they join.
    joining: usize,
}

impl Chain {
    /// Its members in the order of a message's way.
    fn way(&self, reads: bool) -> Vec<Ipv4Addr> {
        let mut way = self.members.clone();
        if reads {
            way.truncate(way.len().saturating_sub(self.joining).max(1));
            way.reverse();
        }
        way
    }
}

/// What to send where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// The switch.
    pub to: Ipv4Addr,
    /// The UDP payload.
    pub payload: Vec<u8>,
}

/// A request under way.
#[derive(Debug)]
pub struct Pending {
    /// The identity that it goes by.
    client: u64,
    operation: Operation,
    key: Key,
    group: u16,
    number: u32,
    operand: u64,
    value: Option<Vec<u8>>,
    room: Room,
    /// Copies that could be carried out.
    copies: u32,
    /// The last copy's view.
    view: u32,
    /// The first copy's view.
    first_view: u32,
    /// A copy went to an earlier head than the last one.
    again: bool,
    /// The key had this version, or a newer one, before the first copy went out.
    floor: u64,
    /// Why it fails, if nothing better comes.
    failure: Option<Failure>,
    /// Copies and probes since a switch told the group's chain.
    tries: u32,
    /// PAUSED replies since then: the switch's view does not serve yet, or it has no lease.
    pauses: u32,
    /// Another member is to be asked next.
    asks_another: bool,
    /// Members that the last copy passed by, as they answer no reads; and how many did not since a
    /// switch told the chain.
    joining: usize,
    turned_away: usize,
    /// Another request of its group asks whether the group answers again; this one waits.
    waits: bool,
    /// The group has answered another request since: it may go again.
    freed: bool,
    /// When it goes again.
    next_us: u64,
    /// When its outcome is unknown.
    deadline_us: u64,
}

impl Pending {
    /// The identity and the number that its replies carry.
    pub fn name(&self) -> (u64, u32) {
        (self.client, self.number)
    }

    /// It is about this group, not the key's. (Before [`Core::time`] is called.)
    pub fn set_group(&mut self, group: u16) {
        self.group = group;
    }

    /// It changes nothing, and goes to the chain's reader.
    fn reads(&self) -> bool {
        is_read(self.operation)
    }

    /// Its outcome is unknown from then on, instead of after the core's usual time.
    pub fn set_deadline_us(&mut self, deadline_us: u64) {
        self.deadline_us = deadline_us;
    }

    /// When [`Core::time`] must be called.
    pub fn next_us(&self) -> u64 {
        self.next_us.min(self.deadline_us)
    }

    /// It may have been carried out, or may still be. (Also if a switch refused the only copy: the
    /// network may have doubled that.)
    fn may_have_happened(&self) -> bool {
        !self.reads() && self.copies > 0
    }
}

/// What a call of the core comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this, and wait.
    Send(Send),
    /// Wait.
    Wait,
    /// The request is over.
    Over(Result<Outcome, Failure>),
}

/// The state of a client that outlives its requests.
pub struct Core {
    ring: Ring,
    /// Identities, and the numbers of their requests.
    lanes: Lanes,
    /// The client's key.
    key: Option<ClientKey>,
    /// Replies that no switch made for this client.
    forged: u64,
    retry_us: u64,
    deadline_us: u64,
    /// Chains that switches have told.
    learnt: HashMap<u16, Arc<Chain>, RandomState>,
    heard: Heard,
    stalls: Stalls,
}

impl Core {
    /// `client`: random for each process, so that no two are the same.
    pub fn new(ring: Ring, client: u64, retry_us: u64, deadline_us: u64) -> Core {
        Core {
            ring,
            lanes: Lanes::new(client),
            key: None,
            forged: 0,
            retry_us,
            deadline_us,
            learnt: HashMap::default(),
            heard: Heard::default(),
            stalls: Stalls::default(),
        }
    }

    /// Signs with this key, and takes only replies that are signed with it.
    pub fn with_key(self, key: Option<ClientKey>) -> Core {
        Core { key, ..self }
    }

    /// Uses up to so many identities for writes, at least one: see [`NotBegun::Busy`].
    pub fn with_identities(mut self, most: usize) -> Core {
        self.lanes.set_most(most);
        self
    }

    /// Replies that no switch made for this client: they changed nothing.
    pub fn forged(&self) -> u64 {
        self.forged
    }

    /// Judges a payload that is a reply to no request under way; it changes nothing.
    pub fn stray(&mut self, payload: &[u8]) {
        self.forged += u64::from(self.key.as_ref().is_some_and(|key| !key.verify(payload)));
    }

    /// Begins a request. The caller sends what [`Core::time`] then says, until the request is over
    /// or abandoned.
    ///
    /// `value`: for the operations that write one.
    ///
    /// # Errors
    /// The value is too long, or the oldest request must be over first.
    pub fn begin(
        &mut self,
        operation: Operation,
        key: Key,
        value: Option<Vec<u8>>,
        operand: u64,
        now_us: u64,
    ) -> Result<Pending, NotBegun> {
        let length = value.as_ref().map_or(0, Vec::len);
        if length > VALUE_MAX {
            return Err(NotBegun::TooLong(length));
        }
        let (client, number) = self.lanes.begin(is_read(operation)).ok_or(NotBegun::Busy)?;
        // A read of unknown length takes all the room; a write's reply mostly has what was written.
        let room = match operation {
            Operation::Read | Operation::List => Room::Large,
            _ => Room::of(length).unwrap_or(Room::Large).max(Room::Small),
        };
        Ok(Pending {
            client,
            operation,
            key,
            group: self.ring.group_of(&key),
            number,
            operand,
            value,
            room,
            copies: 0,
            view: 0,
            first_view: 0,
            again: false,
            floor: 0,
            failure: None,
            tries: 0,
            pauses: 0,
            asks_another: false,
            joining: 0,
            turned_away: 0,
            waits: false,
            freed: false,
            next_us: now_us,
            deadline_us: now_us.saturating_add(self.deadline_us),
        })
    }

    /// The caller no longer waits for a request. It may have been carried out, or may still be.
    pub fn abandon(&mut self, pending: &Pending) {
        self.lanes.over(pending.client, pending.number);
        self.stalls.end(pending.group, pending.name());
    }

    /// A group whose requests wait no longer for one of them: the caller calls [`Core::free`] with
    /// each of its requests, and sends what that says.
    pub fn freed_group(&mut self) -> Option<u16> {
        self.stalls.freed()
    }

    /// Lets a request go again, if it is one of this group and waits for another one.
    pub fn free(&mut self, pending: &mut Pending, group: u16, now_us: u64) -> Step {
        if pending.group != group || !std::mem::take(&mut pending.waits) {
            return Step::Wait;
        }
        (pending.freed, pending.next_us) = (true, now_us);
        self.time(pending, now_us)
    }

    fn over(&mut self, pending: &Pending, result: Result<Outcome, Failure>) -> Step {
        self.abandon(pending);
        Step::Over(result)
    }

    /// The time is `now_us`.
    pub fn time(&mut self, pending: &mut Pending, now_us: u64) -> Step {
        if now_us >= pending.deadline_us {
            let result = match pending.failure.take() {
                _ if pending.may_have_happened() => Ok(Outcome::Unknown),
                Some(failure) => Err(failure),
                None => Ok(Outcome::NoChain),
            };
            return self.over(pending, result);
        }
        if now_us < pending.next_us {
            return Step::Wait;
        }
        let goes_again = pending.tries >= STALLED_AFTER || pending.pauses > 0;
        if goes_again
            && !std::mem::take(&mut pending.freed)
            && !self.stalls.may_ask(pending.group, pending.name(), now_us)
        {
            pending.waits = true;
            pending.next_us = now_us.saturating_add(STALLED_WAIT_US);
            return Step::Wait;
        }
        pending.waits = false;
        self.send(pending, now_us)
    }

    /// A copy, or a probe where the chain is not known or keeps silent.
    fn send(&mut self, pending: &mut Pending, now_us: u64) -> Step {
        let known = self.learnt.get(&pending.group).cloned();
        let asks_others = (pending.tries >= 2 && pending.tries % 2 == 1)
            || std::mem::take(&mut pending.asks_another);
        let reads = pending.reads();
        let mut message = match known {
            Some(chain) if !asks_others => {
                let view = chain.view;
                if pending.copies == 0 && !reads {
                    pending.floor = self.heard.of(&pending.key).max(chain.floor);
                }
                if pending.copies == 0 {
                    pending.first_view = view;
                }
                // (A head that was one in the views of all copies has their verdict.)
                pending.again |= pending.first_view < chain.head_since;
                (pending.copies, pending.view) = (pending.copies.saturating_add(1), view);
                pending.joining = chain.joining;
                self.message(pending, view, chain.way(reads))
            }
            known => {
                // All that are or were members, one after the other; a read's tail first.
                let founded = self.ring.chain_of(pending.group).unwrap_or_default();
                let turn = if known.is_some() { pending.tries / 2 } else { pending.tries };
                let turn = turn + pending.pauses / PAUSES_OF_ONE;
                let mut asked = known.map(|chain| chain.members.clone()).unwrap_or_default();
                let others: Vec<_> = founded.into_iter().filter(|it| !asked.contains(it)).collect();
                asked.extend(others);
                if reads {
                    asked.reverse();
                }
                let one = asked.get(turn as usize % asked.len().max(1)).copied();
                self.probe(pending, one)
            }
        };
        let Some(to) = message.chain.first().copied() else {
            return self.over(pending, Ok(Outcome::NoChain));
        };
        message.chain.remove(0);
        let Ok(mut payload) = message.encode() else {
            let length = pending.value.as_ref().map_or(0, Vec::len);
            return self.over(pending, Ok(Outcome::TooLong(length)));
        };
        if let Some(key) = &self.key {
            key.sign(&mut payload);
        }
        // Twice as long each time: a failover takes longer than a lost message.
        let wait = self.retry_us.saturating_mul(1 << pending.tries.min(6));
        let wait = wait.min(LONGEST_WAIT_US.max(self.retry_us));
        pending.next_us = now_us.saturating_add(wait);
        pending.tries += 1;
        Step::Send(Send { to, payload })
    }

    /// A copy; `chain` begins with its destination.
    fn message(&self, pending: &Pending, view: u32, chain: Vec<Ipv4Addr>) -> Message {
        Message {
            operation: pending.operation,
            status: Status::Request,
            flags: if pending.again { AGAIN } else { 0 },
            key_id: 0,
            tag: 0,
            ring: self.ring.fingerprint(),
            view,
            group: pending.group,
            client: pending.client,
            number: pending.number,
            version: pending.floor,
            operand: pending.operand,
            key: pending.key,
            chain,
            records: Default::default(),
            room: pending.room,
            value: pending.value.clone(),
        }
    }

    /// Asks a switch for the chain.
    fn probe(&self, pending: &Pending, switch: Option<Ipv4Addr>) -> Message {
        let ring = self.ring.fingerprint();
        let probe = Message::probe(ring, pending.group, pending.key, pending.name());
        Message { chain: switch.into_iter().collect(), ..probe }
    }

    /// A UDP payload came. What is no reply to the request changes nothing.
    pub fn receive(&mut self, pending: &mut Pending, payload: &[u8], now_us: u64) -> Step {
        if self.key.as_ref().is_some_and(|key| !key.verify(payload)) {
            self.forged += 1;
            return Step::Wait;
        }
        if let Some(format) = other_format(payload) {
            // (It does not say which request it is about.)
            pending.failure.get_or_insert(Failure::Format(format));
        }
        let Ok(message) = Message::decode(payload) else { return Step::Wait };
        if message.flags & REPLY == 0
            || message.client != pending.client
            || message.number != pending.number
            || message.key != pending.key
            || message.group != pending.group
        {
            return Step::Wait;
        }
        let to_copy = message.operation == pending.operation && pending.copies > 0;
        if !to_copy && message.operation != Operation::Read {
            return Step::Wait;
        }
        match message.status {
            Status::OldView | Status::WrongSwitch => {
                let reads = to_copy && pending.reads();
                let is_no_reader = reads && message.status == Status::WrongSwitch;
                if self.learn(&message) {
                    (pending.tries, pending.pauses, pending.turned_away) = (0, 0, 0);
                    return self.send(pending, now_us);
                }
                if is_no_reader && self.turn_away(pending, message.view) {
                    return self.send(pending, now_us);
                }
                // It told nothing new: the switch itself may be behind.
                Step::Wait
            }
            Status::Paused if self.is_news(message.group, message.view) => {
                self.learn(&message);
                // Somebody is there, so it is no reason to wait longer each time.
                pending.tries = pending.tries.saturating_sub(1);
                pending.pauses = pending.pauses.saturating_add(1);
                pending.asks_another = pending.pauses.is_multiple_of(PAUSES_OF_ONE);
                pending.next_us = now_us.saturating_add(PAUSED_WAIT_US);
                Step::Wait
            }
            Status::Lost if self.is_news(message.group, message.view) => {
                self.over(pending, Ok(Outcome::Lost))
            }
            Status::WrongRing => {
                let (ours, theirs) = (self.ring.fingerprint(), message.ring);
                self.fail(pending, Failure::WrongRing { ours, theirs })
            }
            Status::Denied => self.fail(pending, Failure::Denied),
            Status::TooMany => self.fail(pending, Failure::TooMany),
            Status::Unknown if to_copy => self.fail(pending, Failure::NoSuchOperation),
            _ if to_copy => self.verdict(pending, message, now_us),
            _ => Step::Wait,
        }
    }

    /// A switch that has a part in the request has decided.
    fn verdict(&mut self, pending: &mut Pending, message: Message, now_us: u64) -> Step {
        self.stalls.news(pending.group);
        if message.operation == Operation::List && message.status == Status::Done {
            return self.over(pending, Ok(Outcome::Listed(page(&message))));
        }
        // In one view there is one verdict. An earlier view's refusal says nothing of later copies.
        let of_last_copy = message.view == pending.view;
        let moved = message.flags & MOVED != 0;
        let own = match pending.operation {
            Operation::Read | Operation::List => None,
            _ if moved => Some(message.operand).filter(|version| *version != 0),
            _ => Some(message.version),
        };
        let length = message.value.as_ref().map_or(0, Vec::len);
        if matches!(message.status, Status::Done | Status::Absent | Status::Refused) {
            // (The tail showed it.)
            self.heard.note(&pending.key, message.version);
        }
        let now = Shown { version: message.version, value: message.value };
        let outcome = match message.status {
            Status::Done => Outcome::Done(Done { own, now }),
            Status::Absent => Outcome::Done(Done { own, now: Shown { value: None, ..now } }),
            // They have no condition: their head had no slot, and says it once more.
            Status::Refused if of_last_copy && is_unconditional(pending.operation) => Outcome::Full,
            Status::Refused if of_last_copy => Outcome::Refused(Refused { now, moved }),
            Status::Full if of_last_copy => Outcome::Full,
            Status::Undecided => Outcome::Unknown,
            Status::NoRoom if message.room == Room::Large => Outcome::TooLong(length),
            Status::NoRoom if pending.room != Room::Large => {
                pending.room = Room::Large;
                return self.send(pending, now_us);
            }
            _ => return Step::Wait,
        };
        self.over(pending, Ok(outcome))
    }

    /// A switch does not carry a copy out. That is the outcome if there is no other copy.
    fn fail(&mut self, pending: &mut Pending, failure: Failure) -> Step {
        if !pending.reads() && pending.copies > 1 {
            pending.failure = Some(failure);
            return Step::Wait;
        }
        self.over(pending, Err(failure))
    }

    /// Is a view not older than what is known of the group?
    fn is_news(&self, group: u16, view: u32) -> bool {
        self.learnt.get(&group).is_none_or(|known| view >= known.view)
    }

    /// A switch told a group's chain: is it newer than what was known?
    fn learn(&mut self, told: &Message) -> bool {
        let Message { group, view, .. } = *told;
        // (A switch from before floors has the request's own numbers there.)
        let head_since = u32::try_from(told.operand).ok().filter(|_| told.flags & TOLD != 0);
        let floor = if head_since.is_some() { told.version } else { 0 };
        let head_since = head_since.unwrap_or(view).min(view);
        let members = told.chain.clone();
        self.learn_chain(group, Chain { view, members, floor, head_since, joining: 0 })
    }

    fn learn_chain(&mut self, group: u16, chain: Chain) -> bool {
        let newer = self.learnt.get(&group).is_none_or(|known| chain.view > known.view);
        if !newer || chain.members.is_empty() || chain.view == 0 {
            return false;
        }
        self.learnt.insert(group, Arc::new(chain));
        self.stalls.news(group);
        true
    }

    /// The member that a read went to answers none: is another one left to ask at once? (The reply
    /// may be a second one to an earlier copy, so all take turns.)
    fn turn_away(&mut self, pending: &mut Pending, view: u32) -> bool {
        let chain = self.learnt.get_mut(&pending.group).filter(|chain| chain.view == view);
        let Some(chain) = chain.filter(|chain| pending.turned_away + 1 < chain.members.len())
        else {
            return false;
        };
        if chain.joining == pending.joining {
            let chain = Arc::make_mut(chain);
            chain.joining = (chain.joining + 1) % chain.members.len();
        }
        pending.turned_away += 1;
        true
    }
}

fn is_read(operation: Operation) -> bool {
    matches!(operation, Operation::Read | Operation::List)
}

/// The keys in a reply to a listing.
fn page(message: &Message) -> Page {
    let places = message.value.as_deref().unwrap_or_default().chunks_exact(16).enumerate();
    let keys = places.filter(|(place, _)| message.version >> place & 1 != 0);
    let keys = keys.filter_map(|(_, key)| Some(Key(key.try_into().ok()?))).collect();
    let next = u32::try_from(message.operand).ok().filter(|next| *next != LIST_END);
    Page { view: message.view, keys, next }
}

fn is_unconditional(operation: Operation) -> bool {
    matches!(operation, Operation::Put | Operation::Add)
}

/// The format of a switch that does not know this client's. The first bytes are the same in all.
fn other_format(payload: &[u8]) -> Option<u8> {
    let [format, _, status, _, flags, ..] = *payload else { return None };
    let is_reply = u16::from(flags) << 8 & REPLY != 0;
    (format != FORMAT && is_reply && status == Status::BadFormat as u8).then_some(format)
}

#[cfg(test)]
mod tests;
