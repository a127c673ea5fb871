//! The decisions: who is taken out, who joins, who moves. One change a shard and view.

use super::mutation::{self, Mutation};
use super::{Controller, Event, Outputs, Ring, Seen, Server};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use wire::{Joining, Member, Reporter, ShardReport, ShardView, Views};

/// How long a new or returned server must have been heard of before it is given anything, in ns.
const STEADY_NS: u64 = 200_000_000;
/// After a copy that made no progress the same two servers are not tried again for this long (ns).
const TRY_AGAIN_NS: u64 = 5_000_000_000;

/// A chain that has not drained for so long goes on as it was, in ns.
const MOST_DRAINING_NS: u64 = 1_000_000_000;

/// Why a shard's chain changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The cluster begins.
    Founded,
    /// No server that had the shard's state is left: it begins anew, empty.
    StateLost,
    /// Members died, or cannot be reached, or cannot go on.
    MembersLost,
    /// The server that caught up has everything: it is a member now.
    Joined,
    /// A server begins to catch up.
    Joins,
    /// The server that was catching up died or made no progress.
    JoinGivenUp,
    /// A member is no longer needed: the shard moved.
    Moved,
    /// The head heads more shards than others: it orders nothing more, so that another can take its
    /// place.
    Drains,
    /// Another member is the head now.
    Reordered,
    /// The order stays: the chain did not drain in time, or nothing would be gained any more.
    OrderKept,
}

/// What a server has to say of its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Complaint {
    /// It does not answer.
    Unreachable,
    /// It answers, and confirms nothing: it has not the newest view, or what is sent to it gets
    /// lost.
    Stalled,
}

/// How far a copy is.
pub(super) struct JoinWatch {
    since: u64,
    copied: u64,
    changed_ns: u64,
}

impl Controller {
    /// The next views, if anything is to change.
    pub(super) fn decide(&mut self, now_ns: u64, out: &mut Outputs) -> Option<Views> {
        let ring = self.take_ring(now_ns);
        let mut shards = self.views.shards.clone();
        shards.resize(usize::from(self.settings.shards), ShardView::default());
        let joins = shards.iter().filter(|view| view.joining.is_some()).count();
        let mut cluster = Cluster { ring, joins, heads: Heads::of(&shards) };
        let mut changed = false;
        for (shard, view) in (0u16..).zip(&mut shards) {
            let Some((next, why)) = self.decide_shard(now_ns, shard, view, &cluster) else {
                continue;
            };
            cluster.joins += usize::from(why == Why::Joins);
            cluster.heads.draining += usize::from(why == Why::Drains);
            match why {
                Why::Drains => self.draining_since_ns = now_ns,
                Why::Reordered => {}
                _ => self.changed_ns = now_ns,
            }
            let number = view.number + u64::from(!mutation::planted(Mutation::ViewNumbersAgain));
            let next = ShardView { number, ..next };
            out.events.push(Event::Decided { shard, view: next.clone(), why });
            (*view, changed) = (next, true);
        }
        self.ring = cluster.ring;
        changed.then(|| Views { version: self.views.version + 1, shards })
    }

    /// The ring of the servers as they are now: the one of the last time, if they are the same.
    fn take_ring(&mut self, now_ns: u64) -> Ring {
        let before = std::mem::take(&mut self.ring);
        let servers = || {
            let servers = self.peers.iter().filter(|(_, seen)| seen.reporter == Reporter::Server);
            servers.map(|(address, seen)| self.as_ring_has_it(now_ns, *address, seen))
        };
        if before.is_of(servers()) { before } else { Ring::new(servers()) }
    }

    fn as_ring_has_it<'a>(&self, now_ns: u64, address: SocketAddrV4, seen: &'a Seen) -> Server<'a> {
        let steady = now_ns >= seen.since_ns + STEADY_NS && self.is_alive(now_ns, seen);
        Server { address, machine: &seen.machine, live: !seen.mismatch && steady }
    }

    fn decide_shard(
        &mut self,
        now_ns: u64,
        shard: u16,
        view: &ShardView,
        cluster: &Cluster,
    ) -> Option<(ShardView, Why)> {
        if view.members.is_empty() {
            return self.found(shard, view, cluster, Why::Founded);
        }
        let survivors = self.survivors(now_ns, shard, view);
        if survivors.is_empty() {
            // "Rules of the chain", 6: a synced server has all that was ever answered, from any
            // source. As a member it survives them in the next view.
            if let Some(joined) = self.joined(shard, view) {
                return Some((joined, Why::Joined));
            }
            let superseded = |member: &Member| {
                self.is_superseded(now_ns, member) || mutation::planted(Mutation::EmptyIsLost)
            };
            let lost = view.members.iter().all(superseded);
            return if lost { self.found(shard, view, cluster, Why::StateLost) } else { None };
        }
        if survivors.len() < view.members.len() {
            let same_tail = survivors.last() == view.members.last();
            let joining = view
                .joining
                .filter(|joining| same_tail && self.is_member_alive(now_ns, &joining.member));
            let next = ShardView { members: survivors, joining, draining: false, ..view.clone() };
            return Some((next, Why::MembersLost));
        }
        if let Some(joining) = view.joining {
            return self.decide_joining(now_ns, shard, view, joining);
        }
        if view.draining {
            return self.decide_order(now_ns, shard, view, &cluster.heads);
        }
        self.decide_moving(now_ns, shard, view, cluster)
    }

    fn found(
        &self,
        shard: u16,
        view: &ShardView,
        cluster: &Cluster,
        why: Why,
    ) -> Option<(ShardView, Why)> {
        if cluster.ring.machines() < self.settings.founding_servers {
            return None;
        }
        let members = cluster.ring.servers_of(shard, self.settings.chain_length, &[]);
        let members = members
            .iter()
            .filter_map(|address| Some(self.peers.get(address)?.member(*address)))
            .collect();
        Some((
            ShardView {
                number: 0,
                founded: view.number + 1,
                members,
                joining: None,
                draining: false,
            },
            why,
        ))
    }

    /// The members that are alive and can be reached.
    fn survivors(&self, now_ns: u64, shard: u16, view: &ShardView) -> Vec<Member> {
        let alive = |member: &Member| {
            let broken = self.replica(shard, view, member).is_some_and(|report| report.broken);
            self.is_member_alive(now_ns, member) && !broken
        };
        // What a dead server said of its successor does not count.
        let complaint =
            |before: &Member| self.complaint(shard, view, before).filter(|_| alive(before));
        let links = view.members.iter().zip(view.members.iter().skip(1));
        let complaints: Vec<_> =
            links.filter_map(|(before, after)| Some((*after, complaint(before)?))).collect();
        let unreachable = |member: &Member| complaints.contains(&(*member, Complaint::Unreachable));
        let survivors = view.members.iter().filter(|member| alive(member) && !unreachable(member));
        let mut survivors: Vec<Member> = survivors.copied().collect();
        // A server whose own successor does not go on cannot go on either: of those that stall only
        // the last is at fault, and that only if nobody is gone.
        if survivors.len() == view.members.len()
            && !self.joining_holds_up(now_ns, shard, view)
            && let Some((stalled, _)) = complaints.last()
        {
            survivors.retain(|member| member != stalled);
        }
        survivors
    }

    /// Whether it may be the joining server that a stalled chain waits for: after the handover the
    /// tail answers nothing by itself. The join is given up then, before a member is taken out.
    /// (The tail's word counts earlier than a member's: the members before it began to wait at the
    /// same time, and may be heard first.)
    fn joining_holds_up(&self, now_ns: u64, shard: u16, view: &ShardView) -> bool {
        let (Some(joining), Some(tail)) = (view.joining, view.members.last()) else { return false };
        let dead_ms = self.settings.dead_ns / 1_000_000;
        let waits = |report: &ShardReport| {
            u64::from(report.stalled_ms.max(report.unreachable_ms)) >= dead_ms
        };
        !self.is_member_alive(now_ns, &joining.member)
            || self.replica(shard, view, tail).is_some_and(waits)
    }

    /// What a server says of its successor, as far as it is to be believed: while it hears nobody,
    /// the fault may be its own.
    fn complaint(&self, shard: u16, view: &ShardView, of: &Member) -> Option<Complaint> {
        let dead_ms = self.settings.dead_ns / 1_000_000;
        let seen = self.peers.get(&of.address)?;
        let report = self.replica(shard, view, of)?;
        let hears = seen.heard_ns < seen.hearing_ns + self.settings.dead_ns / 2;
        if hears && u64::from(report.unreachable_ms) >= dead_ms {
            return Some(Complaint::Unreachable);
        }
        (hears && u64::from(report.stalled_ms) >= 2 * dead_ms).then_some(Complaint::Stalled)
    }

    /// What that member last said of its replica, if it was in this view.
    fn replica(&self, shard: u16, view: &ShardView, member: &Member) -> Option<&ShardReport> {
        let seen = self
            .peers
            .get(&member.address)
            .filter(|seen| seen.incarnation == member.incarnation)?;
        seen.replicas.get(&shard).filter(|report| {
            report.view == view.number || mutation::planted(Mutation::OldViewsCount)
        })
    }

    fn is_member_alive(&self, now_ns: u64, member: &Member) -> bool {
        let seen = self.peers.get(&member.address);
        let same = |seen: &Seen| {
            seen.incarnation == member.incarnation || mutation::planted(Mutation::AnyLife)
        };
        seen.is_some_and(|seen| same(seen) && self.is_alive(now_ns, seen))
    }

    /// Whether the process is gone for certain: another one runs in its place, and knows the views
    /// that name this one. (It is sent them when it first reports.) What an even earlier life once
    /// reported, and anybody may send again, is older than they are.
    fn is_superseded(&self, now_ns: u64, member: &Member) -> bool {
        let later = |seen: &Seen| {
            seen.incarnation != member.incarnation && seen.version >= self.views.version
        };
        self.peers
            .get(&member.address)
            .is_some_and(|seen| later(seen) && self.is_alive(now_ns, seen))
    }

    /// The chain with the server that catches up as a member, if it is synced.
    fn joined(&self, shard: u16, view: &ShardView) -> Option<ShardView> {
        let joining = view.joining?;
        let own = self.replica(shard, view, &joining.member)?;
        let members = || view.members.iter().copied().chain([joining.member]).collect();
        let synced = own.synced || mutation::planted(Mutation::MemberBeforeSynced);
        (synced && !own.broken).then(|| ShardView {
            members: members(),
            joining: None,
            ..view.clone()
        })
    }

    fn decide_joining(
        &mut self,
        now_ns: u64,
        shard: u16,
        view: &ShardView,
        joining: Joining,
    ) -> Option<(ShardView, Why)> {
        if let Some(joined) = self.joined(shard, view) {
            return Some((joined, Why::Joined));
        }
        let own = self.replica(shard, view, &joining.member).copied();
        let tail = *view.members.last()?;
        let report = self.replica(shard, view, &tail).copied().unwrap_or_default();
        let watch = self.joins.entry(shard).or_insert(JoinWatch {
            since: 0,
            copied: 0,
            changed_ns: now_ns,
        });
        if watch.since != joining.since || watch.copied != report.copied {
            *watch = JoinWatch { since: joining.since, copied: report.copied, changed_ns: now_ns };
        }
        let stuck = now_ns >= watch.changed_ns + self.settings.join_timeout_ns;
        // After the handover the tail answers through the joining server only: if that is cut off,
        // nobody answers.
        let cut_off = self.complaint(shard, view, &tail).is_some();
        let gone = !self.is_member_alive(now_ns, &joining.member)
            || own.is_some_and(|report| report.broken);
        if stuck || cut_off {
            self.failed_joins.insert((tail.address, joining.member.address), now_ns + TRY_AGAIN_NS);
        }
        let given_up = ShardView { joining: None, ..view.clone() };
        let over = (stuck || cut_off || gone) && !mutation::planted(Mutation::JoinsForEver);
        over.then_some((given_up, Why::JoinGivenUp))
    }

    fn decide_moving(
        &self,
        now_ns: u64,
        shard: u16,
        view: &ShardView,
        cluster: &Cluster,
    ) -> Option<(ShardView, Why)> {
        let Cluster { ring, joins, heads, .. } = cluster;
        // One thing after the other: everybody is in this view, and the chain runs.
        let settled =
            |member: &Member| self.replica(shard, view, member).is_some_and(|report| report.ready);
        if !view.members.iter().all(settled) {
            return None;
        }
        let members: Vec<_> = view.members.iter().map(|member| member.address).collect();
        let wanted = ring.servers_of(shard, self.settings.chain_length, &members);
        if view.members.len() > self.settings.chain_length {
            let at = view.members.iter().rposition(|member| !wanted.contains(&member.address));
            let mut members = view.members.clone();
            let at = at.unwrap_or(members.len() - 1);
            if at == 0 && !self.switches_listen(now_ns) {
                return None;
            }
            members.remove(at);
            return Some((ShardView { members, ..view.clone() }, Why::Moved));
        }
        if *joins >= self.settings.most_joins {
            return None;
        }
        let tail = view.members.last()?.address;
        let free = |address: &&SocketAddrV4| {
            let in_chain = view.members.iter().any(|member| member.address == **address);
            !in_chain && !self.failed_joins.contains_key(&(tail, **address))
        };
        let Some(address) = wanted.iter().find(free).copied() else {
            let calm = *joins == 0
                && heads.draining == 0
                && now_ns >= self.changed_ns + self.settings.reorder_after_ns;
            let gain = calm && heads.better(view).is_some() && self.switches_listen(now_ns);
            return gain.then(|| (ShardView { draining: true, ..view.clone() }, Why::Drains));
        };
        let member =
            self.peers.get(&address).filter(|seen| self.is_alive(now_ns, seen))?.member(address);
        let joining = Some(Joining { member, since: view.number + 1 });
        Some((ShardView { joining, ..view.clone() }, Why::Joins))
    }

    /// Has no switch been silent lately? One whose agent is away goes on forwarding, and goes on
    /// asking the heads that it knew: so heads that live stay heads meanwhile. (A switch that is
    /// dead looks the same; after a minute it is forgotten. An agent that is back reports from
    /// another port.)
    fn switches_listen(&self, now_ns: u64) -> bool {
        let switches = || self.peers.values().filter(|seen| seen.reporter != Reporter::Server);
        let listens = |it: &Seen| {
            switches().any(|seen| seen.reporter == it.reporter && self.is_alive(now_ns, seen))
        };
        switches().all(listens)
    }

    /// A chain that has drained can go on in any order: all members have the same entries.
    fn decide_order(
        &self,
        now_ns: u64,
        shard: u16,
        view: &ShardView,
        heads: &Heads,
    ) -> Option<(ShardView, Why)> {
        let kept = ShardView { draining: false, ..view.clone() };
        let Some(better) = heads.better(view) else { return Some((kept, Why::OrderKept)) };
        let head = view.members.first()?;
        if self
            .replica(shard, view, head)
            .is_some_and(|report| report.drained || mutation::planted(Mutation::ReorderedUndrained))
        {
            let mut members = view.members.clone();
            members.rotate_left(better);
            return Some((ShardView { members, ..kept }, Why::Reordered));
        }
        (now_ns >= self.draining_since_ns + MOST_DRAINING_NS).then_some((kept, Why::OrderKept))
    }
}

/// What all shards' decisions are made by.
struct Cluster {
    ring: Ring,
    /// Servers that catch up.
    joins: usize,
    heads: Heads,
}

/// How many shards each server heads, and how many drain.
struct Heads {
    counts: HashMap<SocketAddrV4, usize>,
    draining: usize,
}

impl Heads {
    fn of(shards: &[ShardView]) -> Heads {
        let mut counts = HashMap::new();
        for head in shards.iter().filter_map(|view| view.members.first()) {
            *counts.entry(head.address).or_default() += 1;
        }
        Heads { counts, draining: shards.iter().filter(|view| view.draining).count() }
    }

    /// The place of the member that should be the head instead: the one that heads the fewest
    /// shards, if the difference is two or more (so it does not go to and fro).
    fn better(&self, view: &ShardView) -> Option<usize> {
        let count = |member: &Member| self.counts.get(&member.address).copied().unwrap_or(0);
        let place = (0..view.members.len()).min_by_key(|place| count(&view.members[*place]))?;
        (count(view.members.first()?) >= count(&view.members[place]) + 2).then_some(place)
    }
}
