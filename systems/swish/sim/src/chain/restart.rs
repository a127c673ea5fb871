//! Groups without controllers, whose members restart without their state: nothing is read that is
//! not so, nothing that was answered is lost, and members name the one that restarted.

use super::access::{Access, Op};
use super::{BUSY_NS, Chains, Event, KEYS, PATIENCE_NS, TICK_NS, World};
use crate::model::{Checked, Violation, violated};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::net::Ipv4Addr;

/// Until all have agreed, on a network without faults.
const MEET_NS: u64 = 40_000_000;

impl World<'_> {
    /// All members begin anew, without controllers.
    fn meets(&mut self) -> Checked {
        let count = self.members.len();
        self.members.iter_mut().try_for_each(|member| member.meets(count))
    }

    /// The member loses all that it has, and comes back.
    pub(super) fn restarts(&mut self, place: usize) -> Checked {
        self.note(format!("{place} restarts, with nothing"));
        let count = self.members.len();
        self.members[place].meets(count)
    }

    /// Each switch is asked for each key. How many of these packets have no answer.
    fn unanswered(&mut self) -> Checked<usize> {
        let first = self.history.len();
        for place in 0..self.members.len() {
            for key in 0..KEYS {
                self.packet(place, Op { access: Access::Read, key })?;
            }
            self.until(self.now_ns + PATIENCE_NS / 16)?;
        }
        Ok(self.history[first..].iter().filter(|(_, it)| it.returned.is_none()).count())
    }

    /// Members of which a member says that they restarted.
    fn restarted(&self, place: usize) -> Checked<Vec<Ipv4Addr>> {
        Ok(self.members[place].others(self.now_ns)?.restarted)
    }
}

impl Chains<'_> {
    /// The run of this seed: members restart at any time, also while they meet.
    pub fn run_with_restarts(&mut self, seed: u64) -> Checked {
        let mut rng = StdRng::seed_from_u64(seed);
        let count = rng.random_range(2..5);
        self.load(count)?;
        let mut world = World::quiet(rng.random(), TICK_NS, &mut self.members[..count])?;
        world.network.set_conditions(World::conditions(&mut rng));
        world.meets()?;
        for _ in 0..rng.random_range(10..90) {
            let (switch, at) = (rng.random_range(0..count), rng.random_range(0..BUSY_NS));
            world.events.push(at, Event::Packet(switch, Op::draw(&mut rng, KEYS)));
        }
        let restarts = rng.random_range(0..3);
        for _ in 0..restarts {
            let until_ns = if rng.random_bool(0.4) { BUSY_NS / 5 } else { BUSY_NS };
            let at = rng.random_range(0..until_ns);
            world.events.push(at, Event::Restarts(rng.random_range(0..count)));
        }
        world.until(BUSY_NS)?;
        world.network.heal(40_000);
        world.until(BUSY_NS + PATIENCE_NS)?;
        let open = world.unanswered()?;
        let result = if restarts == 0 && open > 0 {
            violated("progress", format!("{open} reads without an answer"))
        } else {
            world.check()
        };
        if result.is_err() {
            println!("{}", world.log.join("\n"));
        }
        result
    }

    /// One of three members restarts, after keys were written.
    ///
    /// # Errors
    /// It reads, what was written is lost at the others, or somebody does not name it.
    pub fn a_member_restarts_without_its_state(&mut self, place: usize) -> Result<(), Violation> {
        self.load(3)?;
        let mut world = World::quiet(1, TICK_NS, &mut self.members[..3])?;
        world.meets()?;
        world.until(MEET_NS)?;
        for key in 0..KEYS {
            let write = world.answer(key as usize % 3, Op { access: Access::Set(7), key })?;
            if write.is_none() {
                return violated("progress", "a write is not answered before the restart");
            }
        }
        world.until(world.now_ns + MEET_NS)?;
        world.restarts(place)?;
        world.until(world.now_ns + MEET_NS)?;
        for at in 0..3 {
            let read = world.answer(at, Op { access: Access::Read, key: 1 })?;
            let wanted = (at != place).then_some(Some(7));
            if read != wanted {
                return violated("restart", format!("{read:?} is read at {at}, not {wanted:?}"));
            }
            let write = world.answer(at, Op { access: Access::Set(8), key: 0 })?;
            if write.is_some() {
                return violated("restart", format!("a write at {at} is answered"));
            }
            let named = world.restarted(at)?;
            if named != [super::switch::address(place)] {
                return violated("restart", format!("{at} names {named:?}"));
            }
        }
        world.check()
    }

    /// One of three members restarts before all have agreed: the group begins.
    ///
    /// # Errors
    /// It does not.
    pub fn a_member_restarts_while_members_meet(&mut self) -> Result<(), Violation> {
        self.load(3)?;
        let mut world = World::quiet(1, TICK_NS, &mut self.members[..3])?;
        world.meets()?;
        world.until(TICK_NS)?;
        world.restarts(1)?;
        world.until(MEET_NS)?;
        match world.answer(2, Op { access: Access::Set(7), key: 1 })? {
            None => violated("progress", "a write is not answered"),
            Some(_) => world.check(),
        }
    }
}
