//! Views: a replica's place in the chain, and how it changes.

use crate::copy::{CopyIn, CopyOut};
use crate::link::{Downstream, Upstream};
use crate::log::Log;
use crate::mutation::{self, Mutation};
use crate::{BrokenReason, Entries, Event, Outputs, Replica, Role, StateMachine};
use std::net::SocketAddrV4;
use wire::ShardView;

/// What a newer view made of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adopted {
    /// The replica began with it, without state: what an earlier chain promised is not known here.
    pub began: bool,
    /// The replica became the head with it. What earlier heads put down the chain is here; what
    /// they alone knew is not.
    pub became_head: bool,
}

/// The neighbours of a replica in a chain that does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steady {
    /// Number of the view.
    pub view: u64,
    /// The member before this one; `None`: this is the head.
    pub previous: Option<SocketAddrV4>,
    /// The member behind this one; `None`: this is the tail.
    pub next: Option<SocketAddrV4>,
}

impl<S: StateMachine> Replica<S> {
    /// This member's neighbours, while an update may go through the chain without an entry: it
    /// changes a record that is everywhere, nobody joins, the order stays, and nothing needs to be
    /// durable. `None`: every update needs an entry.
    pub fn steady(&self) -> Option<Steady> {
        let members = &self.view.members;
        let place = members.iter().position(|member| *member == self.me)?;
        let joins = self.view.joining.is_some() && !mutation::planted(Mutation::SteadyWhileJoining);
        let changes = joins || self.view.draining;
        let whole = self.synced && self.broken.is_none() && (place > 0 || self.is_ready());
        if changes || !whole || self.durability.is_some() {
            return None;
        }
        Some(Steady {
            view: self.view.number,
            previous: place.checked_sub(1).map(|before| members[before].address),
            next: members.get(place + 1).map(|next| next.address),
        })
    }

    /// Takes a newer view of the shard. The caller has seen that this replica is in it. `None`: it
    /// is not newer, or it counts on state that is not here, and the replica is broken.
    pub fn adopt(&mut self, now_ns: u64, view: &ShardView, out: &mut Outputs) -> Option<Adopted> {
        if view.number <= self.view.number {
            return None;
        }
        let before = self.role();
        let place = view.members.iter().position(|member| *member == self.me);
        let restored = self
            .durability
            .as_mut()
            .is_some_and(|durability| std::mem::take(&mut durability.restored));
        let began = self.view.number == 0 && !restored;
        if began {
            // A member that has no replica saw no view of this founding, and nothing was
            // acknowledged without it: an empty replica is synced.
            self.synced = place.is_some();
            if self.synced {
                self.journal_begin(view.founded, 0);
            }
        }
        self.view = view.clone();
        match place {
            Some(place) => self.adopt_as_member(now_ns, place, restored),
            None => self.adopt_as_joining(),
        }
        let role = self.role();
        out.events.push(Event::View { shard: self.settings.shard, number: view.number, role });
        if place.is_some() && !self.synced {
            self.break_chain(BrokenReason::MemberWithoutState, out);
            return None;
        }
        self.answer_what_nobody_follows(out);
        self.notice_ready(out);
        Some(Adopted { began, became_head: role == Role::Head && before != Role::Head })
    }

    fn adopt_as_member(&mut self, now_ns: u64, place: usize, restored: bool) {
        let members = &self.view.members;
        self.copy_in = None;
        self.up = place.checked_sub(1).map(|before| Upstream::new(members[before]));
        self.down = members.get(place + 1).map(|peer| Downstream::new(*peer, now_ns));
        let joining = self.view.joining.filter(|_| place + 1 == members.len());
        // A copy goes on through changes farther up the chain.
        let same = |copy: &CopyOut<S::Piece>| {
            joining.is_some_and(|j| j.member == copy.peer && j.since == copy.since)
        };
        self.copy_out = self.copy_out.take().filter(same);
        if let Some(joining) = joining.filter(|_| restored) {
            // It may have handed over before it lost power. If it had not, the joining replica
            // never is synced, and is given up.
            self.copy_out = Some(CopyOut::handed_over_to(joining.member, joining.since));
        }
        match (&self.copy_out, joining) {
            (Some(copy), _) if copy.handed_over => {
                self.down = Some(Downstream::new(copy.peer, now_ns))
            }
            (None, Some(joining)) => {
                self.copy_out = Some(CopyOut::new(joining.member, joining.since))
            }
            _ => {}
        }
    }

    fn adopt_as_joining(&mut self) {
        let (Some(joining), Some(tail)) = (self.view.joining, self.view.members.last()) else {
            return;
        };
        (self.up, self.down, self.copy_out) = (Some(Upstream::new(*tail)), None, None);
        if self.copy_in.as_ref().is_none_or(|copy| copy.since != joining.since) {
            self.copy_in = Some(CopyIn::new(joining.since));
            self.state = self.state.empty();
            self.journal_begin(self.view.founded, joining.since);
            (self.index, self.committed, self.synced, self.log) = (0, 0, false, Log::new(1));
        }
    }

    /// Whether entries are answered here: no successor, and none that joins has taken over the
    /// answering.
    pub(crate) fn answers(&self) -> bool {
        self.down.is_none()
    }

    /// Answers what no successor will answer, and what was not durable so far. When the tail's
    /// successor is gone, whatever it did not confirm is answered from here. It may have answered
    /// some of it: then the client gets that twice, as from any network; not at all would leave it
    /// waiting for ever.
    pub(crate) fn answer_what_nobody_follows(&mut self, out: &mut Outputs) {
        if !self.answers() || !self.synced {
            return;
        }
        let last = self.durable();
        for index in self.log.first()..=last.min(self.log.last()) {
            let entry = self.log.at(index).and_then(|bytes| Entries::<S>::one(bytes).ok());
            let Some(entry) = entry else { continue };
            if !entry.reply.is_empty() {
                self.counters.replies += 1;
                out.push(entry.client, entry.reply);
            }
        }
        self.committed = last;
        self.log.forget(last);
        if let Some(up) = &mut self.up {
            up.ack_due = true;
        }
    }
}
