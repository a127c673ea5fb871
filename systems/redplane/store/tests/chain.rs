//! The chain as a whole: forming, back-pressure, changes of its servers. (With a controller, copies
//! and crashes at random: `systems/redplane/store/tests/cluster.rs`.)

mod common;

use common::*;
use state_protocol::{Message, MessageType};
use state_store::core::Input;

const KEY: &[u8] = b"flow";

#[test]
fn a_chain_waits_out_leases_it_may_have_forgotten() {
    let mut chain = Chain::unformed(3, |_, _| {});
    chain.advance(100 * MS);
    assert_eq!(chain.head().status(chain.now).state, "waiting_out_leases");
    chain.send(&lease(COUNTER, owner(1, 1), KEY));
    assert!(chain.reply().is_none());
    assert_eq!(chain.head().counters().dropped_not_serving, 1);
    chain.advance(SECOND);
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), KEY)).kind(), MessageType::LeaseGrant);
}

#[test]
fn back_pressure_drops_and_counts_requests_and_recovers() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.advance(SECOND);
    chain.down = vec![2];
    for seq in 1..=200 {
        chain.send(&update(owner(1, 1), KEY, epoch, seq, b"12345678"));
    }
    assert_eq!(chain.head().status(chain.now).unacked, 64);
    assert_eq!(chain.head().counters().dropped_back_pressure, 200 - 64);
    chain.down.clear();
    chain.advance(SECOND);
    assert_eq!(chain.replies.drain(..).count(), 64);
    assert_eq!(chain.ask(&update(owner(1, 1), KEY, epoch, 200, b"12345678")).message().seq, 200);
    chain.assert_alike();
}

#[test]
fn entries_that_overtake_each_other_are_kept_for_their_turn() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    let applied =
        |chain: &Chain| [1, 2].map(|at: usize| chain.servers[at].counters().chain_applied);
    let before = applied(&chain);
    chain.newest_first = true;
    let from = switch_address(1);
    for seq in 1..=40 {
        let request_ns = chain.now + seq;
        let update = Message { request_ns, ..update(owner(1, 1), KEY, epoch, seq, b"12345678") };
        chain.handle(0, Input::Datagram { from, bytes: &signed(&update, from, server_address(0)) });
    }
    chain.run_until(chain.now);
    assert_eq!(
        chain.sent(),
        [(1, MessageType::UpdateAck); 40],
        "at once, with no time to send anything again"
    );
    assert_eq!(applied(&chain), before.map(|applied| applied + 40));
    assert!(
        chain.servers[1].counters().chain_gaps > 0 && chain.head().counters().chain_resends <= 1
    );
    chain.assert_alike();
}

#[test]
fn whoever_dies_the_others_go_on_with_everything() {
    for victim in 0..3 {
        let mut chain = Chain::new(3);
        let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
        chain.advance(5 * MS); // until everybody knows that the tail has it
        // On its way when the server dies: recorded where it came to, answered by nobody yet.
        chain.down = vec![victim];
        chain.send(&update(owner(1, 1), KEY, epoch, 1, b"12345678"));
        chain.advance(20 * MS);
        assert!(chain.reply().is_none());
        let left: Vec<_> = (0..3).filter(|at| *at != victim).collect();
        let members: Vec<_> = left.iter().map(|at| (*at, *at as u64 + 1)).collect();
        chain.adopt(2, &members, &left);
        chain.advance(20 * MS);
        chain.send_to(left[0], &update(owner(1, 1), KEY, epoch, 2, b"23456789"));
        let seqs: Vec<_> =
            chain.replies.drain(..).map(|reply| Reply(reply).message().seq).collect();
        // What only the dead head had, nobody was told of; the switch sends it again.
        assert_eq!(seqs, if victim == 0 { vec![2] } else { vec![1, 2] }, "victim {victim}");
        let digests: Vec<_> =
            left.iter().map(|at| chain.servers[*at].records().shared_digest()).collect();
        assert_eq!(digests[0], digests[1], "victim {victim}");
        assert!(chain.servers[left[0]].is_serving(chain.now));
    }
}

#[test]
fn a_deposed_head_answers_nothing_and_orders_nothing() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.adopt(2, &[(1, 2), (2, 3)], &[1, 2]);
    let before = chain.servers[1].records().shared_digest();
    chain.send_to(0, &update(owner(1, 1), KEY, epoch, 1, b"12345678"));
    chain.send_to(0, &update(owner(2, 1), KEY, epoch, 1, b"12345678")); // which it would refuse
    chain.advance(SECOND);
    assert!(chain.reply().is_none());
    assert_eq!(chain.servers[1].records().shared_digest(), before);
    // Older views change nothing; the newest take its replica away.
    chain.adopt(1, &[(0, 1), (1, 2), (2, 3)], &[0, 1, 2]);
    assert_eq!(chain.servers[1].status(chain.now).role, "head");
    chain.adopt(2, &[(1, 2), (2, 3)], &[0]);
    assert!(chain.servers[0].node.replica(0).is_none());
}

#[test]
fn messages_of_another_life_change_nothing() {
    for victim in 0..3 {
        let mut chain = Chain::new(3);
        chain.ask(&lease(COUNTER, owner(1, 1), KEY));
        chain.advance(SECOND);
        let digests: Vec<_> =
            chain.servers.iter().map(|server| server.records().shared_digest()).collect();
        // Back empty, and told of the chain in which its earlier life was.
        chain.servers[victim] = Server::new(settings(), start(77, chain.now), victim);
        chain.adopt(2, &[(0, 1), (1, 2), (2, 3)], &[0, 1, 2]);
        chain.advance(SECOND);
        assert!(chain.servers[victim].node.replica(0).is_none());
        for at in (0..3).filter(|at| *at != victim) {
            assert_eq!(
                chain.servers[at].records().shared_digest(),
                digests[at],
                "server {at}, victim {victim}"
            );
        }
    }
}

#[test]
fn servers_with_other_settings_do_not_form_a_chain() {
    let mut chain = Chain::unformed(3, |at, settings| settings.lease_us += u32::from(at == 1));
    chain.advance(5 * SECOND);
    assert_eq!(chain.head().status(chain.now).state, "forming");
}
