//! What becomes of the window, by what members report; what the controller does, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_controller::mutation::{self, Mutation};
use swish_controller::{Controller, Event, GroupState, Input, Outputs, Stage, State, plan};
use swish_protocol::control::{Member, Message, Report, Task, Turn, View};
use swish_protocol::for_tests;
use swish_protocol::layouts::phase;

#[path = "common/decided.rs"]
mod decided;
#[path = "common/settings.rs"]
mod settings;

use decided::{decided, member};
use settings::{MS, address, settings};

fn report(number: u32, view: u32, window: u64, phase: u64, whole: u64) -> Report {
    let stateless = for_tests::report(address(number), 7);
    Report { sums: true, view, window, phase, known: view, whole, ..stateless }
}

/// Members 0 to 3, in view 4, which began in window 1.
fn state() -> GroupState {
    decided(&[0, 1, 2, 3], None)
}

fn planned(reports: &[Report], joins: &[Member]) -> swish_controller::Plan {
    let stays: Vec<Member> =
        reports.iter().map(|it| member(it.switch.octets()[3].into())).collect();
    let reports = reports.iter().map(|it| (it.switch, it.clone())).collect();
    plan(&state(), &stays, joins, &reports).expect("a plan")
}

#[test]
fn laggards_take_what_the_others_read() {
    let ahead = report(1, 4, 9, phase::READY, 0);
    let plan = planned(&[report(0, 4, 8, phase::SENDING, 0b1011), ahead], &[]);
    assert_eq!((plan.turn, plan.window, plan.donor), (Turn::Go, 9, address(1)));
    assert_eq!(plan.lacks, [address(0)]);
    let decided = plan.decided(5, &[member(0), member(1)], &[], None);
    let of = |number| decided.counted[&address(number)][0].rotation;
    assert_eq!((of(2), of(3)), (8, 8), "the dead count in all that is read");
}

#[test]
fn a_member_that_has_all_ends_the_window() {
    let whole = report(2, 4, 8, phase::SENDING, 0b1111);
    let plan = planned(&[report(0, 4, 8, phase::SENDING, 0b0111), whole], &[member(3)]);
    assert_eq!((plan.turn, plan.window, plan.donor), (Turn::Go, 9, address(2)));
    assert_eq!(plan.lacks, [address(0), address(3)], "and those that join");
}

/// It has given its state up, and hands in what did not count.
#[test]
fn a_member_that_joins_at_once_again_is_told_what_counted() {
    let reports = [report(0, 4, 9, phase::READY, 0), report(1, 4, 9, phase::READY, 0)];
    let plan = planned(&reports, &[member(3)]);
    let decided = plan.decided(6, &[member(0), member(1)], &[member(3)], None);
    assert_eq!(decided.counted[&address(3)].last().map(|it| (it.view, it.rotation)), Some((5, 8)));
    assert!(!decided.counted.contains_key(&address(0)));
}

#[test]
fn else_the_window_runs_again_and_the_dead_count_all_or_none() {
    let reports = [report(0, 4, 8, phase::SENDING, 0b0101), report(1, 4, 8, phase::READY, 0b1100)];
    let plan = planned(&reports, &[]);
    assert_eq!((plan.turn, plan.window, plan.witness), (Turn::Redo, 8, Some(address(1))));
    let reports = [reports[0].clone(), report(1, 4, 8, phase::READY, 0b1000)];
    let plan = planned(&reports, &[]);
    assert_eq!((plan.turn, plan.witness), (Turn::Redo, None), "nobody has both");
    let decided = plan.decided(5, &[member(0), member(1)], &[], None);
    assert_eq!(decided.counted[&address(2)][0].rotation, 7);
}

/// What counted by a decision before counts also if its window runs again.
fn runs_again_twice() -> Vec<u8> {
    let mut state = state();
    (state.views[0].turn, state.views[0].window) = (Turn::Redo, 8);
    state.views[0].extra = vec![1, 2, 3];
    let reports = [report(0, 4, 8, phase::SENDING, 0b0101), report(1, 4, 8, phase::READY, 0b1000)];
    let reports = reports.map(|it| (it.switch, it)).into();
    let plan = plan(&state, &[member(0), member(1)], &[], &reports).expect("a plan");
    assert_eq!((plan.turn, plan.window), (Turn::Redo, 8));
    plan.kept
}

#[test]
fn what_the_dead_brought_counts_when_the_window_runs_again() {
    assert_eq!(runs_again_twice(), [1, 2, 3]);
}

/// Can the tests fail? (Simulated failures show neither mistake within 150 runs.)
#[test]
fn rare_mistakes_are_seen() {
    mutation::plant(Some(Mutation::KeptForgotten));
    let kept = runs_again_twice();
    mutation::plant(Some(Mutation::JoinsEarly));
    let (_, _, told) = joined();
    mutation::plant(None);
    assert!(kept.is_empty());
    assert!(told.contains(&address(3)), "{told:?}");
}

struct World {
    controller: Controller,
    now_ns: u64,
    events: Vec<Event>,
}

impl World {
    fn new() -> World {
        let state = State { version: 1, groups: BTreeMap::from([("main".to_owned(), state())]) };
        World::of(4, state)
    }

    fn of(switches: u32, state: State) -> World {
        let controller = Controller::new(settings(switches), state);
        World { controller, now_ns: 1000 * MS, events: vec![] }
    }

    fn from(number: u32) -> SocketAddrV4 {
        SocketAddrV4::new(address(number), 4000)
    }

    /// All of them report, as these do; the tasks that go out, and what is to be persistent.
    fn round(&mut self, reports: &[Report]) -> (Vec<(Ipv4Addr, Task)>, Option<State>) {
        self.now_ns += 10 * MS;
        let (mut tasks, mut persist) = (vec![], None);
        for report in reports {
            let sent_ns = self.now_ns;
            let report = Report { sent_ns, ..report.clone() };
            let from = World::from(report.switch.octets()[3].into());
            let out =
                self.controller.handle(self.now_ns, Input::Message(from, Message::Report(report)));
            persist = out.persist.clone().or(persist);
            self.events.extend(out.events.iter().cloned());
            tasks.extend(tasks_of(out));
        }
        (tasks, persist)
    }
}

fn tasks_of(out: Outputs) -> Vec<(Ipv4Addr, Task)> {
    let task = |(to, message): (SocketAddrV4, Message)| match message {
        Message::Order(order) => Some((*to.ip(), order.task)),
        _ => None,
    };
    out.messages.into_iter().filter_map(task).collect()
}

fn takes(tasks: &[(Ipv4Addr, Task)]) -> Vec<(Ipv4Addr, &View)> {
    let views = tasks.iter().filter_map(|it| match &it.1 {
        Task::Take(view) => Some((it.0, view)),
        _ => None,
    });
    views.collect()
}

/// Seal, reports, a persistent decision, and only then orders to take it. All again if a seal has
/// ended.
#[test]
fn a_dead_member_is_removed() {
    let mut world = World::new();
    let all: Vec<Report> = (0..4).map(|number| report(number, 4, 8, phase::READY, 0)).collect();
    world.round(&all);
    let living = &all[..3];
    let mut sealed = vec![];
    for _ in 0..11 {
        let (tasks, persist) = world.round(living);
        assert!(persist.is_none() && takes(&tasks).is_empty(), "nobody is sealed");
        sealed.extend(tasks.into_iter().filter(|(_, task)| matches!(task, Task::Seal { .. })));
    }
    assert!(sealed.contains(&(address(0), Task::Seal { number: 5 })), "{sealed:?}");
    let under = |number: u32, reports: &[Report]| -> Vec<Report> {
        let sealed = |it: &Report| Report { sealed: number, known: number, ..it.clone() };
        reports.iter().map(sealed).collect()
    };
    let (tasks, persist) = world.round(&under(5, &living[..2]));
    assert!(persist.is_none() && takes(&tasks).is_empty(), "one is not sealed");
    let (tasks, persist) = world.round(&under(5, living));
    let decided = persist.expect("a decision");
    assert_eq!(decided.groups["main"].newest().map(|it| it.number), Some(5));
    assert!(takes(&tasks).is_empty(), "it is not persistent yet");
    let tasks = tasks_of(world.controller.handle(world.now_ns, Input::Persisted));
    let told = takes(&tasks);
    assert!(told.iter().all(|(_, view)| view.number == 5 && view.members.len() == 3), "{told:?}");
    assert!(!told.is_empty());
    // One takes it; the seal of another ends first.
    let taken = Report { view: 5, sealed: 0, known: 5, ..living[0].clone() };
    let ended = Report { sealed: 0, known: 5, ..living[1].clone() };
    let (tasks, _) = world.round(&[taken.clone(), ended.clone(), taken, ended]);
    assert!(tasks.contains(&(address(0), Task::Seal { number: 6 })), "{tasks:?}");
}

/// Member 3 dies, and member 2 `later` times 10 ms after it. Members 0 and 1 follow each order, and
/// member 2, if it only does not seal, reports all the time. In which round they were asked to seal
/// first, and in which round a decision was made; its members.
fn two_die(later: usize, second_reports: bool) -> (usize, usize, Vec<Member>) {
    let mut world = World::new();
    let mut all: Vec<Report> = (0..4).map(|number| report(number, 4, 8, phase::READY, 0)).collect();
    world.round(&all);
    let mut asked = None;
    for round in 0..100 {
        let living = if round < later || second_reports { &all[..3] } else { &all[..2] };
        let (tasks, persist) = world.round(living);
        for (to, task) in tasks {
            let Task::Seal { number } = task else { continue };
            asked.get_or_insert(round);
            for report in all[..2].iter_mut().filter(|it| it.switch == to) {
                (report.sealed, report.known) = (number, number);
            }
        }
        if let Some(state) = persist {
            let newest = state.groups["main"].newest().expect("a decision");
            return (asked.expect("a seal"), round, newest.members.clone());
        }
    }
    panic!("no decision in a second");
}

/// The others stand still meanwhile: a member that was asked is not given all of `dead_ns`, 100 ms.
#[test]
fn members_that_die_together_go_together() {
    let only = [member(0), member(1)];
    for (later, rounds) in [(0, 1), (3, 4), (5, 5), (8, 7)] {
        let (asked, decided, members) = two_die(later, false);
        assert_eq!(members, only, "{later}");
        assert!(decided - asked <= rounds, "{later}: after {}0 ms", decided - asked);
    }
}

#[test]
fn a_member_that_reports_has_time_to_seal() {
    let (asked, decided, members) = two_die(0, true);
    assert_eq!(members, [member(0), member(1)]);
    assert!(decided - asked >= 50, "it had {}0 ms, of 500", decided - asked);
}

/// So many rounds in which these report, sealed once they are asked to be; the seals' numbers.
fn seals(world: &mut World, all: &mut [Report], rounds: u32) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for _ in 0..rounds {
        for (to, task) in world.round(all).0 {
            let Task::Seal { number } = task else { continue };
            numbers.insert(number);
            for report in all.iter_mut().filter(|it| it.switch == to) {
                (report.sealed, report.known) = (number, number);
            }
        }
    }
    numbers
}

fn died(world: &World) -> Vec<&Event> {
    world.events.iter().filter(|it| matches!(it, Event::Died(..))).collect()
}

/// It packs what it has merged: that takes time.
#[test]
fn a_sealed_member_may_be_silent() {
    let mut world = World::new();
    let mut all: Vec<Report> = (0..4).map(|number| report(number, 4, 8, phase::READY, 0)).collect();
    all[1].whole = 0b1000;
    world.round(&all);
    assert_eq!(seals(&mut world, &mut all[..3], 14), BTreeSet::from([5]));
    assert!(all[..3].iter().all(|it| it.sealed == 5));
    let mut others = [all[0].clone(), all[2].clone()];
    assert_eq!(seals(&mut world, &mut others, 8), BTreeSet::from([5]));
    assert_eq!(died(&world).len(), 1, "{:?}", world.events);
}

/// A switch joins, and a member has its 100 ms, although the others are sealed.
#[test]
fn nobody_is_hurried_if_nobody_died() {
    let mut world = World::of(5, World::new().controller.state().clone());
    let mut all: Vec<Report> = (0..4).map(|number| report(number, 4, 8, phase::READY, 0)).collect();
    all.push(report(4, 0, 0, phase::READY, 0));
    assert_eq!(seals(&mut world, &mut all, 1), BTreeSet::from([5]));
    all.remove(3);
    assert_eq!(seals(&mut world, &mut all, 8), BTreeSet::from([5]));
    assert!(died(&world).is_empty(), "{:?}", world.events);
    assert!(seals(&mut world, &mut all, 5).contains(&6));
    assert_eq!(died(&world).len(), 1, "{:?}", world.events);
}

/// Not as one that is set aside: here the first one, of another database and with another program.
#[test]
fn a_switch_joins_that_has_the_members_layout_and_others_are_told() {
    let mut state = state();
    state.views[0].members.remove(0);
    let state = State { version: 1, groups: BTreeMap::from([("main".to_owned(), state)]) };
    let mut world = World::of(6, state);
    let mut all: Vec<Report> = (0..4).map(|number| report(number, 4, 8, phase::READY, 0)).collect();
    (all[0].view, all[0].layout) = (9, 6);
    all.push(Report { layout: 6, ..report(4, 0, 0, phase::READY, 0) });
    assert_eq!(seals(&mut world, &mut all, 50), BTreeSet::new());
    let layouts = |world: &World| {
        world.events.iter().filter(|it| matches!(it, Event::Layout(..))).cloned().collect()
    };
    let told: Vec<Event> = layouts(&world);
    assert_eq!(told, [Event::Layout("main".to_owned(), address(4))], "once");
    let misfits = |world: &World| {
        let (_, members) = world.controller.group("main", world.now_ns).expect("the group");
        members.iter().filter(|it| it.misfit).map(|it| it.address).collect::<Vec<_>>()
    };
    assert_eq!(misfits(&world), [address(4)]);
    all[4].layout = 7;
    world.round(&all);
    assert_eq!(layouts(&world).len(), 2, "another one is told again");
    all[4].layout = 5;
    assert_eq!(seals(&mut world, &mut all, 20), BTreeSet::from([5]));
    assert!(misfits(&world).is_empty());
}

/// An older database, or none: members that follow the controller would lose what they have since.
#[test]
fn members_of_an_unknown_view_are_left_alone() {
    let newer: Vec<Report> = (0..4).map(|number| report(number, 6, 80, phase::READY, 0)).collect();
    for (mut world, known) in [(World::new(), 4), (World::of(4, State::default()), 0)] {
        for round in 0..100 {
            // (One of them begins anew.)
            let mut reports = newer.clone();
            if round > 20 {
                reports[3] = Report { incarnation: 8, view: 0, known: 0, ..newer[3].clone() };
            }
            let (tasks, persist) = world.round(&reports);
            assert!(
                persist.is_none() && tasks.iter().all(|(_, it)| *it == Task::Heard),
                "{tasks:?}"
            );
        }
        let stage = world.controller.group("main", world.now_ns).expect("the group").0;
        assert_eq!(stage, Stage::Behind, "{known}");
        let told = Event::Behind("main".to_owned(), address(0), 6, known);
        assert_eq!(world.events, [told], "once");
        // Once all of them have ended, the group begins anew.
        let fresh = |it: &Report| Report { incarnation: 9, view: 0, known: 0, ..it.clone() };
        let fresh: Vec<Report> = newer.iter().map(fresh).collect();
        let began = (0..400).any(|_| world.round(&fresh).1.is_some());
        assert!(began, "{known}");
    }
}

/// Packets go on without an agent: a member that is silent is waited for until it is lost.
#[test]
fn silent_members_of_an_unknown_view_are_waited_for() {
    let newer: Vec<Report> = (0..4).map(|number| report(number, 6, 80, phase::READY, 0)).collect();
    let fresh = [report(4, 0, 0, phase::READY, 0)];
    let of_view_4 = World::new().controller.state().clone();
    for state in [of_view_4, State::default()] {
        let mut world = World::of(5, state);
        world.round(&newer);
        for _ in 0..90 {
            let (tasks, persist) = world.round(&fresh);
            assert!(persist.is_none(), "{persist:?}");
            assert!(tasks.iter().all(|(_, it)| *it == Task::Heard), "{tasks:?}");
        }
        let (stage, members) = world.controller.group("main", world.now_ns).expect("the group");
        assert_eq!(stage, Stage::Behind);
        assert!(members[..4].iter().all(|it| it.unknown) && !members[4].unknown, "{members:?}");
        let began = (0..20).any(|_| world.round(&fresh).1.is_some());
        assert!(began, "they are lost");
    }
}

#[test]
fn a_controller_that_leads_no_more_is_not_behind() {
    let mut world = World::of(4, State::default());
    world.round(&[report(0, 6, 80, phase::READY, 0)]);
    let stage = |world: &World| world.controller.group("main", world.now_ns).map(|it| it.0);
    assert_eq!(stage(&world), Some(Stage::Behind));
    world.controller.handle(world.now_ns, Input::Leading(false));
    assert_ne!(stage(&world), Some(Stage::Behind));
}

/// It was out of reach when the group began anew without a database.
#[test]
fn a_switch_of_another_database_holds_nobody_up() {
    let mut world = World::of(5, World::new().controller.state().clone());
    let mut all: Vec<Report> = (0..4).map(|number| report(number, 4, 8, phase::READY, 0)).collect();
    (0..25).for_each(|_| drop(world.round(&all)));
    all.push(report(4, 57, 900, phase::READY, 0));
    assert_eq!(seals(&mut world, &mut all, 5), BTreeSet::new());
    let told = Event::Unknown("main".to_owned(), address(4), 57, 4);
    assert_eq!(world.events, [told], "once");
    let (stage, members) = world.controller.group("main", world.now_ns).expect("the group");
    assert!(stage == Stage::Settled && members[4].unknown && !members[0].unknown, "{members:?}");
    // Its agent is another one, and a member dies.
    all[4].incarnation = 8;
    all.remove(3);
    let (mut tasks, mut decided) = (vec![], None);
    for _ in 0..30 {
        let (some, persist) = world.round(&all);
        for (to, task) in &some {
            let Task::Seal { number } = task else { continue };
            for report in all.iter_mut().filter(|it| it.switch == *to) {
                (report.sealed, report.known) = (*number, *number);
            }
        }
        tasks.extend(some);
        if persist.is_some() {
            decided = persist;
            tasks.extend(tasks_of(world.controller.handle(world.now_ns, Input::Persisted)));
        }
    }
    let decided = decided.expect("a decision");
    let newest = decided.groups["main"].newest().expect("a decision");
    assert_eq!((newest.number, newest.members.len()), (5, 3));
    let told: BTreeSet<Ipv4Addr> = takes(&tasks).iter().map(|(to, _)| *to).collect();
    assert_eq!(told, (0..3).map(address).collect::<BTreeSet<_>>());
    let of_it = |(to, task): &&(Ipv4Addr, Task)| *to == address(4) && *task != Task::Heard;
    assert_eq!(tasks.iter().find(of_it), None);
}

/// Until the decision that a switch joins is persistent: the reports, and the switches that are
/// told of it at once.
fn joined() -> (World, Vec<Report>, Vec<Ipv4Addr>) {
    let mut world = World::new();
    let mut all: Vec<Report> = (0..4).map(|number| report(number, 4, 8, phase::READY, 0)).collect();
    world.round(&all);
    all[3] = Report { incarnation: 8, view: 0, window: 0, known: 0, ..all[3].clone() };
    let mut number = 0;
    for _ in 0..20 {
        let (tasks, _) = world.round(&all);
        let seal = tasks.iter().find_map(|(_, task)| match task {
            Task::Seal { number } => Some(*number),
            _ => None,
        });
        number = seal.unwrap_or(number);
    }
    assert_eq!(number, 5);
    for report in &mut all[..3] {
        (report.sealed, report.known) = (5, 5);
    }
    let (mut asked, mut tasks) = (false, vec![]);
    for _ in 0..3 {
        world.now_ns += 10 * MS;
        let out = world.controller.handle(
            world.now_ns,
            Input::Message(
                World::from(0),
                Message::Report(Report { sent_ns: world.now_ns, ..all[0].clone() }),
            ),
        );
        asked |= out.messages.iter().any(|(_, it)| matches!(it, Message::Ask(..)));
        for report in &all[1..] {
            let report = Report { sent_ns: world.now_ns, ..report.clone() };
            let from = World::from(report.switch.octets()[3].into());
            let out = world
                .controller
                .handle(world.now_ns, Input::Message(from, Message::Report(report)));
            for (to, message) in out.messages {
                let Message::Ask(which, offset, _) = message else { continue };
                asked = true;
                let part = swish_protocol::bulk::part(&[], offset);
                let out = world
                    .controller
                    .handle(world.now_ns, Input::Message(to, Message::Part(which, part)));
                if out.persist.is_some() {
                    let out = world.controller.handle(world.now_ns, Input::Persisted);
                    tasks.extend(tasks_of(out));
                }
            }
        }
    }
    assert!(asked, "for the value that the switch lacks");
    let newest = world.controller.state().groups["main"].newest().expect("a decision");
    assert_eq!((newest.number, newest.joins.clone()), (5, vec![3]));
    tasks.extend(world.round(&all).0);
    tasks.extend(world.round(&all).0);
    let to = takes(&tasks).iter().map(|(to, _)| *to).collect();
    (world, all, to)
}

/// It joins when all others have the decision.
#[test]
fn a_switch_joins_last() {
    let (mut world, mut all, to) = joined();
    assert!(to.contains(&address(0)) && !to.contains(&address(3)), "{to:?}");
    for report in &mut all[..3] {
        (report.view, report.sealed) = (5, 0);
    }
    let (mut tasks, _) = world.round(&all);
    tasks.extend(world.round(&all).0);
    let told = takes(&tasks);
    assert!(told.iter().all(|(to, view)| *to == address(3) && view.value), "{told:?}");
    assert!(!told.is_empty());
}
