//! Views of a group with EWO: switches that take each view at once, but for those that are dead.

mod common;

use common::{Agent, address, settings};
use swish_controller::mutation::{self, Mutation};
use swish_controller::{Controller, Event, Stage, State};
use swish_protocol::control::{EventualReport, Load, Report, View, rounds_of_all};

type World = common::World<Switch>;

/// A switch, as its agent reports it.
#[derive(Clone, Default)]
struct Switch {
    incarnation: u32,
    view: u32,
    rounds: u64,
    leaves: bool,
    empty: bool,
}

impl Agent for Switch {
    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    fn report(&self, number: u32, now_ns: u64) -> Report {
        Report {
            group: "main".to_owned(),
            switch: address(number),
            incarnation: self.incarnation,
            sent_ns: now_ns,
            layout: 5,
            sums: false,
            view: self.view,
            window: 0,
            phase: 0,
            sealed: 0,
            known: self.view,
            asks: false,
            whole: 0,
            lacks: 0,
            still_ms: 0,
            leaves: self.leaves,
            empty: self.empty,
            load: Load::default(),
            chain: None,
            eventual: Some(EventualReport { rounds: self.rounds, waiting: 0, lives: 1 }),
        }
    }

    fn take(&mut self, _: u32, view: &View) {
        self.view = view.number;
    }

    fn removed(&mut self) {
        self.view = 0;
    }
}

impl World {
    /// All begin together.
    fn begun(count: u32) -> World {
        let mut world = World::new(count, Switch { incarnation: 7, ..Switch::default() });
        world.pass(4);
        assert_eq!(world.newest(), ((0..count).collect(), vec![], vec![]));
        assert_eq!(world.whole(), (0..count).collect::<Vec<u32>>(), "nobody has anything");
        world.taken.clear();
        world
    }

    /// Numbers of the newest view's members, of those that join, and of lives that are away.
    fn newest(&self) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let newest = self.controller.state().groups["main"].newest().expect("a view");
        let members = newest.members.iter().map(|it| it.number).collect();
        (members, newest.joins.clone(), newest.away.iter().map(|it| it.number).collect())
    }

    /// Members that have all.
    fn whole(&self) -> Vec<u32> {
        let (stage, members) = self.controller.group("main", self.now_ns).expect("the group");
        assert_eq!(stage, Stage::Settled);
        members.iter().filter(|it| it.member && it.sent_all).map(|it| it.number).collect()
    }

    fn restarts(&mut self, number: u32) {
        self.dead.remove(&number);
        let it = &mut self.switches[number as usize];
        (it.incarnation, it.view, it.rounds) = (it.incarnation + 1, 0, 0);
    }

    fn lost(&self) -> bool {
        self.events.iter().any(|it| matches!(it, Event::Lost(_)))
    }
}

#[test]
fn a_dead_switch_is_removed_and_joins_with_a_life_of_its_own() {
    let mut world = World::begun(3);
    world.dead.insert(1);
    world.pass(9);
    assert_eq!(world.newest().0, [0, 1, 2], "not dead yet");
    world.pass(3);
    assert_eq!(world.newest(), (vec![0, 2], vec![], vec![1]));
    assert!(matches!(world.events[..], [.., Event::Died(..), Event::Decided(..)]));
    // It may only be cut off, so tombstones stay.
    assert!(world.taken.iter().all(|(_, view)| view.away), "{:?}", world.taken);
    world.restarts(1);
    world.pass(8);
    assert_eq!(world.newest(), (vec![0, 1, 2], vec![1], vec![]));
    assert!(!world.taken.last().expect("views").1.away);
    assert!(!world.lost());
}

/// A switch has all when each other member has sent it everything since it took the view.
#[test]
fn a_joiner_has_all_after_rounds_of_all_others() {
    let mut world = World::begun(3);
    world.dead.insert(2);
    world.pass(12);
    world.restarts(2);
    world.pass(8);
    assert_eq!((world.newest().1, world.whole()), (vec![2], vec![0, 1]));
    world.switches[0].rounds += rounds_of_all(3);
    world.pass(2);
    assert_eq!(world.whole(), [0, 1], "the other one has not");
    world.switches[1].rounds += rounds_of_all(3) - 1;
    world.pass(2);
    assert_eq!(world.whole(), [0, 1]);
    // A controller that begins counts again.
    let state = world.controller.state().clone();
    world.controller = Controller::new(settings(3), state);
    world.pass(2);
    world.switches[1].rounds += 1;
    world.pass(2);
    assert_eq!(world.whole(), [0, 1]);
    world.switches[..2].iter_mut().for_each(|it| it.rounds += rounds_of_all(3));
    world.pass(2);
    assert_eq!((world.newest().1, world.whole()), (vec![], vec![0, 1, 2]));
}

/// It goes on alone, in the same life, and is a member again as soon as it reports.
#[test]
fn one_that_was_cut_off_returns_in_the_same_life() {
    let mut world = World::begun(3);
    world.dead.insert(0);
    world.pass(12);
    assert_eq!(world.newest(), (vec![1, 2], vec![], vec![0]));
    world.dead.clear();
    world.pass(8);
    assert_eq!(world.newest(), (vec![0, 1, 2], vec![0], vec![]));
    assert!(world.removed.is_empty(), "nothing is given up");
}

#[test]
fn an_agent_that_restarts_keeps_what_the_switch_has() {
    let mut world = World::begun(2);
    world.switches[0].incarnation += 1;
    world.pass(8);
    assert_eq!(world.newest(), (vec![0, 1], vec![], vec![]));
    assert_eq!(world.whole(), [0, 1]);
}

#[test]
fn one_that_leaves_goes_when_it_has_sent_all() {
    let mut world = World::begun(3);
    world.switches[2].leaves = true;
    world.pass(5);
    assert_eq!(world.newest().0, [0, 1, 2]);
    world.switches[2].empty = true;
    world.pass(5);
    assert_eq!(world.newest(), (vec![0, 1], vec![], vec![2]));
    assert_eq!(world.removed, [2]);
    assert!(world.events.contains(&Event::Left("main".into(), address(2))));
    world.pass(100);
    assert_eq!(world.newest().0, [0, 1]);
    (world.switches[2].leaves, world.switches[2].empty) = (false, false);
    world.pass(10);
    assert_eq!(world.newest(), (vec![0, 1, 2], vec![2], vec![]));
    // The last one stays.
    world.switches.iter_mut().for_each(|it| (it.leaves, it.empty) = (true, true));
    world.pass(10);
    assert_eq!(world.newest().0.len(), 1);
}

/// The database is lost, or empty: members say which views they know, and go on.
#[test]
fn members_go_on_without_the_database() {
    let mut world = World::begun(3);
    world.controller = Controller::new(settings(3), State::default());
    let before = world.switches[0].view;
    world.pass(25);
    assert_eq!(world.newest().0, [0, 1, 2]);
    assert!(world.switches.iter().all(|it| it.view > before));
}

#[test]
fn values_are_lost_only_with_all_lives() {
    let mut world = World::begun(2);
    world.dead.insert(0);
    world.pass(12);
    world.restarts(1);
    world.pass(12);
    assert_eq!(world.newest(), (vec![1], vec![1], vec![0]));
    assert!(!world.lost(), "the other one may return with them");
    let mut world = World::begun(2);
    world.dead.extend([0, 1]);
    world.pass(12);
    world.restarts(0);
    world.restarts(1);
    world.pass(12);
    assert!(world.lost());
}

/// Can the tests fail?
#[test]
fn a_forgotten_life_is_seen() {
    mutation::plant(Some(Mutation::AwayForgotten));
    let mut world = World::begun(3);
    world.dead.insert(1);
    world.pass(12);
    mutation::plant(None);
    assert_eq!(world.newest(), (vec![0, 2], vec![], vec![]));
    assert!(world.taken.iter().all(|(_, view)| !view.away));
}
