//! A group with SDW and SRO (`systems/swish/docs/beside.md`): if messages between two switches do
//! not come, both consistencies go on without the same one.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_controller::{Controller, Event, Input, Outputs, State};
use swish_protocol::control::{ChainReport, Lease, Message, Order, Report, Task, View};
use swish_protocol::exclusion::{Excluded, Why};
use swish_protocol::for_tests;
use swish_protocol::layouts::phase;

#[path = "common/decided.rs"]
mod decided;
#[path = "common/settings.rs"]
mod settings;

use decided::decided;
use settings::{LEASE_MS, MS, address, settings};

/// What controllers call the variables with SDW, and those with SRO.
const WINDOWS: &str = "main";
const CHAIN: &str = "main.sro";
const VIEW: u32 = 4;

/// Four switches. A switch that has returned is the last of the chain.
struct World {
    controller: Controller,
    now_ns: u64,
    /// By switch: reports on windows, and on the chain.
    reports: Vec<[Report; 2]>,
    events: Vec<Event>,
    /// Orders, but for seals and views.
    told: Vec<(Ipv4Addr, String, Task)>,
    views: Vec<(Ipv4Addr, String, View)>,
}

impl World {
    fn new(chain: [u32; 4]) -> World {
        let lease = Some(Lease { lease_ms: LEASE_MS, wait_ms: 0 });
        let groups = BTreeMap::from([
            (WINDOWS.to_owned(), decided(&[0, 1, 2, 3], None)),
            (CHAIN.to_owned(), decided(&chain, lease)),
        ]);
        let reports = (0..4).map(|number| {
            let stateless = for_tests::report(address(number), 7);
            let of = Report { view: VIEW, known: VIEW, window: 9, ..stateless };
            let chain = ChainReport { copying: false, waits: false, applied: 9, committed: 9 };
            let chain = Report { group: CHAIN.into(), chain: Some(chain), ..of.clone() };
            [Report { sums: true, phase: phase::SENDING, ..of }, chain]
        });
        World {
            controller: Controller::new(settings(4), State { version: 1, groups }),
            now_ns: 1000 * MS,
            reports: reports.collect(),
            events: vec![],
            told: vec![],
            views: vec![],
        }
    }

    fn standing(&mut self, of: usize, still_ms: u64) {
        self.reports.iter_mut().for_each(|it| it[of].still_ms = still_ms);
    }

    /// So many times 10 ms pass, in which switches follow orders at once.
    fn pass(&mut self, times: u32) {
        for _ in 0..times {
            self.now_ns += 10 * MS;
            for at in 0..self.reports.len() * 2 {
                let report = self.reports[at / 2][at % 2].clone();
                let from = SocketAddrV4::new(report.switch, 4000);
                let report = Report { sent_ns: self.now_ns, ..report };
                let input = Input::Message(from, Message::Report(report));
                let out = self.controller.handle(self.now_ns, input);
                self.follow(out);
            }
        }
    }

    fn follow(&mut self, out: Outputs) {
        self.events.extend(out.events);
        for (to, message) in out.messages {
            let Message::Order(Order { group, task, .. }) = message else { continue };
            let of = usize::from(group == CHAIN);
            let report = &mut self.reports[usize::from(to.ip().octets()[3])][of];
            match task {
                Task::Seal { number } => (report.sealed, report.known) = (number, number),
                Task::Take(view) => {
                    (report.view, report.sealed, report.still_ms) = (view.number, 0, 0);
                    self.views.push((*to.ip(), group, view));
                }
                task => {
                    if matches!(task, Task::Removed { .. }) {
                        (report.view, report.window, report.still_ms) = (0, 0, 0);
                    }
                    self.told.push((*to.ip(), group, task));
                }
            }
        }
        if out.persist.is_some() {
            let out = self.controller.handle(self.now_ns, Input::Persisted);
            self.follow(out);
        }
    }

    fn members(&self, part: &str) -> Vec<u32> {
        let newest = self.controller.state().groups[part].newest().expect("a view");
        newest.members.iter().map(|it| it.number).collect()
    }

    /// Neither of two switches gets the other's messages of windows any more.
    fn cut(&mut self, [one, other]: [u32; 2]) {
        self.reports[one as usize][0].lacks = 1 << other;
        self.reports[other as usize][0].lacks = 1 << one;
    }
}

/// Which switches are excluded from windows and from the chain, in this order.
fn excluded(world: &World) -> Vec<(&str, Ipv4Addr)> {
    let slow = |event| match event {
        &Event::Slow(ref part, switch, _) => Some((part.as_str(), switch)),
        _ => None,
    };
    world.events.iter().filter_map(slow).collect()
}

/// The chain goes from 3 to 1, and that link is cut.
fn cut_between_1_and_3() -> World {
    let mut world = World::new([0, 2, 3, 1]);
    world.pass(2);
    world.cut([1, 3]);
    world.reports[1][1].window = 8;
    world
}

/// Windows and rounds stand for nearly as long.
fn stand_one_after_the_other(world: &mut World, first: usize) {
    world.standing(first, 1000);
    world.standing(1 - first, 990);
    world.pass(1);
    world.standing(1 - first, 1000);
    world.pass(20);
}

#[test]
fn a_cut_link_costs_one_switch() {
    for first in [0, 1] {
        let mut world = cut_between_1_and_3();
        stand_one_after_the_other(&mut world, first);
        let (windows, chain) = (world.members(WINDOWS), world.members(CHAIN));
        assert_eq!((windows, chain), (vec![0, 2, 3], vec![0, 2, 3]), "{:?}", world.events);
        let told: Vec<Ipv4Addr> = excluded(&world).into_iter().map(|it| it.1).collect();
        assert_eq!(told, [address(1); 2]);
    }
}

/// A group with another name is another group, wherever the name stands in the alphabet.
#[test]
fn consistencies_of_one_group_are_judged_together() {
    let mut world = cut_between_1_and_3();
    let mut settings = settings(4);
    settings.groups.insert("main-2".into(), settings.groups["main"].clone());
    world.controller = Controller::new(settings, world.controller.state().clone());
    let other = Report { group: "main-2".into(), ..for_tests::report(address(0), 7) };
    let from = SocketAddrV4::new(address(0), 4000);
    world.controller.handle(world.now_ns, Input::Message(from, Message::Report(other)));
    stand_one_after_the_other(&mut world, 1);
    assert_eq!((world.members(WINDOWS), world.members(CHAIN)), (vec![0, 2, 3], vec![0, 2, 3]));
}

/// What windows say of the head, its chain does not know: that blames the tail.
#[test]
fn a_switch_that_all_wait_for_is_excluded_from_the_chain_too() {
    let mut world = World::new([0, 2, 3, 1]);
    world.pass(2);
    (1..4).for_each(|other| world.reports[other][0].lacks = 1);
    world.reports[0][1].chain.as_mut().expect("a chain").waits = true;
    world.standing(0, 600);
    world.standing(1, 1000);
    world.pass(1);
    world.standing(0, 1000);
    world.pass(20);
    assert_eq!((world.members(WINDOWS), world.members(CHAIN)), (vec![1, 2, 3], vec![2, 3, 1]));
}

/// The chain does not use that link, and its packets would be dropped at a switch outside.
#[test]
fn a_chain_that_goes_on_keeps_its_members() {
    let mut world = World::new([0, 2, 3, 1]);
    world.pass(2);
    world.cut([1, 2]);
    world.standing(0, 1000);
    world.pass(20);
    assert_eq!((world.members(WINDOWS), world.members(CHAIN)), (vec![0, 2, 3], vec![0, 2, 3, 1]));
}

/// Others have begun anew, and copy. (Without the first one its values would be lost.)
#[test]
fn the_only_switch_with_the_values_of_the_chain_stays() {
    let mut world = World::new([0, 2, 3, 1]);
    for reports in &mut world.reports[1..] {
        reports[1].chain.as_mut().expect("a chain").copying = true;
    }
    world.pass(2);
    (1..4).for_each(|other| world.reports[other][0].lacks = 1);
    world.reports[0][0].lacks = 0b1110;
    (1..4).for_each(|other| world.reports[other][1].window = 8);
    world.standing(0, 1000);
    world.standing(1, 1000);
    world.pass(20);
    assert_eq!((world.members(WINDOWS), world.members(CHAIN)), (vec![0, 2, 3], vec![0, 3, 1]));
}

/// Windows do not wait for the head, which begins no round: it stays when they need another view.
#[test]
fn windows_that_go_on_keep_their_members() {
    let mut world = World::new([0, 2, 3, 1]);
    world.pass(2);
    world.standing(1, 1000);
    world.pass(20);
    assert_eq!((world.members(WINDOWS), world.members(CHAIN)), (vec![0, 1, 2, 3], vec![2, 3, 1]));
    (world.reports[3][0].leaves, world.reports[3][0].empty) = (true, true);
    world.pass(50);
    assert_eq!(world.members(WINDOWS), [0, 1, 2]);
}

/// Two links of switch 3 are cut; the chain stands later, at one of them, whose other end is last.
#[test]
fn an_excluded_switch_is_the_one_that_the_chain_excludes() {
    let mut world = World::new([0, 2, 3, 1]);
    world.pass(2);
    (world.reports[0][0].lacks, world.reports[1][0].lacks) = (1 << 3, 1 << 3);
    world.standing(0, 1000);
    world.pass(20);
    assert_eq!(excluded(&world), [(WINDOWS, address(3))]);
    world.reports[1][1].window = 8;
    world.standing(1, 1000);
    world.pass(20);
    assert_eq!(excluded(&world), [(WINDOWS, address(3)), (CHAIN, address(3))]);
    assert_eq!((world.members(WINDOWS), world.members(CHAIN)), (vec![0, 1, 2], vec![0, 2, 1]));
}

/// The switch is told why, and again to another agent; so are the others, and operators.
#[test]
fn an_excluded_switch_and_its_group_are_told_why() {
    let mut world = cut_between_1_and_3();
    stand_one_after_the_other(&mut world, 0);
    let pairs = vec![(address(1), address(3)), (address(3), address(1))];
    let of_view = |view| Excluded { switch: address(1), view, pairs: pairs.clone() };
    for part in [WINDOWS, CHAIN] {
        let tasks = world.told.iter().filter(|it| it.0 == address(1) && it.1 == part);
        let why = tasks.filter_map(|it| match &it.2 {
            Task::Removed { why, .. } => Some(why.clone().expect("why")),
            _ => None,
        });
        let why: Vec<Why> = why.collect();
        assert!(!why.is_empty() && why.iter().all(|it| it.excluded == of_view(VIEW + 1)));
        let views = world.views.iter().filter(|it| it.1 == part && it.2.number == VIEW + 1);
        let views: Vec<&View> = views.map(|it| &it.2).collect();
        assert_eq!(views.len(), 3);
        assert!(views.iter().all(|it| it.excluded == [of_view(VIEW + 1)]), "{views:?}");
    }
    world.told.clear();
    world.pass(100);
    let again = |(switch, _, task): &&(Ipv4Addr, String, Task)| {
        *switch == address(1) && matches!(task, Task::Removed { why: Some(_), .. })
    };
    assert!(world.told.iter().filter(again).count() >= 4, "twice for each: {:?}", world.told);
    assert!(!world.told.contains(&(address(1), WINDOWS.into(), Task::Heard)));
    let why = |world: &World, at: usize| {
        let (_, members) = world.controller.group(WINDOWS, world.now_ns).expect("the group");
        members[at].excluded.clone()
    };
    assert_eq!(why(&world, 1).map(|it| it.excluded), Some(of_view(VIEW + 1)));
    assert_eq!(why(&world, 3), None);
    // It joins by itself: after ten times as long as a member may be waited for.
    assert_eq!(world.members(CHAIN), [0, 2, 3]);
    world.pass(900);
    assert_eq!(world.members(CHAIN), [0, 2, 3, 1]);
    assert_eq!(why(&world, 1), None);
}
