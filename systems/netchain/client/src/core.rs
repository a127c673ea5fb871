//! The client's rules: which switch a request goes to, when it goes again, and what its outcome is.
//! No sockets, no clocks: `now_us` is a number that grows.

use netchain_protocol::message::{AGAIN, MOVED, REPLY};
use netchain_protocol::{ClientKey, Key, Message, Operation, Ring, Room, Status, VALUE_MAX};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The key's version: a fencing token. 0: the key was never written.
    pub version: u64,
    /// The value; None: there is none.
    pub value: Option<Vec<u8>>,
    /// The value is that of a later write: the request came again, and was carried out before.
    pub moved: bool,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out, and this is what the key has after it.
    Done(Shown),
    /// It was not: this is what the key has.
    Refused(Shown),
    /// It may have been carried out, or may still be: nobody can say.
    Unknown,
    /// It was not: no slot is left.
    Full,
    /// It was not: no switch serves the key's group.
    NoChain,
    /// It was not: the value has so many bytes, more than the request had room for.
    TooLong(usize),
}

impl Outcome {
    /// What the key has after a request that was carried out.
    pub fn done(self) -> Option<Shown> {
        match self {
            Outcome::Done(shown) => Some(shown),
            _ => None,
        }
    }
}

/// A group's chain, as far as this client knows.
#[derive(Clone, Debug)]
struct Chain {
    view: u32,
    members: Vec<Ipv4Addr>,
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
#[derive(Clone, Debug)]
pub struct Pending {
    operation: Operation,
    key: Key,
    group: u16,
    number: u32,
    operand: u64,
    value: Option<Vec<u8>>,
    room: Room,
    /// Times that it was sent.
    sent: u32,
    /// A copy of it was refused.
    refused: bool,
    /// When it goes again.
    next_us: u64,
    /// When its outcome is unknown.
    deadline_us: u64,
}

impl Pending {
    /// When [`Core::time`] must be called.
    pub fn next_us(&self) -> u64 {
        self.next_us.min(self.deadline_us)
    }
}

/// The state of a client that outlives its requests.
pub struct Core {
    ring: Ring,
    client: u64,
    number: u32,
    retry_us: u64,
    deadline_us: u64,
    /// The client's key. None: it has none.
    key: Option<ClientKey>,
    /// Replies that no switch made for this client.
    forged: u64,
    /// Chains that switches have told; others are as the ring places them, in view 1.
    learnt: HashMap<u16, Chain>,
}

/// What a call of the core comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this, and wait.
    Send(Send),
    /// Wait.
    Wait,
    /// The request is over.
    Over(Outcome),
}

impl Core {
    /// `client`: random for each process, so that no two are the same.
    pub fn new(ring: Ring, client: u64, retry_us: u64, deadline_us: u64) -> Core {
        let learnt = HashMap::new();
        Core { ring, client, number: 0, retry_us, deadline_us, key: None, forged: 0, learnt }
    }

    /// Signs with this key, and takes only replies that are signed with it.
    pub fn with_key(self, key: Option<ClientKey>) -> Core {
        Core { key, ..self }
    }

    /// Replies that no switch made for this client: they changed nothing.
    pub fn forged(&self) -> u64 {
        self.forged
    }

    /// Whether no more requests can be told apart: the next needs a core with another identity.
    pub fn is_used_up(&self) -> bool {
        self.number == u32::MAX
    }

    /// Begins a request. The caller sends what [`Core::time`] then says.
    ///
    /// `value`: for the operations that write one.
    pub fn begin(
        &mut self,
        operation: Operation,
        key: Key,
        value: Option<Vec<u8>>,
        operand: u64,
        now_us: u64,
    ) -> Result<Pending, Outcome> {
        let length = value.as_ref().map_or(0, Vec::len);
        if length > VALUE_MAX {
            return Err(Outcome::TooLong(length));
        }
        // The reply shows what the key has, which may be longer than what is written.
        let room = Room::Large;
        self.number = self.number.saturating_add(1);
        Ok(Pending {
            operation,
            key,
            group: self.ring.group_of(&key),
            number: self.number,
            operand,
            value,
            room,
            sent: 0,
            refused: false,
            next_us: now_us,
            deadline_us: now_us.saturating_add(self.deadline_us),
        })
    }

    fn chain(&self, group: u16) -> Chain {
        self.learnt.get(&group).cloned().unwrap_or_else(|| Chain {
            view: 1,
            members: self.ring.chain_of(group).unwrap_or_default(),
        })
    }

    /// The time is `now_us`.
    pub fn time(&self, pending: &mut Pending, now_us: u64) -> Step {
        if now_us >= pending.deadline_us {
            // One copy that was refused was not carried out; of several, one may have been.
            let refused = pending.sent == 0 || (pending.sent == 1 && pending.refused);
            let unknown = pending.operation != Operation::Read && !refused;
            return Step::Over(if unknown { Outcome::Unknown } else { Outcome::NoChain });
        }
        if now_us < pending.next_us {
            return Step::Wait;
        }
        self.send(pending, now_us)
    }

    fn send(&self, pending: &mut Pending, now_us: u64) -> Step {
        let Chain { view, mut members } = self.chain(pending.group);
        if pending.operation == Operation::Read {
            members.reverse();
        }
        if members.is_empty() {
            return Step::Over(Outcome::NoChain);
        }
        let to = members.remove(0);
        let message = Message {
            operation: pending.operation,
            status: Status::Request,
            flags: if pending.sent > 0 { AGAIN } else { 0 },
            group: pending.group,
            view,
            key_id: 0,
            client: self.client,
            number: pending.number,
            version: 0,
            operand: pending.operand,
            key: pending.key,
            chain: members,
            records: Default::default(),
            room: pending.room,
            value: pending.value.clone(),
        };
        let mut payload = match message.encode() {
            Ok(payload) => payload,
            Err(_) => {
                return Step::Over(Outcome::TooLong(pending.value.as_ref().map_or(0, Vec::len)));
            }
        };
        if let Some(key) = &self.key {
            key.sign(&mut payload);
        }
        // Twice as long each time: a failover takes longer than a lost message.
        let wait = self.retry_us.saturating_mul(1 << pending.sent.min(6));
        pending.next_us = now_us.saturating_add(wait);
        pending.sent += 1;
        Step::Send(Send { to, payload })
    }

    /// A UDP payload came. What is no reply to the request changes nothing.
    pub fn receive(&mut self, pending: &mut Pending, payload: &[u8], now_us: u64) -> Step {
        let Ok(message) = Message::decode(payload) else { return Step::Wait };
        if self.key.as_ref().is_some_and(|key| !key.verify(payload)) {
            self.forged += 1;
            return Step::Wait;
        }
        if message.flags & REPLY == 0
            || message.client != self.client
            || message.number != pending.number
            || message.key != pending.key
        {
            return Step::Wait;
        }
        let moved = message.flags & MOVED != 0;
        let length = message.value.as_ref().map_or(0, Vec::len);
        let shown = Shown { version: message.version, value: message.value, moved };
        match message.status {
            Status::Done => Step::Over(Outcome::Done(shown)),
            Status::Absent => Step::Over(Outcome::Done(Shown { value: None, ..shown })),
            Status::Refused => Step::Over(Outcome::Refused(shown)),
            Status::Full => Step::Over(Outcome::Full),
            Status::NoRoom => Step::Over(Outcome::TooLong(length)),
            Status::Undecided => Step::Over(Outcome::Unknown),
            Status::OldView | Status::WrongSwitch => {
                pending.refused = true;
                if self.learn(message.group, message.view, message.chain) {
                    return self.send(pending, now_us);
                }
                // It told nothing new: the switch itself may be behind.
                Step::Wait
            }
            Status::NoGroup | Status::Unknown => {
                pending.refused = true;
                Step::Wait
            }
            Status::Request => Step::Wait,
        }
    }

    /// A switch told a group's chain: is it newer than what was known?
    fn learn(&mut self, group: u16, view: u32, members: Vec<Ipv4Addr>) -> bool {
        let known = self.chain(group);
        // What the ring places is a guess.
        let guessed = !self.learnt.contains_key(&group) && members != known.members;
        let newer = (view > known.view || guessed) && !members.is_empty();
        if newer {
            self.learnt.insert(group, Chain { view, members });
        }
        newer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchain_protocol::Member;

    fn core() -> Core {
        let member = |i: u8| Member { address: Ipv4Addr::new(10, 9, 0, i), rack: format!("r{i}") };
        Core::new(Ring::new(&[member(1), member(2), member(3)], 10, 3).unwrap(), 77, 1_000, 50_000)
    }

    fn sent(step: Step) -> (Ipv4Addr, Message) {
        let Step::Send(send) = step else { panic!("{step:?}") };
        (send.to, Message::decode(&send.payload).unwrap())
    }

    fn reply(mut message: Message, status: Status) -> Vec<u8> {
        message.flags |= REPLY;
        message.status = status;
        message.chain = vec![];
        message.encode().unwrap()
    }

    #[test]
    fn a_write_goes_to_the_head_and_a_read_to_the_tail() {
        let mut core = core();
        let key = Key::from_name("foo").unwrap();
        let mut put = core.begin(Operation::Put, key, Some(b"x".to_vec()), 0, 0).unwrap();
        let (head, write) = sent(core.time(&mut put, 0));
        let mut get = core.begin(Operation::Read, key, None, 0, 0).unwrap();
        let (tail, read) = sent(core.time(&mut get, 0));
        let chain = core.ring.chain_of(write.group).unwrap();
        assert_eq!((head, tail), (chain[0], chain[2]));
        assert_eq!(write.chain, chain[1..]);
        assert_eq!(read.chain, [chain[1], chain[0]]);
    }

    #[test]
    fn without_a_reply_it_goes_again_and_is_unknown_in_the_end() {
        let mut core = core();
        let key = Key::from_name("foo").unwrap();
        let mut put = core.begin(Operation::Put, key, Some(b"x".to_vec()), 0, 0).unwrap();
        assert_eq!(sent(core.time(&mut put, 0)).1.flags, 0);
        assert_eq!(core.time(&mut put, 999), Step::Wait);
        assert_eq!(sent(core.time(&mut put, 1_000)).1.flags, AGAIN);
        assert_eq!(core.time(&mut put, 2_999), Step::Wait);
        assert_eq!(sent(core.time(&mut put, 3_000)).1.number, 1);
        assert_eq!(core.time(&mut put, 50_000), Step::Over(Outcome::Unknown));
        let mut get = core.begin(Operation::Read, key, None, 0, 0).unwrap();
        sent(core.time(&mut get, 0));
        assert_eq!(core.time(&mut get, 50_000), Step::Over(Outcome::NoChain));
    }

    /// A refusal says nothing of the other copies.
    #[test]
    fn of_several_copies_one_may_have_been_carried_out() {
        let mut core = core();
        let key = Key::from_name("foo").unwrap();
        for (copies, outcome) in [(1, Outcome::NoChain), (2, Outcome::Unknown)] {
            let mut put = core.begin(Operation::Put, key, Some(b"x".to_vec()), 0, 0).unwrap();
            let (_, message) = sent(core.time(&mut put, 0));
            if copies == 2 {
                sent(core.time(&mut put, 1_000));
            }
            for _ in 0..copies {
                core.receive(&mut put, &reply(message.clone(), Status::NoGroup), 2_000);
            }
            assert_eq!(core.time(&mut put, 50_000), Step::Over(outcome));
        }
    }

    #[test]
    fn an_old_view_teaches_the_chain() {
        let mut core = core();
        let key = Key::from_name("foo").unwrap();
        let mut put = core.begin(Operation::Put, key, Some(b"x".to_vec()), 0, 0).unwrap();
        let (_, first) = sent(core.time(&mut put, 0));
        let new = vec![Ipv4Addr::new(10, 9, 0, 3)];
        let mut told = first.clone();
        (told.view, told.flags, told.status) = (2, REPLY, Status::OldView);
        told.chain = new.clone();
        let (to, second) = sent(core.receive(&mut put, &told.encode().unwrap(), 10));
        assert_eq!((to, second.view, second.flags), (new[0], 2, AGAIN));
        let done = core.receive(&mut put, &reply(second, Status::Done), 20);
        assert!(matches!(done, Step::Over(Outcome::Done(_))), "{done:?}");
        // The next request of the group knows.
        let mut get = core.begin(Operation::Read, key, None, 0, 30).unwrap();
        assert_eq!(sent(core.time(&mut get, 30)).0, new[0]);
    }

    /// Else client and switch would send each other messages without end.
    #[test]
    fn a_switch_that_is_behind_is_asked_again_later() {
        let mut core = core();
        let key = Key::from_name("foo").unwrap();
        let mut put = core.begin(Operation::Put, key, Some(b"x".to_vec()), 0, 0).unwrap();
        let (_, first) = sent(core.time(&mut put, 0));
        let behind = reply(first, Status::WrongSwitch);
        assert_eq!(core.receive(&mut put, &behind, 10), Step::Wait);
        sent(core.time(&mut put, 1_000));
    }

    #[test]
    fn what_is_no_reply_to_the_request_changes_nothing() {
        let mut core = core();
        let key = Key::from_name("foo").unwrap();
        let mut put = core.begin(Operation::Put, key, Some(b"x".to_vec()), 0, 0).unwrap();
        let (_, message) = sent(core.time(&mut put, 0));
        let mut other = message.clone();
        other.client += 1;
        assert_eq!(core.receive(&mut put, &reply(other, Status::Done), 1), Step::Wait);
        let mut other = message.clone();
        other.number += 1;
        assert_eq!(core.receive(&mut put, &reply(other, Status::Done), 1), Step::Wait);
        assert_eq!(core.receive(&mut put, &message.encode().unwrap(), 1), Step::Wait);
        assert_eq!(core.receive(&mut put, b"no message", 1), Step::Wait);
    }

    #[test]
    fn a_value_of_129_bytes_is_too_long() {
        let mut core = core();
        let key = Key::from_name("foo").unwrap();
        let begun = core.begin(Operation::Put, key, Some(vec![0; 129]), 0, 0);
        assert_eq!(begun.unwrap_err(), Outcome::TooLong(129));
    }
}
