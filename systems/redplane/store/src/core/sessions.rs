//! Sessions: one lease for all the flows that one life of one switch owns in this shard
//! (`systems/redplane/docs/state-protocol.md`, "Sessions").
//!
//! Who has which session is replicated, by effects. How long it lives is the head's to know, and a
//! new head's to begin anew.

use super::rng::SplitMix64;
use super::seen::Seen;
use foldhash::fast::FixedState;
use state_protocol::Owner;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddrV4;

/// Sessions are iterated over (copies to joining servers, ends of sessions): in an order that the
/// same inputs always give, so that simulated runs replay. (Keys are authenticated switches, so
/// nobody can choose them to collide.)
type InOneOrder = FixedState;

/// A request this much older than the newest of its session is taken for a replay, in ns. Switches,
/// too, take no reply to an older request.
pub const REPLAY_WINDOW_NS: u64 = 1_000_000_000;
/// Switches whose newest life is remembered when it has no session.
const MOST_LIVES: usize = 65_536;

/// Whether the answers of a switch's new bindings come back by it, or by other switches (ECMP picks
/// each way by itself): learnt from those before, as a branch predictor learns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Returns(i8);

impl Returns {
    /// What is behind this is forgotten, so that a change of routes is soon learnt.
    const MOST: i8 = 32;

    /// Whether they do, most probably.
    pub fn are_expected(self) -> bool {
        self.0 >= 0
    }

    /// One did. So is one counted that is granted before it is asked for.
    pub fn came_here(&mut self) {
        self.0 = (self.0 + 1).min(Self::MOST);
    }

    /// One did not; `granted`: it was expected to, so it counts against that as well.
    pub fn came_elsewhere(&mut self, granted: bool) {
        self.0 = (self.0 - 1 - i8::from(granted)).max(-Self::MOST);
    }
}

/// One switch's session.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its number; no other session of the shard ever had or gets it.
    pub number: u32,
    /// Where the switch is reached: where its newest request came from.
    pub client: SocketAddrV4,
    /// Head: it is over at this time, in ns.
    pub lease_until_ns: u64,
    /// Head: `request_ns` of the newest request.
    pub newest_request_ns: u64,
    /// Head: `request_ns` of the newest request of the session before. Which of those up to then
    /// were taken, nobody remembers: none is taken now.
    pub floor_request_ns: u64,
    /// Head: `request_ns` of the newest request that prolonged it; the lease counted from any
    /// request up to this one is over by `lease_until_ns`.
    pub prolonged_request_ns: u64,
    /// Head: `request_ns` of the newest heartbeat.
    pub heartbeat_ns: u64,
    /// Head: recalls of its flows that are unanswered for half a lease. While there are any,
    /// nothing prolongs it.
    pub overdue: u32,
    /// Head: where the answers of its new bindings come.
    pub returns: Returns,
    /// Head: the tags of its requests of the last second.
    pub seen: Seen,
}

/// The newest life of a switch that had a session.
#[derive(Debug, Clone, Copy)]
struct Life {
    incarnation: u32,
    /// Its newest session.
    session: u32,
    /// Head: its newest request when its session ended.
    newest_request_ns: u64,
}

/// Why a session does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSession {
    /// A later life of the switch had one.
    OldIncarnation,
    /// Not newer than the newest request of the session before.
    Replayed,
}

/// All sessions of a shard.
#[derive(Default)]
pub struct Sessions {
    by_owner: HashMap<Owner, Session, InOneOrder>,
    /// The newest life of each switch, so that no replay brings an earlier one back.
    lives: HashMap<u32, Life, InOneOrder>,
    lives_order: VecDeque<u32>,
}

impl Sessions {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_owner.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// A switch's session.
    pub fn of(&self, owner: &Owner) -> Option<&Session> {
        self.by_owner.get(owner)
    }

    /// The same, to change the head's own fields.
    pub fn of_mut(&mut self, owner: &Owner) -> Option<&mut Session> {
        self.by_owner.get_mut(owner)
    }

    /// Whether `number` is the session that `owner` has.
    pub fn is_current(&self, owner: &Owner, number: u32) -> bool {
        self.of(owner).is_some_and(|session| session.number == number)
    }

    /// All sessions, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, &Session)> {
        self.by_owner.iter()
    }

    /// All sessions, to change the head's own fields.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Owner, &mut Session)> {
        self.by_owner.iter_mut()
    }

    /// Whether a session may begin with this request. Incarnations grow
    /// (systems/redplane/docs/state-protocol.md, "Header"), so a lower one is a replay, or a clock
    /// that went back.
    pub fn may_begin(&self, owner: &Owner, request_ns: u64) -> Result<(), NoSession> {
        match self.lives.get(&owner.switch_id) {
            Some(life) if life.incarnation > owner.incarnation => Err(NoSession::OldIncarnation),
            Some(life)
                if life.incarnation == owner.incarnation
                    && request_ns <= life.newest_request_ns =>
            {
                Err(NoSession::Replayed)
            }
            _ => Ok(()),
        }
    }

    /// The newest lives of switches, with their newest sessions, which may be over: what a copy of
    /// the shard needs beside the sessions.
    pub fn lives(&self) -> impl Iterator<Item = (Owner, u32)> {
        self.lives.iter().map(|(switch_id, life)| {
            (Owner { switch_id: *switch_id, incarnation: life.incarnation }, life.session)
        })
    }

    fn remember(&mut self, owner: Owner, session: u32) {
        let life = Life { incarnation: owner.incarnation, session, newest_request_ns: 0 };
        match self.lives.get_mut(&owner.switch_id) {
            Some(known) if known.incarnation < owner.incarnation => *known = life,
            Some(known) if known.incarnation == owner.incarnation => {
                known.session = known.session.max(session)
            }
            Some(_) => {}
            None => {
                self.lives.insert(owner.switch_id, life);
                self.lives_order.push_back(owner.switch_id);
            }
        }
        // The oldest go, so that memory is bounded; those with a session are known by that.
        if self.lives_order.len() > MOST_LIVES
            && let Some(oldest) = self.lives_order.pop_front()
        {
            self.lives.remove(&oldest);
        }
    }

    /// Effect: a session begins, in the place of another. Once more the same: nothing but the
    /// address changes.
    pub(super) fn begin(&mut self, number: u32, owner: Owner, client: SocketAddrV4) {
        if let Some(session) =
            self.by_owner.get_mut(&owner).filter(|session| session.number == number)
        {
            session.client = client;
            return;
        }
        let session = Session {
            number,
            client,
            lease_until_ns: 0,
            newest_request_ns: 0,
            floor_request_ns: 0,
            prolonged_request_ns: 0,
            heartbeat_ns: 0,
            overdue: 0,
            returns: Returns::default(),
            seen: Seen::default(),
        };
        let before =
            self.lives.get(&owner.switch_id).filter(|life| life.incarnation == owner.incarnation);
        let session = Session {
            floor_request_ns: before.map_or(0, |life| life.newest_request_ns),
            ..session
        };
        self.by_owner.insert(owner, session);
        self.remember(owner, number);
    }

    /// Effect: a session ends, if it is still there.
    pub(super) fn end(&mut self, number: u32) {
        let owner = self
            .by_owner
            .iter()
            .find(|(_, session)| session.number == number)
            .map(|(owner, _)| *owner);
        let Some(owner) = owner else { return };
        let Some(session) = self.by_owner.remove(&owner) else { return };
        if let Some(life) = self
            .lives
            .get_mut(&owner.switch_id)
            .filter(|life| life.incarnation == owner.incarnation)
        {
            life.newest_request_ns = life.newest_request_ns.max(session.newest_request_ns);
        }
    }

    /// Digest of the sessions; `full`: with the head's own fields.
    pub(super) fn digest(&self, full: bool) -> u64 {
        let one = |(owner, session): (&Owner, &Session)| {
            let shared = [
                u64::from(owner.switch_id),
                u64::from(owner.incarnation),
                u64::from(session.number),
            ];
            let own = [
                session.lease_until_ns,
                session.newest_request_ns,
                session.heartbeat_ns,
                u64::from(session.overdue),
                session.returns.0 as u64, // signed; only the same bits count
            ];
            let own = own.iter().filter(|_| full);
            shared.iter().chain(own).fold(1, |digest, part| SplitMix64::mix(digest ^ part))
        };
        // A sum does not depend on the map's order.
        let life = |(switch_id, life): (&u32, &Life)| {
            SplitMix64::mix(u64::from(*switch_id) << 32 | u64::from(life.incarnation))
        };
        self.iter().map(one).chain(self.lives.iter().map(life)).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);

    fn owner(incarnation: u32) -> Owner {
        Owner { switch_id: 1, incarnation }
    }

    #[test]
    fn beginning_and_ending_twice_is_the_same_as_once() {
        let mut sessions = Sessions::default();
        sessions.begin(5, owner(1), CLIENT);
        let Some(session) = sessions.of_mut(&owner(1)) else { panic!() };
        (session.lease_until_ns, session.newest_request_ns) = (7, 8);
        sessions.begin(5, owner(1), CLIENT);
        assert_eq!(sessions.of(&owner(1)).map(|session| session.lease_until_ns), Some(7));
        assert!(
            sessions.is_current(&owner(1), 5)
                && !sessions.is_current(&owner(1), 4)
                && !sessions.is_current(&owner(2), 5)
        );
        sessions.end(5);
        sessions.end(5);
        assert!(sessions.is_empty());
        assert_eq!(sessions.may_begin(&owner(1), 8), Err(NoSession::Replayed));
        assert_eq!(sessions.may_begin(&owner(0), 9), Err(NoSession::OldIncarnation));
        assert_eq!(
            (sessions.may_begin(&owner(1), 9), sessions.may_begin(&owner(2), 1)),
            (Ok(()), Ok(()))
        );
    }

    #[test]
    fn returns_are_expected_where_at_least_half_of_them_come() {
        let expected = |here: u32| {
            let mut returns = Returns::default();
            // Of each ten, this number comes here.
            for at in 0..1_000 {
                let (granted, comes_here) = (returns.are_expected(), at * 7 % 10 < here);
                if granted || comes_here {
                    returns.came_here();
                }
                if !comes_here {
                    returns.came_elsewhere(granted);
                }
            }
            (0..10).filter(|_| returns.are_expected()).count()
        };
        assert_eq!((expected(10), expected(8), expected(2), expected(0)), (10, 10, 0, 0));
    }

    #[test]
    fn what_is_remembered_of_the_past_is_bounded() {
        let mut sessions = Sessions::default();
        for switch_id in 1..=MOST_LIVES as u32 + 100 {
            sessions.begin(switch_id, Owner { switch_id, incarnation: 1 }, CLIENT);
            sessions.end(switch_id);
        }
        assert_eq!((sessions.lives.len(), sessions.lives_order.len()), (MOST_LIVES, MOST_LIVES));
    }
}
