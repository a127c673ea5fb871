//! What servers sent in earlier lives, sent again by somebody with good tags, takes nothing from those that live now.

use controller::core::{Controller, Input, Outputs, Settings};
use state_protocol::{Control, Joining, Member, Report, Reporter, ShardReport, ShardView, Views};
use std::net::{Ipv4Addr, SocketAddrV4};

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
fn decided(controller: &mut Controller, from_ns: u64, incarnation: u64, version: u64) -> Option<Views> {
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
                    machine,
                    replicas,
                    load: None,
                };
                let bytes = Control::Report { sent_ns: now_ns, incarnation, report }.encode().unwrap();
                controller.handle(now_ns, Input::Datagram { from: address(at), bytes: &bytes }, &mut out);
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
    // A controller that was started anew: it has heard nobody of those that its database names. They have no power, and come back with their logs.
    let mut controller = Controller::new(settings(1), views(), true, 0);
    assert_eq!(decided(&mut controller, 0, 1, 6), None, "the first life knew no views that name the second");
    // Others in their places, who were told of them, have nothing.
    let decided = decided(&mut controller, 2_000 * MS, 3, 7).expect("a decision");
    assert_eq!((decided.shards[0].founded, decided.shards[0].members[0].incarnation), (8, 3));
}

#[test]
fn a_server_that_has_caught_up_survives_all_that_it_has_it_from() {
    let member = |at| Member { address: address(at), incarnation: 2 };
    let joining = Some(Joining { member: member(2), since: 7 });
    let view = ShardView { number: 7, founded: 1, members: vec![member(1)], joining, draining: false };
    let views = Views { version: 7, shards: vec![view] };
    let replica = |view, whole| vec![ShardReport { view, whole, ..ShardReport::default() }];
    // The only member died just when the other had everything, and is back in another life, with nothing.
    let reports =
        |version, whole| [(1, 3, version, vec![]), (2, 2, version, replica(version, whole)), (3, 2, version, vec![])];
    let mut controller = Controller::new(settings(1), views.clone(), true, 0);
    let joined = decided_from(&mut controller, 0, &reports(7, true)).expect("a decision");
    assert_eq!((joined.shards[0].founded, &joined.shards[0].members), (1, &vec![member(1), member(2)]));
    let mut controller = Controller::new(settings(1), joined, true, 0);
    let alone = decided_from(&mut controller, 0, &reports(8, true)).expect("a decision");
    assert_eq!((alone.shards[0].founded, &alone.shards[0].members), (1, &vec![member(2)]));
    // Without the whole of it there is nothing to go on with.
    let mut controller = Controller::new(settings(1), views, true, 0);
    let lost = decided_from(&mut controller, 0, &reports(7, false)).expect("a decision");
    assert_eq!(lost.shards[0].founded, 8);
}

#[test]
fn views_of_another_number_of_shards_are_not_changed() {
    let mut controller = Controller::new(settings(2), views(), true, 0);
    assert!(controller.is_of_other_shards());
    assert_eq!(decided(&mut controller, 0, 3, 7), None);
}
