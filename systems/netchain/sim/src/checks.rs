//! What must hold at each instant, and in the end.

use crate::frames::machine_at;
use crate::scenario::{Ask, List, Machine};
use crate::world::{MS, World};
use netchain_controller::{Stage, Standing};
use netchain_protocol::Operation;
use std::net::Ipv4Addr;

/// After the faults, requests that are under way are over after this time.
const REQUESTS_END_NS: u64 = 1_500 * MS;
/// After the faults, all chains are whole again after this time.
const WHOLE_AFTER_NS: u64 = 5_000 * MS;
/// Then, each chain has the members that the ring wants after this time.
const MOVED_AFTER_NS: u64 = 20_000 * MS;
/// Then a request is carried out within this time, and a listing is over.
const ANSWERED_AFTER_NS: u64 = 500 * MS;

impl World<'_> {
    /// Do all groups serve, with all members that they should have? (One that an operator wanted
    /// replaced may have got one more.)
    pub(crate) fn is_whole(&self) -> bool {
        let state = &self.control.disk;
        let members = self.ring.founding().failures + 1;
        let whole = |group: &netchain_controller::Group| match group.stage {
            Stage::Lost => true,
            Stage::Serving => group.joining.is_none() && group.chain.len() >= members,
            Stage::Paused { .. } => false,
        };
        let back = |(address, switch): (&Ipv4Addr, &netchain_controller::Switch)| {
            let Machine::Switch(at) = machine_at(*address) else { return false };
            let node = self.hosts.get(at).and_then(|host| host.node.as_ref());
            let lives = |node: &crate::node::Node<'_>| {
                node.incarnation == switch.incarnation && node.follower.applied() == state.version
            };
            switch.standing == Standing::Serving && node.is_some_and(lives)
        };
        state.groups.iter().all(whole) && state.switches.iter().all(back)
    }

    /// Do all groups that are not lost have the members that the ring wants, and its reader? (A
    /// head stays where it is, and a reader that nobody stands in for.)
    fn has_moved(&self) -> bool {
        let members = self.ring.founding().failures + 1;
        let mut groups = self.control.disk.groups.iter().zip(self.control.walks.groups());
        let is_in_place = |(group, walk): (&netchain_controller::Group, &Vec<Ipv4Addr>)| {
            let (wanted, spares) = walk.split_at(members);
            let reads = [group.chain.first(), group.chain.last()].contains(&wanted.last());
            group.stage == Stage::Lost
                || group.chain.len() == members
                    && wanted.iter().all(|it| group.chain.contains(it))
                    && (reads || spares.is_empty())
        };
        self.is_whole() && groups.all(is_in_place)
    }

    /// Do all groups serve at the beginning?
    pub(crate) fn serves(&self) -> bool {
        self.is_whole()
    }

    /// Invariant 1 of the paper: each member's version of a key is at least its successor's.
    pub(crate) fn check_order(&mut self) {
        for key in self.keys.clone() {
            let group = usize::from(self.ring.group_of(&key));
            let Some(group) = self.control.disk.groups.get(group) else { continue };
            let full: Vec<Ipv4Addr> = group.full().collect();
            let mut before: Option<(Ipv4Addr, u64)> = None;
            for address in full {
                let incarnation = self.control.disk.switches.get(&address).map(|it| it.incarnation);
                let Machine::Switch(at) = machine_at(address) else { continue };
                let node = self.hosts.get_mut(at).and_then(|host| host.node.as_mut());
                // (One that has no power, or lost its slots, is about to leave.)
                let Some(node) = node.filter(|node| Some(node.incarnation) == incarnation) else {
                    continue;
                };
                // (Without a slot 0: of a chain that collects, the head frees its slot last.)
                let (version, _) = node.state(&key);
                if let Some((first, newest)) = before
                    && newest < version
                {
                    let detail = format!(
                        "key {}: {first} has version {newest:x}, {address} behind it {version:x}",
                        key.0[1]
                    );
                    return self.violated("order", detail);
                }
                before = Some((address, version));
            }
        }
    }

    /// After the steps: faults end, all requests end, chains become whole, and every key is served.
    pub(crate) fn finish(&mut self) {
        self.heal();
        let waiting = |world: &World<'_>| world.clients.iter().all(|it| it.waiting() == 0);
        if !self.wait_for(REQUESTS_END_NS, waiting) {
            return self.violated("progress", "a request does not end".to_owned());
        }
        if !self.wait_for(WHOLE_AFTER_NS, |world| world.is_whole()) {
            let state = &self.control.disk;
            let dead: Vec<&Ipv4Addr> = state
                .switches
                .iter()
                .filter(|(_, it)| it.standing != Standing::Serving)
                .map(|(address, _)| address)
                .collect();
            let detail = format!("groups {:?}, dead {dead:?}", state.groups);
            return self.violated("whole", detail);
        }
        if !self.wait_for(MOVED_AFTER_NS, |world| world.has_moved()) {
            let detail = format!("{:?}, wanted {:?}", self.control.disk, self.control.walks);
            return self.violated("moved", detail);
        }
        for key in 0..self.keys.len() {
            for operation in [Operation::Put, Operation::Read] {
                self.is_served(key, operation);
            }
        }
        self.is_listed();
        self.check_order();
    }

    /// A request for a key is carried out, and one of a lost group's key says so. (The first write
    /// of a client after a failover may be unknown: design.md, "Known holes".)
    fn is_served(&mut self, key: usize, operation: Operation) {
        let group = usize::from(self.ring.group_of(&self.keys[key]));
        let client = key % self.clients.len();
        let mut gave = vec![];
        while gave.len() < 2 {
            if self.violation.is_some() {
                return;
            }
            let (number, decided) = (self.history.begun(), self.decided.len());
            self.ask(Ask { client, operation, key, length: 8, back: 0 });
            self.wait_for(ANSWERED_AFTER_NS, |world| world.clients[client].waiting() == 0);
            let what = self.history.outcome(number);
            let lost = self.control.disk.groups[group].stage == Stage::Lost;
            let good = if lost { what == "lost" } else { matches!(what, "done" | "full") };
            if good {
                return;
            }
            if self.was_whole_too_early(decided) {
                continue;
            }
            gave.push(what);
            if what != "unknown" || operation == Operation::Read {
                break;
            }
        }
        let stage = self.control.disk.groups[group].stage;
        let detail = format!("key {key}: {operation:?} gives {gave:?}; its group is {stage:?}");
        self.violated("progress", detail);
    }

    /// Listings are over, and one more says of the lost groups, and of no other one, that its keys
    /// are missing.
    fn is_listed(&mut self) {
        let over = |world: &World<'_>| world.clients.iter().all(|it| it.listings() == 0);
        let decided = self.decided.len();
        if !self.wait_for(ANSWERED_AFTER_NS, over) && !self.was_whole_too_early(decided) {
            return self.violated("progress", "a listing does not end".to_owned());
        }
        while self.violation.is_none() {
            let decided = self.decided.len();
            self.list(List { client: 0, key: 0, bytes: 0, pause_ns: 0 });
            self.wait_for(ANSWERED_AFTER_NS, over);
            let groups = (0..).zip(&self.control.disk.groups);
            let lost = groups.filter(|(_, group)| group.stage == Stage::Lost).map(|(at, _)| at);
            let (lost, missing) = (lost.collect::<Vec<u16>>(), self.history.last_not_listed());
            if missing.as_ref() == Some(&lost) {
                return;
            }
            if !self.was_whole_too_early(decided) {
                let detail = format!("groups {lost:?} are lost; not listed are {missing:?}");
                self.violated("progress", detail);
            }
        }
    }

    /// Did the controller only now notice that a switch had stood still? Then waits until it is
    /// whole again, and nobody waits for an answer.
    fn was_whole_too_early(&mut self, decided: usize) -> bool {
        if self.decided.len() == decided {
            return false;
        }
        let idle = |world: &World<'_>| {
            world.clients.iter().all(|it| it.waiting() == 0 && it.listings() == 0)
        };
        if !self.wait_for(WHOLE_AFTER_NS, |world| world.is_whole() && idle(world)) {
            self.violated("whole", "not again, after a switch had stood still".to_owned());
        }
        true
    }

    /// Lets time pass until then, or until something is so. False: it is not.
    fn wait_for(&mut self, most_ns: u64, is: impl Fn(&World<'_>) -> bool) -> bool {
        let until_ns = self.now_ns + most_ns;
        while self.violation.is_none() && !is(self) && self.now_ns < until_ns {
            self.advance(10 * MS);
        }
        self.violation.is_some() || is(self)
    }
}
