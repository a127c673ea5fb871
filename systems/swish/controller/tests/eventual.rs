//! Views of a group with EWO: switches that take each view at once, but for those that are dead.

mod common;

use common::{Agent, MS, address, settings};
use std::net::SocketAddrV4;
use swish_controller::mutation::{self, Mutation};
use swish_controller::{Controller, Event, Input, Stage, State};
use swish_protocol::base::{Base, Before};
use swish_protocol::control::{
    EventualReport, Message, Report, Sum, View, part_name, rounds_of_all,
};
use swish_protocol::eventual::life_of;
use swish_protocol::for_tests;
use swish_protocol::objects::Consistency;

type World = common::World<Switch>;

/// A switch, as its agent reports it.
#[derive(Clone, Default)]
struct Switch {
    incarnation: u32,
    view: u32,
    rounds: u64,
    leaves: bool,
    empty: bool,
    /// Of its state, if it is not the agent's incarnation.
    life: Option<u32>,
    lives: u32,
    /// What it was asked to sum up, in its view.
    asked: Option<(u32, Before)>,
    lacks: Option<u64>,
    base: Option<Base>,
}

impl Agent for Switch {
    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    fn report(&self, number: u32, now_ns: u64) -> Report {
        Report {
            sent_ns: now_ns,
            view: self.view,
            known: self.view,
            leaves: self.leaves,
            empty: self.empty,
            eventual: Some(Box::new(EventualReport {
                rounds: self.rounds,
                lives: self.lives,
                life: life_of(address(number), self.life.unwrap_or(self.incarnation)),
                room: 8,
                base: self.base.clone(),
                sum: self.asked.as_ref().map(|(view, before)| Sum {
                    view: *view,
                    of: before.number(),
                    lives: 5,
                    // (It may lack a life.)
                    digest: self.lacks.filter(|it| before.has(*it)).unwrap_or_default(),
                    oldest: Some((address(1), 7)),
                }),
                ..EventualReport::default()
            })),
            ..for_tests::report(address(number), self.incarnation)
        }
    }

    fn take(&mut self, _: u32, view: &View) {
        (self.view, self.base) = (view.number, view.base.clone());
    }

    fn asked(&mut self, view: u32, before: &Before) {
        self.asked = Some((view, before.clone()));
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

impl World {
    /// What is in the newest view's base.
    fn base(&self) -> Option<Base> {
        self.controller.state().groups["main"].newest().expect("a view").base.clone()
    }

    /// Three switches, one of which has had so many lives that others need its slots.
    fn with_lives() -> World {
        let mut world = World::begun(3);
        world.dead.insert(1);
        world.pass(12);
        world.restarts(1);
        world.pass(8);
        world.switches.iter_mut().for_each(|it| it.lives = 8);
        world
    }
}

#[test]
fn slots_of_lives_that_are_over_are_given_back() {
    let mut world = World::with_lives();
    world.switches[2].lacks = Some(life_of(address(1), 7));
    world.pass(60);
    let asked = world.switches[0].asked.clone().expect("it is asked");
    assert!(asked.1.has(life_of(address(1), 7)), "the life that is over");
    assert!(!asked.1.has(life_of(address(1), 8)) && !asked.1.has(life_of(address(0), 7)));
    assert_eq!(world.base(), None, "they do not have the same");
    let number = asked.0;
    world.switches[2].lacks = None;
    world.pass(60);
    let base = world.base().expect("a base");
    assert_eq!((base.number, &base.before), (number + 1, &asked.1));
    assert!(world.switches.iter().all(|it| it.base.as_ref() == Some(&base)));
    // It stays for ever, and sums of the view before are of no use.
    world.pass(60);
    world.dead.insert(0);
    world.pass(12);
    assert_eq!(world.base(), Some(base));
}

#[test]
fn nothing_is_folded_while_a_switch_is_away() {
    let mut world = World::with_lives();
    world.dead.insert(2);
    world.pass(80);
    assert_eq!((world.newest().2, world.base()), (vec![2], None));
    // It was cut off: it comes back in the same life.
    world.dead.remove(&2);
    world.pass(80);
    assert!(world.base().is_some_and(|it| !it.before.has(life_of(address(2), 7))));
}

/// Who has no column left for a life has all others, and room for it once one of them is folded.
#[test]
fn lives_that_all_have_are_folded_one_after_another() {
    let mut world = World::with_lives();
    world.dead.insert(1);
    world.pass(12);
    world.restarts(1);
    world.switches[2].lacks = Some(life_of(address(1), 8));
    world.pass(190);
    assert_eq!(world.base(), None);
    world.pass(250);
    let base = world.base().expect("a base");
    assert!(base.before.has(life_of(address(1), 7)) && !base.before.has(life_of(address(1), 8)));
}

/// Another agent has another incarnation. The switch's life, and its slots, are the same.
#[test]
fn a_life_goes_on_with_another_agent() {
    let mut world = World::with_lives();
    world.switches[0].life = Some(7);
    world.restarts(0);
    world.pass(80);
    let base = world.base().expect("a base");
    assert!(!base.before.has(life_of(address(0), 7)), "it is not over");
    assert!(base.before.has(life_of(address(1), 7)));
}

/// Switches know what they have folded.
#[test]
fn a_base_outlives_the_database() {
    let mut world = World::with_lives();
    world.pass(80);
    let base = world.base().expect("a base");
    world.controller = Controller::new(settings(3), State::default());
    world.pass(60);
    let after = world.base().expect("a base");
    assert_eq!(after.before, base.before);
    assert!(after.number > base.number, "it is made anew, of what all have");
}

#[test]
fn bugs_of_folding_are_caught() {
    let folds = |bug, before: fn(&mut World)| {
        mutation::plant(Some(bug));
        let mut world = World::with_lives();
        before(&mut world);
        world.pass(80);
        mutation::plant(None);
        world.base()
    };
    let unlike = |world: &mut World| world.switches[2].lacks = Some(life_of(address(1), 7));
    assert!(folds(Mutation::FoldedUnlike, unlike).is_some());
    let away = |world: &mut World| assert!(world.dead.insert(2));
    assert!(folds(Mutation::FoldedWhileAway, away).is_some());
    let agent = |world: &mut World| {
        world.switches[0].life = Some(7);
        world.restarts(0);
    };
    let base = folds(Mutation::LifeOfAgent, agent).expect("a base");
    assert!(base.before.has(life_of(address(0), 7)), "a life that goes on");
}

/// A group's variables of each consistency have views of their own; who is not configured, none.
#[test]
fn consistencies_of_a_group_are_decided_on_by_themselves() {
    let part = part_name("main", Consistency::Ewo, false);
    assert_eq!(part, "main.ewo");
    let switch = Switch { incarnation: 7, ..Switch::default() };
    let mut controller = Controller::new(settings(3), State::default());
    // (What switches are told is not followed.)
    for now_ns in (1..=40).map(|step| step * 10 * MS) {
        let of = |(name, count): (&str, u32)| {
            let report =
                |number| Report { group: name.to_owned(), ..switch.report(number, now_ns) };
            let from = |number| SocketAddrV4::new(address(number), 4000);
            let input = |number| Input::Message(from(number), Message::Report(report(number)));
            (0..count).map(input).collect::<Vec<_>>()
        };
        let reports = [("main", 3), (&part, 2), ("other.ewo", 2)].into_iter().flat_map(of);
        for input in reports.chain([Input::Timer]) {
            let mut out = controller.handle(now_ns, input);
            while out.persist.is_some() {
                out = controller.handle(now_ns, Input::Persisted);
            }
        }
    }
    let members = |name: &str| {
        let newest = controller.state().groups.get(name).and_then(|it| it.newest());
        newest.map(|it| it.members.len())
    };
    assert_eq!(
        (members("main"), members("main.ewo"), members("other.ewo")),
        (Some(3), Some(2), None)
    );
    // Another controller knows of it before a switch reports it.
    let next = Controller::new(settings(3), controller.state().clone());
    assert_eq!(next.names().collect::<Vec<_>>(), ["main", "main.ewo"]);
}
