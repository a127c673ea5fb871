//! Runs that are written out, and not drawn: what random ones do not come to.

use super::access::{Access, Op};
use super::switch::CPUS;
use super::{Chains, Event, Held, KEYS, LEASE_NS, SLOW_TICK_NS, TICK_NS, View, World};
use crate::model::{Checked, Violation, violated};
use crate::program::PAIRS_KEYS;
use simnet::Conditions;
use swish_protocol::strong::{flag, kind, outcome};

/// Keys of a table: a copy of both tables has several parts.
const COPIED_KEYS: u32 = 80;

impl Held {
    fn new(to: usize, kind: u8) -> Held {
        Held { to, kind, frames: vec![] }
    }
}

impl World<'_> {
    /// What is held arrives now.
    fn let_go(&mut self) {
        if let Some(Held { to, frames, .. }) = self.held.take() {
            frames.into_iter().for_each(|it| self.events.push(self.now_ns, Event::Arrives(to, it)));
        }
    }

    /// A packet, and a millisecond; what it was answered, if it was.
    pub(super) fn answer(&mut self, place: usize, op: Op) -> Checked<Option<Option<u32>>> {
        let id = self.history.len();
        self.packet(place, op)?;
        self.until(self.now_ns + 2 * TICK_NS)?;
        Ok(self.history[id].1.returned.map(|(_, found)| found))
    }
}

impl World<'_> {
    /// How many keys a member has in the first table that does not have so many.
    fn keys_unlike(&self, wanted: u32) -> Checked<Option<u32>> {
        let keys: Vec<u32> = self.members.iter().map(|it| it.keys()).collect::<Checked<_>>()?;
        Ok(keys.into_iter().find(|it| *it != wanted))
    }
}

/// Packets that come at once.
const AT_ONCE: u32 = 12;

impl Chains<'_> {
    /// A packet that waits gives its place in the window back, and takes one when it leaves. So of
    /// many at once some leave, and the others are dropped, as there are fewer places: they count
    /// nowhere. What they wrote stands.
    ///
    /// # Errors
    /// It is not so.
    pub fn a_full_window_drops_what_waited(&mut self) -> Result<(), Violation> {
        const MS: u64 = 1_000_000;
        self.load(3)?;
        self.members[..3].iter_mut().for_each(|it| it.bound(CPUS.into()));
        let mut world = World::quiet(1, TICK_NS, &mut self.members[..3])?;
        world.until(4 * LEASE_NS)?;
        let first = world.history.len();
        for number in 0..AT_ONCE {
            world.packet(0, Op { access: Access::Set(7), key: number % KEYS })?;
        }
        world.until(world.now_ns + 5 * MS)?;
        let left = world.history[first..].iter().filter(|it| it.1.returned.is_some()).count();
        if left == 0 || left == AT_ONCE as usize {
            return violated("full", format!("{left} of {AT_ONCE} packets left"));
        }
        for key in 0..KEYS {
            world.until(world.now_ns + 5 * MS)?;
            let read = world.answer(1, Op { access: Access::Read, key })?;
            if read != Some(Some(7)) {
                return violated(
                    "full",
                    format!("{read:?} is read of key {key}, not what was set"),
                );
            }
        }
        world.until(world.now_ns + 5 * MS)?;
        world.check()
    }

    fn three(&mut self) -> Checked<World<'_>> {
        self.load(3)?;
        let mut world = World::quiet(1, TICK_NS, &mut self.members[..3])?;
        world.until(4 * LEASE_NS)?;
        Ok(world)
    }

    /// A round that began before a member was removed, and reaches it long after, does not let it
    /// read for longer than the others wait.
    ///
    /// # Errors
    /// The removed member reads what is over.
    pub fn a_late_round_lends_no_time(&mut self) -> Result<(), Violation> {
        const MS: u64 = 1_000_000;
        let mut world = self.three()?;
        world.held = Some(Held::new(2, kind::ROUND));
        world.until(world.now_ns + LEASE_NS / 4)?;
        if world.held.as_ref().is_none_or(|held| held.frames.is_empty()) {
            return violated("harness", "no round is under way");
        }
        let removed_ns = world.now_ns;
        world.dead[2] = Some(false);
        world.decided(View {
            chain: vec![0, 1],
            lease_ns: LEASE_NS,
            wait_ns: LEASE_NS,
            ..View::default()
        });
        world.until(removed_ns + LEASE_NS - 4 * MS)?;
        world.let_go();
        world.until(removed_ns + LEASE_NS + MS)?;
        let write = world.history.len();
        world.packet(0, Op { access: Access::Set(7), key: 1 })?;
        world.until(removed_ns + LEASE_NS + 4 * MS)?;
        if world.history[write].1.returned.is_none() {
            return violated("progress", "the new view does not answer");
        }
        world.answer(2, Op { access: Access::Read, key: 1 })?;
        world.check()
    }

    /// A joiner that has all parts of a copy, and lacks a batch that was written between two of
    /// them, does not read.
    ///
    /// # Errors
    /// It reads half of the batch, or nothing afterwards.
    pub fn a_joiner_reads_no_copy_of_two_moments(&mut self) -> Result<(), Violation> {
        let mut world = self.three()?;
        for key in 0..COPIED_KEYS {
            world.packet(0, Op { access: Access::Insert(5), key })?;
            world.until(world.now_ns + TICK_NS)?;
        }
        let view = View { lease_ns: LEASE_NS, wait_ns: LEASE_NS, ..View::default() };
        world.dead[2] = Some(true);
        world.decided(View { chain: vec![0, 1], ..view.clone() });
        world.until(world.now_ns + 4 * LEASE_NS)?;
        world.members[2].empty()?;
        world.events.push(world.now_ns, Event::Tick(2));
        (world.dead[2], world.told[2]) = (None, 0);
        world.held = Some(Held::new(2, kind::BATCH));
        world.decided(View { chain: vec![0, 1, 2], joins: vec![2], wait_ns: 0, ..view });
        // (What comes before it was told of its view is lost.)
        let until_ns = world.now_ns + 4 * LEASE_NS;
        let mut parts = world.parts;
        while world.parts == parts && world.now_ns < until_ns {
            world.until(world.now_ns + TICK_NS / 50)?;
            if world.told[2] == 0 {
                parts = world.parts;
            }
        }
        // The first part has the key as it is now, in the first table; a later one has the other.
        world.packet(0, Op { access: Access::Set(9), key: 0 })?;
        world.until(world.now_ns + 4 * LEASE_NS)?;
        if world.parts < parts + 4 {
            return violated("harness", format!("a copy of {} parts", world.parts - parts));
        }
        world.answer(2, Op { access: Access::Read, key: 0 })?;
        world.let_go();
        world.until(world.now_ns + 4 * LEASE_NS)?;
        match world.answer(2, Op { access: Access::Read, key: 0 })? {
            Some(Some(9)) => world.check(),
            other => violated(
                "progress",
                format!("{other:?} is read after all: {}", world.members[2].node()),
            ),
        }
    }

    /// Only a removal puts a key on the list of removed ones: a write would make the switches
    /// forget removed keys early.
    ///
    /// # Errors
    /// It is not so.
    pub fn only_removals_are_listed(&mut self) -> Result<(), Violation> {
        let mut world = self.three()?;
        let writes = [Access::Insert(5), Access::Set(6), Access::Set(7), Access::Add(8)];
        for access in writes.into_iter().chain([Access::Remove]) {
            if world.answer(0, Op { access, key: 1 })?.is_none() {
                return violated("progress", format!("{access:?} is not answered"));
            }
        }
        world.until(world.now_ns + LEASE_NS)?;
        for (place, member) in world.members.iter().enumerate() {
            // (The packet removes the key from two tables.)
            let listed = member.removed()?;
            if listed != 2 {
                return violated("places", format!("{place} has {listed} removed keys, not 2"));
            }
        }
        world.check()
    }

    /// A key that is set for some seconds stays while packets come, at whatever switch, and then
    /// leaves all switches.
    ///
    /// # Errors
    /// It does not.
    pub fn keys_are_kept_while_packets_come(&mut self) -> Result<(), Violation> {
        const SECOND_NS: u64 = 1_000_000_000;
        self.load(3)?;
        let mut world = World::quiet(1, SLOW_TICK_NS, &mut self.members[..3])?;
        // (Nobody may read before some rounds.)
        world.until(SECOND_NS / 2)?;
        let mut at = |place: usize, seconds: u64, access: Access, wanted: Option<u32>| {
            world.until(seconds * SECOND_NS)?;
            let id = world.history.len();
            world.packet(place, Op { access, key: 1 })?;
            world.until(seconds * SECOND_NS + SECOND_NS / 10)?;
            match world.history[id].1.returned {
                Some((_, found)) if found == wanted => Ok(()),
                other => violated("time", format!("after {seconds} s: {other:?}, not {wanted:?}")),
            }
        };
        at(0, 1, Access::Lend(7), None)?;
        at(1, 3, Access::Read, Some(7))?;
        at(2, 6, Access::Read, Some(7))?;
        at(1, 12, Access::Read, None)?;
        at(1, 12, Access::Insert(8), None)?;
        at(2, 13, Access::Remove, None)?;
        at(0, 14, Access::Lend(9), None)?;
        at(0, 17, Access::Ask, Some(0))?;
        at(1, 19, Access::Ask, None)?;
        world.until(22 * SECOND_NS)?;
        for member in world.members.iter() {
            if member.keys()? > 0 {
                return violated("time", "a key is there for longer than it is kept");
            }
        }
        Ok(())
    }

    /// Keys that an operator writes for some seconds leave all switches after them, also one that
    /// is written only if it is absent.
    ///
    /// # Errors
    /// They do not.
    pub fn keys_of_operators_are_over(&mut self) -> Result<(), Violation> {
        const SECOND_NS: u64 = 1_000_000_000;
        self.load(3)?;
        let mut world = World::quiet(1, SLOW_TICK_NS, &mut self.members[..3])?;
        world.until(SECOND_NS)?;
        for (key, flags) in [(1, 0), (2, flag::ABSENT)] {
            world.members[1].lend(key, flags, 2, world.now_ns)?;
        }
        for (seconds, wanted) in [(2, 2), (10, 0)] {
            world.until(seconds * SECOND_NS)?;
            if let Some(keys) = world.keys_unlike(wanted)? {
                let detail = format!("after {seconds} s: {keys} keys, not {wanted}");
                return violated("time", detail);
            }
        }
        Ok(())
    }

    /// A table that was full, and from which all keys were removed, has room for as many others.
    ///
    /// # Errors
    /// A key that was written is not there.
    pub fn places_are_used_again(&mut self) -> Result<(), Violation> {
        self.load(2)?;
        let mut world = World::quiet(1, TICK_NS, &mut self.members[..2])?;
        world.until(4 * LEASE_NS)?;
        for round in 0..3 {
            let keys = round * PAIRS_KEYS..(round + 1) * PAIRS_KEYS;
            for (access, wanted) in [
                (Access::Set(round + 1), None),
                (Access::Read, Some(Some(round + 1))),
                (Access::Remove, None),
            ] {
                for key in keys.clone() {
                    let found = world.answer(0, Op { access, key })?;
                    if found.is_none() || wanted.is_some_and(|it| found != Some(it)) {
                        return violated("places", format!("{access:?} of {key}: {found:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// A key whose time is over, and which the head has not removed yet, counts as absent: a packet
    /// inserts it at once. An operator's write that asks that it is absent is refused until it is
    /// removed, and not for longer.
    ///
    /// # Errors
    /// It is not so.
    pub fn what_is_over_is_absent(&mut self) -> Result<(), Violation> {
        const SECOND_NS: u64 = 1_000_000_000;
        const IDLE_S: u16 = 2;
        self.load(3)?;
        let mut world = World::quiet(1, SLOW_TICK_NS, &mut self.members[..3])?;
        world.until(SECOND_NS)?;
        for key in [1, 2] {
            world.members[1].lend(key, 0, IDLE_S, world.now_ns)?;
        }
        // (The head removes them two seconds after their time.)
        world.until((2 + u64::from(IDLE_S)) * SECOND_NS + SECOND_NS * 6 / 10)?;
        if let Some(keys) = world.keys_unlike(2)? {
            return violated("harness", format!("{keys} keys: they are removed already"));
        }
        let insert = world.history.len();
        world.packet(2, Op { access: Access::Insert(8), key: 1 })?;
        for (seconds, wanted) in [(0, outcome::REFUSED), (3, outcome::DONE)] {
            world.until(world.now_ns + seconds * SECOND_NS)?;
            let order = world.members[0].lend(2, flag::ABSENT, 0, world.now_ns)?;
            world.until(world.now_ns + SECOND_NS / 10)?;
            match world.members[0].lent(order, world.now_ns)? {
                it if it == wanted => {}
                it => return violated("time", format!("an order ends with {it}, not {wanted}")),
            }
            match world.history[insert].1.returned {
                Some((_, None)) => {}
                other => return violated("time", format!("an insert is answered {other:?}")),
            }
        }
        world.keys_unlike(2)?.map_or(Ok(()), |keys| violated("time", format!("{keys} keys")))
    }

    /// At the last one of two members, which is not behind when its requests get lost: packets for
    /// which a batch has no room wait, and requests that were lost are sent again.
    ///
    /// # Errors
    /// A packet has no answer.
    pub fn all_packets_are_answered(&mut self) -> Result<(), Violation> {
        const PACKETS: u32 = 200;
        self.load(2)?;
        let mut world = World::quiet(1, TICK_NS, &mut self.members[..2])?;
        world.until(4 * LEASE_NS)?;
        for lost in [false, true] {
            let loss = if lost { 1.0 } else { 0.0 };
            world.network.set_conditions(Conditions { loss, ..Conditions::GOOD });
            for key in 0..PACKETS {
                world.packet(1, Op { access: Access::Set(1), key: key % KEYS })?;
            }
            world.until(world.now_ns + TICK_NS)?;
            world.network.heal(40_000);
            world.until(world.now_ns + 100 * TICK_NS)?;
            let missing = world.history.iter().filter(|it| it.1.returned.is_none()).count();
            if missing > 0 {
                return violated("answers", format!("{missing} are missing; lost: {lost}"));
            }
        }
        match world.members[1].deferred()? {
            0 => violated("answers", "no packet found its batch full"),
            _ => Ok(()),
        }
    }
}
