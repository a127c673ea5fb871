//! The chain as a whole: forming, back-pressure, loss of a server's state.

mod common;

use common::*;
use state_protocol::MessageType;
use state_store::core::Server;

const KEY: &[u8] = b"flow";

#[test]
fn a_chain_waits_out_leases_it_may_have_forgotten() {
    let mut chain = Chain::unformed(3, |_| {});
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
fn a_server_that_lost_its_state_stops_the_chain_wherever_it_is() {
    for victim in 0..3 {
        let mut chain = Chain::new(3);
        chain.ask(&lease(COUNTER, owner(1, 1), KEY));
        chain.advance(SECOND);
        chain.servers[victim] = Server::new(settings(3, victim), start(77, chain.now), keys());
        chain.advance(SECOND);
        for at in (0..3).filter(|at| *at != victim) {
            assert_eq!(chain.servers[at].status(chain.now).state, "broken", "server {at}, victim {victim}");
        }
        chain.send(&lease(COUNTER, owner(1, 1), KEY));
        assert!(chain.reply().is_none());
    }
}

#[test]
fn a_server_restarted_before_anything_was_recorded_joins_again() {
    for victim in 0..3 {
        let mut chain = Chain::new(3);
        chain.servers[victim] = Server::new(settings(3, victim), start(77, chain.now), keys());
        chain.advance(SECOND);
        let grant = chain.ask(&lease(COUNTER, owner(1, 1), KEY));
        assert_eq!(grant.kind(), MessageType::LeaseGrant, "victim {victim}");
        chain.assert_alike();
    }
}

#[test]
fn servers_with_other_settings_do_not_form_a_chain() {
    let mut chain = Chain::unformed(3, |settings| settings.lease_us += u32::from(settings.position == 1));
    chain.advance(5 * SECOND);
    assert_eq!(chain.head().status(chain.now).state, "forming");
}
