//! What servers sent in earlier lives, sent again by somebody with good tags, takes nothing from those that live now.

use controller::core::{Controller, Input, Outputs, Settings};
use state_protocol::{Control, Member, Report, Reporter, ShardView, Views};
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
    for now_ns in (from_ns..from_ns + 1_000 * MS).step_by(10 * MS as usize) {
        let mut out = Outputs::default();
        if (now_ns - from_ns).is_multiple_of(50 * MS) {
            for at in 1..4 {
                let machine = format!("m{at}");
                let report = Report {
                    reporter: Reporter::Server,
                    version,
                    shards: 1,
                    heard_ms: 0,
                    machine,
                    replicas: vec![],
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
fn views_of_another_number_of_shards_are_not_changed() {
    let mut controller = Controller::new(settings(2), views(), true, 0);
    assert!(controller.is_of_other_shards());
    assert_eq!(decided(&mut controller, 0, 3, 7), None);
}
