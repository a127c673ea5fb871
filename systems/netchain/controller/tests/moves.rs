//! When chains go back to the switches that the placement wants in them, and when not.

use netchain_controller::{
    Controller, Event, Input, Judge, Placement, Report, Settings, Stage, State,
};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const DEAD_MS: u64 = 100;
const AFTER_MS: u64 = 2_000;
const GROUPS: u16 = 3;
const ALL: [u8; 4] = [1, 2, 3, 4];

fn switch(at: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, at)
}

/// Switch 1 is the best candidate for all groups. Of five switches 1 and 4, and 2 and 5, share a
/// rack.
struct InOrder(Vec<Ipv4Addr>);

impl Placement for InOrder {
    fn candidates(&self, _group: u16) -> &[Ipv4Addr] {
        &self.0
    }

    fn rack(&self, switch: &Ipv4Addr) -> u32 {
        u32::from(switch.octets()[3]) % 3
    }
}

/// Switches that do at once what they are told, chains of three, and what was logged.
struct Cluster {
    controller: Controller,
    settings: Settings,
    judge: Judge,
    now_ms: u64,
    events: Vec<Event>,
    switches: Vec<u8>,
    lives: [u32; 5],
    used_percent: u8,
    /// Readers copy all slots at once.
    copies: bool,
    /// Two switches that do not hear each other.
    cut: Option<[u8; 2]>,
}

fn controller(settings: &Settings, state: State) -> Controller {
    let switches = state.switches.keys().copied().collect();
    Controller::new(settings.clone(), Box::new(InOrder(switches)), state)
}

impl Cluster {
    fn new(rebalance_after_ms: u64) -> Cluster {
        Cluster::of(&ALL, rebalance_after_ms)
    }

    fn of(numbers: &[u8], rebalance_after_ms: u64) -> Cluster {
        let settings = Settings {
            failures: 2,
            dead_ms: DEAD_MS,
            agent_ms: 500,
            lease_ms: 60,
            most_joins: 1,
            again_ms: 20,
            begin_ms: 100,
            collect_percent: 0,
            collect_gap_ms: 0,
            rebalance_after_ms,
        };
        let switches: Vec<Ipv4Addr> = numbers.iter().copied().map(switch).collect();
        let chains = vec![switches[..3].to_vec(); usize::from(GROUPS)];
        let mut cluster = Cluster {
            controller: controller(&settings, State::found(&switches, chains)),
            judge: Judge::new(settings.clone()),
            settings,
            now_ms: 0,
            events: vec![],
            switches: numbers.to_vec(),
            lives: [1; 5],
            used_percent: 0,
            copies: true,
            cut: None,
        };
        cluster.pass(500, numbers);
        assert_eq!(cluster.count(1), 3);
        cluster
    }

    fn handle(&mut self, input: Input) {
        let mut outputs = self.controller.handle(self.now_ms, input);
        while let Some(state) = outputs.persist {
            self.events.append(&mut outputs.events);
            let judged = self.judge.decided(self.now_ms, self.controller.state(), &state);
            assert_eq!(judged, Ok(()));
            outputs = self.controller.handle(self.now_ms, Input::Persisted);
        }
    }

    /// All of these report every 10 ms, for so long, and miss the others.
    fn pass(&mut self, ms: u64, who: &[u8]) {
        for _ in (0..ms).step_by(10) {
            self.now_ms += 10;
            for at in who {
                let state = self.controller.state();
                let is_cut = |it: &u8| {
                    it != at && self.cut.is_some_and(|cut| cut.contains(it) && cut.contains(at))
                };
                let silent = self.switches.iter().filter(|it| !who.contains(it) || is_cut(it));
                let groups = (0..).zip(&state.groups);
                let copies = groups.filter(|(_, it)| {
                    let sends = it.joining.is_some() && it.reader() == Some(switch(*at));
                    let collects = it.collecting && it.head() == Some(switch(*at));
                    it.stage == Stage::Serving && (sends || collects) && self.copies
                });
                let report = Report {
                    switch: switch(*at),
                    incarnation: self.lives[usize::from(at - 1)],
                    applied: state.version,
                    asks: false,
                    silent_ms: silent.map(|it| (switch(*it), DEAD_MS)).collect(),
                    copied: copies.map(|(number, it)| (number, it.view)).collect(),
                    used_percent: self.used_percent,
                };
                self.handle(Input::Report(report));
            }
            self.handle(Input::Timer);
        }
    }

    /// A switch loses its power, others take over its groups, and it is back.
    fn restart(&mut self, at: u8) {
        let others: Vec<u8> = ALL.into_iter().filter(|it| *it != at).collect();
        self.pass(1_500, &others);
        self.lives[usize::from(at - 1)] += 1;
        self.pass(100, &ALL);
        assert_eq!(self.count(at), 0, "it is back, and in no chain");
    }

    /// How many chains have a switch.
    fn count(&self, at: u8) -> usize {
        let groups = &self.controller.state().groups;
        groups.iter().filter(|it| it.chain.contains(&switch(at))).count()
    }

    fn chain(&self, group: usize) -> BTreeSet<u8> {
        self.controller.state().groups[group].chain.iter().map(|it| it.octets()[3]).collect()
    }

    fn to_move(&self) -> (usize, Option<u64>) {
        self.controller.to_move(self.now_ms)
    }
}

#[test]
fn a_switch_that_returns_gets_its_groups_back_after_a_while() {
    let mut cluster = Cluster::new(AFTER_MS);
    assert_eq!(cluster.to_move(), (0, None));
    cluster.restart(1);
    let (groups, waits_ms) = cluster.to_move();
    assert_eq!(groups, 3);
    assert!(waits_ms.is_some_and(|ms| ms > AFTER_MS / 2 && ms <= AFTER_MS), "{waits_ms:?}");
    cluster.pass(AFTER_MS / 2, &ALL);
    assert_eq!((cluster.count(1), cluster.count(4)), (0, 3), "it may die again");
    cluster.events.clear();
    cluster.pass(AFTER_MS, &ALL);
    assert_eq!((cluster.count(1), cluster.count(4)), (3, 0));
    assert_eq!(cluster.to_move(), (0, None));
    // One group after the other, and the joiner before the leaver.
    let steps = |group| {
        [
            Event::Moves(group, switch(1)),
            Event::Joined(group, switch(1)),
            Event::Left(group, switch(4)),
        ]
    };
    let wanted: Vec<Event> = (0..GROUPS).flat_map(steps).collect();
    assert_eq!(cluster.events, wanted);
    // Its reader stayed, and its head.
    let group = &cluster.controller.state().groups[0];
    assert_eq!((group.head(), group.reader()), (Some(switch(2)), Some(switch(3))));
}

/// Who joins stands before the reader. So the old reader leaves for a moment.
#[test]
fn a_reader_reads_again() {
    let mut cluster = Cluster::new(AFTER_MS);
    cluster.restart(3);
    cluster.events.clear();
    cluster.pass(2 * AFTER_MS, &ALL);
    let order = |group: usize| cluster.controller.state().groups[group].chain.clone();
    assert_eq!(order(0), [1, 2, 3].map(switch));
    assert_eq!(
        cluster.events[..6],
        [
            Event::Moves(0, switch(3)),
            Event::Joined(0, switch(3)),
            Event::Left(0, switch(2)),
            Event::Moves(0, switch(2)),
            Event::Joined(0, switch(2)),
            Event::Left(0, switch(4)),
        ]
    );
    assert_eq!(cluster.to_move(), (0, None));
}

/// It is back at once, before another one takes its place: the right members in a wrong order.
#[test]
fn a_reader_that_was_emptied_reads_again() {
    let mut cluster = Cluster::new(AFTER_MS);
    cluster.lives[2] += 1;
    cluster.pass(500, &ALL);
    let order = |cluster: &Cluster| cluster.controller.state().groups[0].chain.clone();
    assert_eq!(order(&cluster), [1, 3, 2].map(switch));
    let (groups, waits_ms) = cluster.to_move();
    assert!(groups == 3 && waits_ms > Some(AFTER_MS / 2), "{waits_ms:?}");
    let sessions = cluster.controller.state().groups[0].session;
    cluster.pass(4 * AFTER_MS, &ALL);
    assert_eq!(order(&cluster), [1, 2, 3].map(switch));
    assert_eq!(cluster.to_move(), (0, None));
    assert_eq!(cluster.controller.state().groups[0].session, sessions, "no other head");
}

/// A head that leaves would cost a session, and clients some verdicts.
#[test]
fn a_head_stays() {
    let mut cluster = Cluster::new(AFTER_MS);
    cluster.restart(1);
    cluster.pass(4 * AFTER_MS, &ALL);
    assert_eq!(cluster.controller.state().groups[0].chain, [2, 1, 3].map(switch));
    // Both others go: it is the head, and has to be the reader for no one.
    cluster.lives[1] += 1;
    cluster.lives[2] += 1;
    cluster.pass(8 * AFTER_MS, &ALL);
    assert_eq!(cluster.controller.state().groups[0].chain, [1, 2, 3].map(switch));
    assert_eq!(cluster.to_move(), (0, None));
}

#[test]
fn a_switch_that_comes_and_goes_gets_nothing_back() {
    let mut cluster = Cluster::new(AFTER_MS);
    for _ in 0..5 {
        cluster.restart(1);
        cluster.pass(AFTER_MS - 200, &ALL);
        assert_eq!(cluster.count(1), 0);
    }
}

#[test]
fn without_a_time_chains_wait_for_an_order() {
    let mut cluster = Cluster::new(0);
    cluster.restart(1);
    cluster.pass(20_000, &ALL);
    assert_eq!((cluster.count(1), cluster.to_move()), (0, (3, None)));
    cluster.judge.ordered(cluster.now_ms);
    cluster.handle(Input::Rebalance);
    cluster.pass(2_000, &ALL);
    assert_eq!((cluster.count(1), cluster.to_move()), (3, (0, None)));
    // The order was for that life.
    cluster.restart(2);
    cluster.pass(20_000, &ALL);
    assert_eq!((cluster.count(2), cluster.to_move()), (0, (3, None)));
}

#[test]
fn a_drain_that_is_taken_back_counts_as_a_return() {
    let mut cluster = Cluster::new(AFTER_MS);
    cluster.handle(Input::Drain(switch(2), true));
    cluster.pass(20_000, &ALL);
    assert_eq!((cluster.count(2), cluster.to_move().0), (0, 0), "it is to be in no chain");
    cluster.handle(Input::Drain(switch(2), false));
    cluster.pass(AFTER_MS / 2, &ALL);
    assert_eq!((cluster.count(2), cluster.to_move().0), (0, 3));
    cluster.pass(AFTER_MS * 2, &ALL);
    assert_eq!((cluster.count(2), cluster.count(4)), (3, 0));
}

/// A chain keeps who joined for a drain, and does not need it when the drain is taken back.
#[test]
fn a_member_that_is_too_many_leaves() {
    let mut cluster = Cluster::new(0);
    cluster.copies = false;
    cluster.handle(Input::Drain(switch(2), true));
    cluster.pass(200, &ALL);
    assert_eq!(cluster.chain(0), BTreeSet::from(ALL), "switch 4 joins");
    cluster.handle(Input::Drain(switch(2), false));
    cluster.copies = true;
    cluster.pass(500, &ALL);
    assert_eq!((cluster.count(2), cluster.count(4)), (3, 0));
}

/// With one switch dead for long, others' groups move all the same: the next candidate is wanted in
/// its place.
#[test]
fn a_dead_switch_keeps_no_other_from_its_groups() {
    let mut cluster = Cluster::of(&[1, 2, 3, 4, 5], AFTER_MS);
    cluster.pass(1_500, &[2, 3, 4, 5]);
    assert_eq!(cluster.chain(0), BTreeSet::from([2, 3, 4]));
    cluster.pass(1_500, &[3, 4, 5]);
    assert_eq!(cluster.chain(0), BTreeSet::from([3, 4, 5]));
    cluster.lives[1] = 2;
    cluster.pass(2 * AFTER_MS, &[2, 3, 4, 5]);
    assert_eq!((cluster.count(2), cluster.count(5)), (3, 0));
    // (Who reads is not worth moves as long as a member stands in for switch 1.)
    assert_eq!(cluster.controller.state().groups[0].chain, [4, 2, 3].map(switch));
    assert_eq!(cluster.to_move(), (0, None));
}

#[test]
fn nothing_moves_while_something_else_is_under_way() {
    let mut cluster = Cluster::new(AFTER_MS);
    cluster.restart(1);
    cluster.copies = false;
    cluster.handle(Input::Collect(Some(2)));
    cluster.pass(3 * AFTER_MS, &ALL);
    assert_eq!(cluster.count(1), 0, "group 2 is collected");
    cluster.copies = true;
    cluster.pass(20, &ALL);
    cluster.copies = false;
    cluster.pass(AFTER_MS, &ALL);
    assert_eq!(cluster.count(1), 0, "it rests as long as that took");
    cluster.pass(3 * AFTER_MS, &ALL);
    assert_eq!(cluster.count(1), 1, "one group at a time");
    assert_eq!(cluster.controller.state().groups[0].full().count(), 3);
}

/// A member that has no slot left never becomes a full one.
#[test]
fn a_switch_without_free_slots_gets_no_group() {
    let mut cluster = Cluster::new(AFTER_MS);
    cluster.restart(1);
    cluster.used_percent = 90;
    cluster.pass(3 * AFTER_MS, &ALL);
    assert_eq!((cluster.count(1), cluster.to_move().0), (0, 3));
    cluster.used_percent = 89;
    cluster.pass(AFTER_MS, &ALL);
    assert_eq!((cluster.count(1), cluster.to_move().0), (3, 0));
}

/// A member dies while another one joins in a move: recovery goes on with that one.
#[test]
fn a_death_ends_a_move() {
    for dies in ALL {
        let mut cluster = Cluster::new(AFTER_MS);
        cluster.restart(1);
        cluster.copies = false;
        cluster.pass(AFTER_MS + 500, &ALL);
        assert_eq!(cluster.controller.state().groups[0].joining, Some(switch(1)));
        let others: Vec<u8> = ALL.into_iter().filter(|it| *it != dies).collect();
        cluster.pass(300, &others);
        cluster.copies = true;
        cluster.pass(1_500, &others);
        for group in 0..usize::from(GROUPS) {
            assert_eq!(cluster.chain(group), others.iter().copied().collect(), "{dies} dies");
        }
        cluster.lives[usize::from(dies - 1)] += 1;
        cluster.pass(3 * AFTER_MS, &ALL);
        assert_eq!((cluster.count(4), cluster.to_move()), (0, (0, None)), "after {dies}");
    }
}

/// Recovery does not wait for a move: nobody knows how long that takes.
#[test]
fn a_short_chain_gets_a_member_beside_a_move() {
    let mut cluster = Cluster::new(AFTER_MS);
    cluster.restart(1);
    cluster.copies = false;
    cluster.pass(AFTER_MS + 500, &ALL);
    cluster.pass(500, &[1, 3, 4]);
    let joining = cluster.controller.state().groups.iter().filter(|it| it.joining.is_some());
    assert_eq!(joining.count(), 1, "one that joins a short chain: the move is one now");
}

/// Another controller goes on with what it finds: a member that joins, or one that is too many.
#[test]
fn another_controller_ends_a_move() {
    for joined in [false, true] {
        let mut cluster = Cluster::new(AFTER_MS);
        cluster.restart(1);
        cluster.copies = false;
        cluster.pass(AFTER_MS + 500, &ALL);
        let mut state = cluster.controller.state().clone();
        if joined {
            state.groups[0].joining = None;
            state.version += 1;
        }
        cluster.controller = controller(&cluster.settings, state);
        cluster.copies = true;
        cluster.pass(1_000, &ALL);
        assert_eq!(cluster.chain(0), BTreeSet::from([1, 2, 3]));
        assert_eq!(cluster.count(1), 1, "of the others it knows only now that 1 serves");
        cluster.pass(2 * AFTER_MS, &ALL);
        assert_eq!(cluster.count(1), 3);
    }
}

/// It would be one member in name only, and hold up whatever else is to be done.
#[test]
fn a_join_that_cannot_end_is_given_up() {
    let joining = |cluster: &Cluster| cluster.controller.state().groups[0].joining;
    for reason in ["no slots", "drained", "not heard"] {
        let mut cluster = Cluster::new(AFTER_MS);
        cluster.restart(1);
        cluster.copies = false;
        cluster.pass(AFTER_MS + 500, &ALL);
        assert_eq!(joining(&cluster), Some(switch(1)));
        cluster.events.clear();
        match reason {
            "no slots" => cluster.used_percent = 95,
            "drained" => cluster.handle(Input::Drain(switch(1), true)),
            _ => cluster.cut = Some([1, 3]),
        }
        cluster.pass(300, &ALL);
        assert_eq!(joining(&cluster), None, "{reason}");
        assert_eq!(cluster.events, [Event::Left(0, switch(1))], "{reason}");
        assert_eq!(cluster.chain(0), BTreeSet::from([2, 3, 4]), "{reason}");
        (cluster.copies, cluster.used_percent) = (true, 0);
        cluster.pass(AFTER_MS / 2, &ALL);
        assert_eq!(cluster.count(1), 0, "{reason}: not at once again");
        cluster.pass(2 * AFTER_MS, &ALL);
        assert_eq!(cluster.count(1), if reason == "no slots" { 3 } else { 0 }, "{reason}");
        cluster.cut = None;
        cluster.handle(Input::Drain(switch(1), false));
        cluster.pass(3 * AFTER_MS, &ALL);
        assert_eq!(cluster.count(1), 3, "{reason} is over");
    }
}

/// A rack that fails takes no two members along if it can be helped: neither a recovery nor a move
/// makes it so.
#[test]
fn members_are_of_different_racks() {
    let mut cluster = Cluster::of(&[1, 2, 3, 4, 5], AFTER_MS);
    cluster.pass(1_500, &[1, 3, 4, 5]);
    assert_eq!(cluster.chain(0), BTreeSet::from([1, 3, 5]), "4 is in the rack of 1");
    cluster.pass(3 * AFTER_MS, &[1, 3, 4, 5]);
    assert_eq!(cluster.chain(0), BTreeSet::from([1, 3, 5]), "4 comes before 5, and moves to none");
    cluster.lives[1] += 1;
    cluster.pass(3 * AFTER_MS, &[1, 2, 3, 4, 5]);
    assert_eq!(cluster.chain(0), BTreeSet::from([1, 2, 3]));
}

/// A decision that the database refused is made again.
#[test]
fn a_refused_decision_is_made_again() {
    let mut cluster = Cluster::new(AFTER_MS);
    let now_ms = cluster.now_ms;
    let refused = cluster.controller.handle(now_ms, Input::Drain(switch(1), true));
    assert!(refused.persist.is_some());
    let after = cluster.controller.handle(now_ms, Input::NotPersisted);
    assert!(after.persist.is_none(), "nobody looks at what comes of this");
    cluster.handle(Input::Drain(switch(1), true));
    cluster.pass(1_500, &ALL);
    assert_eq!(cluster.count(1), 0);
}
