//! Views of a group with SRO: switches that follow each order at once, but for those that are dead.

mod common;

use common::settings::LEASE_MS;
use common::{Agent, address};
use swish_controller::Event;
use swish_protocol::control::{ChainReport, Lease, Member, Report, View};
use swish_protocol::for_tests;

type World = common::World<Switch>;

/// A switch, as its agent reports it.
#[derive(Clone, Default)]
struct Switch {
    incarnation: u32,
    view: u32,
    copying: bool,
    round: u64,
    still_ms: u64,
    leaves: bool,
    empty: bool,
    waits: bool,
}

impl Agent for Switch {
    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    fn report(&self, number: u32, now_ns: u64) -> Report {
        Report {
            sent_ns: now_ns,
            view: self.view,
            window: self.round,
            known: self.view,
            still_ms: self.still_ms,
            leaves: self.leaves,
            empty: self.empty,
            chain: Some(ChainReport {
                copying: self.copying,
                waits: self.waits,
                applied: 9,
                committed: 9,
            }),
            ..for_tests::report(address(number), self.incarnation)
        }
    }

    fn take(&mut self, number: u32, view: &View) {
        self.copying |= self.view == 0 && view.joins.contains(&number);
        (self.view, self.still_ms) = (view.number, 0);
    }

    fn removed(&mut self) {
        (self.view, self.copying) = (0, false);
    }
}

impl World {
    /// Numbers of the newest view's members, in order, and its lease.
    fn newest(&self) -> (Vec<u32>, Vec<u32>, Lease) {
        let newest = self.controller.state().groups["main"].newest().expect("a view");
        let number = |it: &Member| it.number;
        let lease = newest.lease.expect("a lease");
        (newest.members.iter().map(number).collect(), newest.joins.clone(), lease)
    }

    /// All begin together.
    fn begun(count: u32) -> World {
        let switch = Switch { incarnation: 7, round: 1, ..Switch::default() };
        let mut world = World::new(count, switch);
        world.pass(3);
        assert_eq!(world.newest().0, (0..count).collect::<Vec<u32>>());
        assert!(world.taken.iter().all(|(_, view)| view.joins.is_empty()), "nobody has anything");
        assert_eq!(world.taken.len(), count as usize);
        world.taken.clear();
        world
    }

    fn restarts(&mut self, number: u32) {
        self.dead.remove(&number);
        let it = &mut self.switches[number as usize];
        (it.incarnation, it.view, it.copying) = (it.incarnation + 1, 0, false);
    }
}

#[test]
fn the_dead_leave_the_chain_and_the_tail_waits() {
    let mut world = World::begun(4);
    world.dead.insert(1);
    world.pass(9);
    assert_eq!(world.newest().0, [0, 1, 2, 3], "not dead yet");
    world.pass(3);
    let wait_ms = LEASE_MS;
    assert_eq!(world.newest(), (vec![0, 2, 3], vec![], Lease { lease_ms: LEASE_MS, wait_ms }));
    let told: Vec<u32> = world.taken.iter().map(|it| it.0).collect();
    assert_eq!(told, [0, 2, 3]);
    assert!(matches!(world.events[..], [.., Event::Died(..), Event::Decided(..)]));
}

/// Nobody joins while a member that was removed may read, and then only one at a time.
#[test]
fn switches_join_one_by_one_as_the_last() {
    let mut world = World::begun(4);
    world.dead.extend([0, 2]);
    world.pass(13);
    assert_eq!(world.newest().0, [1, 3]);
    world.restarts(0);
    world.restarts(2);
    world.pass(2 * LEASE_MS as u32 / 10 - 4);
    assert_eq!(world.newest().0, [1, 3], "a lease may not be over");
    world.pass(8);
    let lease = Lease { lease_ms: LEASE_MS, wait_ms: 0 };
    assert_eq!(world.newest(), (vec![1, 3, 0], vec![0], lease));
    world.pass(30);
    assert_eq!(world.newest().0, [1, 3, 0], "it is copying");
    // The one that copies is told of its view after all others.
    let (number, view) = world.taken.last().expect("views");
    assert_eq!((*number, view.joins.clone()), (0, vec![0]));
    // The next one joins when it has all.
    world.switches[0].copying = false;
    world.pass(4);
    assert_eq!((world.newest().0, world.newest().1), (vec![1, 3, 0, 2], vec![2]));
}

#[test]
fn one_that_copies_goes_on_when_another_one_dies() {
    let mut world = World::begun(3);
    world.dead.insert(0);
    world.pass(12);
    world.restarts(0);
    world.pass(60);
    assert_eq!((world.newest().0, world.newest().1), (vec![1, 2, 0], vec![0]));
    world.dead.insert(2);
    world.pass(12);
    assert_eq!((world.newest().0, world.newest().1), (vec![1, 0], vec![0]));
    // The last one that has all does not leave, whatever an operator wants.
    let last = &mut world.switches[1];
    (last.leaves, last.empty) = (true, true);
    world.pass(12);
    assert_eq!(world.newest().0, [1, 0]);
}

/// Who is silent may have what was written. Only when all have begun anew it is lost.
#[test]
fn a_group_is_lost_only_when_all_have_lost_it() {
    let mut world = World::begun(3);
    world.dead.extend([0, 1, 2]);
    world.pass(12);
    world.restarts(0);
    world.restarts(1);
    world.pass(500);
    assert_eq!(world.newest().0, [0, 1, 2]);
    assert!(world.taken.is_empty());
    world.restarts(2);
    world.pass(3);
    assert!(world.events.iter().any(|it| matches!(it, Event::Lost(_))));
    assert_eq!((world.newest().0, world.taken.len()), (vec![0, 1, 2], 3));
}

#[test]
fn one_that_left_holds_nobody_up() {
    let mut world = World::begun(3);
    world.switches[2].leaves = true;
    world.pass(5);
    assert_eq!(world.newest().0, [0, 1, 2], "it may still read");
    world.switches[2].empty = true;
    world.pass(3);
    assert_eq!(world.newest(), (vec![0, 1], vec![], Lease { lease_ms: LEASE_MS, wait_ms: 0 }));
    assert_eq!(world.removed, [2]);
    world.pass(100);
    assert_eq!(world.newest().0, [0, 1]);
    (world.switches[2].leaves, world.switches[2].empty) = (false, false);
    world.pass(10);
    assert_eq!(world.newest().0, [0, 1, 2]);
}

/// Rounds stand still: the first switch that has not seen the newest one goes.
#[test]
fn a_broken_link_is_named() {
    let stands_still = |rounds: [u64; 3], waits: bool| {
        let mut world = World::begun(3);
        world.switches.iter_mut().zip(rounds).for_each(|(it, round)| {
            (it.round, it.still_ms) = (round, 2000);
        });
        world.switches[0].waits = waits;
        world.pass(1);
        let slow = world.events.iter().find_map(|it| match it {
            Event::Slow(_, switch, pairs) => Some((switch.octets()[3], pairs.len())),
            _ => None,
        });
        assert_eq!(world.newest().0.len(), 2);
        slow.expect("one is slow")
    };
    assert_eq!(stands_still([9, 9, 8], true), (2, 1));
    assert_eq!(stands_still([9, 8, 8], true), (1, 1));
    assert_eq!(stands_still([9, 9, 9], true), (2, 1), "the way back to the head");
    assert_eq!(stands_still([9, 9, 9], false), (0, 1), "the head begins no round");
}
