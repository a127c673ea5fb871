//! What servers sent in earlier lives, sent again by somebody with good tags, takes nothing from
//! those that live now.

use controller::core::{Controller, Input, Outputs, Settings};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{Control, Joining, Member, Report, Reporter, ShardReport, ShardView, Views};

const MS: u64 = 1_000_000;
const DEAD_NS: u64 = 250 * MS;

fn address(at: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, at), 5407)
}

fn settings(shards: u16) -> Settings {
    Settings {
        shards,
        chain_length: 3,
        founding_servers: 3,
        dead_ns: DEAD_NS,
        join_timeout_ns: 10_000 * MS,
        most_joins: 2,
        reorder_after_ns: 10_000 * MS,
    }
}

/// One shard; its members are in their second life.
fn views() -> Views {
    let members = (1..4).map(|at| Member { address: address(at), incarnation: 2 }).collect();
    let view = ShardView { number: 7, founded: 1, members, joining: None, draining: false };
    Views { version: 7, shards: vec![view] }
}

/// All three report for a second, from `from_ns` on, every 50 ms; the decision that comes of it.
fn decided(
    controller: &mut Controller,
    from_ns: u64,
    incarnation: u64,
    version: u64,
) -> Option<Views> {
    decided_from(controller, from_ns, &[1, 2, 3].map(|at| (at, incarnation, version, vec![])))
}

/// The same of any servers: address, incarnation, version of the views, replicas.
fn decided_from(
    controller: &mut Controller,
    from_ns: u64,
    servers: &[(u8, u64, u64, Vec<ShardReport>)],
) -> Option<Views> {
    for now_ns in (from_ns..from_ns + 1_000 * MS).step_by(10 * MS as usize) {
        let mut out = Outputs::default();
        if (now_ns - from_ns).is_multiple_of(50 * MS) {
            for (at, incarnation, version, replicas) in servers.iter().cloned() {
                let machine = format!("m{at}");
                let report = Report {
                    reporter: Reporter::Server,
                    version,
                    shards: 1,
                    heard_ms: 0,
                    accepted: false,
                    machine,
                    replicas,
                    load: None,
                };
                let bytes =
                    Control::Report { sent_ns: now_ns, incarnation, report }.encode().unwrap();
                controller.handle(
                    now_ns,
                    Input::Datagram { from: address(at), bytes: &bytes },
                    &mut out,
                );
            }
        }
        controller.handle(now_ns, Input::Timer, &mut out);
        if out.persist.is_some() {
            return out.persist;
        }
    }
    None
}

#[test]
fn no_state_counts_as_lost_by_reports_of_a_life_before_the_one_that_is_missed() {
    // A controller that was started anew: it has heard nobody of those that its database names.
    // They have no power, and come back with their logs.
    let mut controller = Controller::new(settings(1), views(), true, 0);
    assert_eq!(
        decided(&mut controller, 0, 1, 6),
        None,
        "the first life knew no views that name the second"
    );
    // Others in their places, who were told of them, have nothing.
    let decided = decided(&mut controller, 2_000 * MS, 3, 7).expect("a decision");
    assert_eq!((decided.shards[0].founded, decided.shards[0].members[0].incarnation), (8, 3));
}

#[test]
fn a_server_that_has_caught_up_survives_all_that_it_has_it_from() {
    let member = |at| Member { address: address(at), incarnation: 2 };
    let joining = Some(Joining { member: member(2), since: 7 });
    let view =
        ShardView { number: 7, founded: 1, members: vec![member(1)], joining, draining: false };
    let views = Views { version: 7, shards: vec![view] };
    let replica = |view, synced| vec![ShardReport { view, synced, ..ShardReport::default() }];
    // The only member died just when the other had everything, and is back in another life, with
    // nothing.
    let reports = |version, synced| {
        [
            (1, 3, version, vec![]),
            (2, 2, version, replica(version, synced)),
            (3, 2, version, vec![]),
        ]
    };
    let mut controller = Controller::new(settings(1), views.clone(), true, 0);
    let joined = decided_from(&mut controller, 0, &reports(7, true)).expect("a decision");
    assert_eq!(
        (joined.shards[0].founded, &joined.shards[0].members),
        (1, &vec![member(1), member(2)])
    );
    let mut controller = Controller::new(settings(1), joined, true, 0);
    let alone = decided_from(&mut controller, 0, &reports(8, true)).expect("a decision");
    assert_eq!((alone.shards[0].founded, &alone.shards[0].members), (1, &vec![member(2)]));
    // Without the whole of it there is nothing to go on with.
    let mut controller = Controller::new(settings(1), views, true, 0);
    let lost = decided_from(&mut controller, 0, &reports(7, false)).expect("a decision");
    assert_eq!(lost.shards[0].founded, 8);
}

/// Found by the simulation, seed 12511420456192549164: no controller ran while a server that was
/// catching up died, so the whole chain stood still; the next controller took the tail out for
/// that, when the head had just died as well, unnoticed.
#[test]
fn a_joining_server_that_holds_up_the_chain_costs_no_member() {
    let member = |at| Member { address: address(at), incarnation: 2 };
    let joining = Some(Joining { member: member(3), since: 7 });
    let view = ShardView {
        number: 7,
        founded: 1,
        members: vec![member(1), member(2)],
        joining,
        draining: false,
    };
    let views = Views { version: 7, shards: vec![view] };
    let waits = |stalled_ms, unreachable_ms| {
        vec![ShardReport {
            view: 7,
            synced: true,
            ready: true,
            stalled_ms,
            unreachable_ms,
            ..ShardReport::default()
        }]
    };
    for (third, tail) in [(3, waits(0, 0)), (2, waits(260, 0)), (2, waits(0, 250))] {
        // Of server 3 either another life reports, or it is up and does not confirm, or it is up
        // and cut off from the tail.
        let reports = [(1, 2, 7, waits(1_000, 0)), (2, 2, 7, tail), (3, third, 7, vec![])];
        let mut controller = Controller::new(settings(1), views.clone(), true, 0);
        let kept = decided_from(&mut controller, 0, &reports).map(|views| views.shards[0].clone());
        let members = kept.as_ref().map_or(&views.shards[0].members, |view| &view.members);
        assert_eq!(members, &vec![member(1), member(2)], "{reports:?}");
        let given_up = kept.is_some_and(|view| view.joining.is_none());
        assert_eq!(given_up, reports[1].3[0].stalled_ms == 0, "{reports:?}");
    }
    // A tail that waits for nobody is at fault itself.
    let reports = [(1, 2, 7, waits(1_000, 0)), (2, 2, 7, waits(0, 0)), (3, 2, 7, vec![])];
    let mut controller = Controller::new(settings(1), views, true, 0);
    let blamed = decided_from(&mut controller, 0, &reports).expect("a decision");
    assert_eq!(blamed.shards[0].members, vec![member(1)]);
}

#[test]
fn views_of_another_number_of_shards_are_not_changed() {
    let mut controller = Controller::new(settings(2), views(), true, 0);
    assert!(controller.is_of_other_shards());
    assert_eq!(decided(&mut controller, 0, 3, 7), None);
}
