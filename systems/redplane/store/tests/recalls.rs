//! Rule 6 of `systems/redplane/docs/state-protocol.md`, "Rules of the store": flows that another
//! switch wants are recalled, and requests wait meanwhile.

mod common;

use common::*;
use state_protocol::Message;
use state_protocol::MessageType::{LeaseGrant, Recall, ReleaseAck, UpdateAck};

const KEY: &[u8] = b"flow";
const VALUE: &[u8] = b"12345678";

/// Lets the owner's tenure pass while the switches live.
fn pass_tenure(chain: &mut Chain) {
    let end = chain.now + TENURE;
    chain.keep_alive(owner(1, 1), end);
}

#[test]
fn rule_6_a_wanted_flow_is_recalled_after_its_tenure_and_again_until_released() {
    let mut chain = Chain::new(3);
    let granted = chain.now;
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.advance(MS);
    let heard = chain.ask(&heartbeat(owner(1, 1))).message().request_ns;
    chain.send(&Message { packet: b"parked", ..lease(COUNTER, owner(2, 1), KEY) });
    chain.run_until(granted + TENURE - 1);
    assert_eq!(chain.sent(), [], "in its tenure");
    chain.advance(1);
    let recall = chain.reply().unwrap();
    let read = recall.message();
    assert_eq!(
        (read.message_type, read.sender, read.epoch, read.key),
        (Recall, owner(1, 1), epoch, KEY)
    );
    assert_eq!(
        (read.request_ns, read.lease_us, recall.0.from),
        (heard, 0, server_address(2)),
        "fresh; from the tail"
    );
    let mut times = Vec::new();
    for _ in 0..90 {
        chain.keep_alive(owner(1, 1), chain.now + MS);
        times.extend(chain.sent().iter().map(|_| (chain.now - granted - TENURE) / MS));
    }
    assert_eq!(times[..4], [5, 15, 35, 75], "5 ms, doubling to 40");
    chain.send(&release(owner(1, 1), KEY, epoch, 7, b"released"));
    let replies: Vec<_> = chain.replies.drain(..).map(Reply).collect();
    assert_eq!((replies[0].kind(), replies[0].epoch()), (ReleaseAck, epoch));
    let grant = replies[1].message();
    assert_eq!((grant.message_type, grant.epoch, grant.seq), (LeaseGrant, epoch + 1, 7));
    assert_eq!((grant.value, grant.packet), (&b"released"[..], &b"parked"[..]));
    chain.advance(TENURE);
    assert_eq!(chain.head().status(chain.now).recalls, 0);
    chain.assert_alike();
}

#[test]
fn rule_6_two_switches_that_both_have_packets_take_turns() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    for turn in 0..6 {
        let epoch = first + turn;
        let (has, wants) = (owner(1 + turn % 2, 1), owner(2 - turn % 2, 1));
        chain.send(&lease(COUNTER, wants, KEY));
        assert_eq!(chain.sent(), [], "turn {turn}: tenure");
        assert_eq!(
            chain.ask(&update(has, KEY, epoch, u64::from(turn) + 1, VALUE)).kind(),
            UpdateAck,
            "it goes on"
        );
        chain.advance(TENURE);
        assert_eq!(chain.sent(), [(has.switch_id, Recall)]);
        chain.send(&release(has, KEY, epoch, u64::from(turn) + 1, VALUE));
        assert_eq!(chain.sent(), [(has.switch_id, ReleaseAck), (wants.switch_id, LeaseGrant)]);
    }
}

#[test]
fn rule_6_requests_wait_in_order_of_arrival_the_owners_own_too() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    pass_tenure(&mut chain);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    assert_eq!(chain.sent(), [(1, Recall)]);
    for switch_id in [3, 1] {
        chain.send(&lease(COUNTER, owner(switch_id, 1), KEY));
    }
    assert_eq!(chain.sent(), [], "a grant to the owner could cross its release");
    chain.send(&release(owner(1, 1), KEY, epoch, 0, VALUE));
    assert_eq!(chain.sent(), [(1, ReleaseAck), (2, LeaseGrant)]);
    chain.advance(TENURE);
    assert_eq!(chain.sent(), [(2, Recall)]);
    chain.send(&release(owner(2, 1), KEY, epoch + 1, 0, VALUE));
    assert_eq!(chain.sent(), [(2, ReleaseAck), (3, LeaseGrant)]);
    chain.advance(TENURE);
    chain.send(&release(owner(3, 1), KEY, epoch + 2, 0, VALUE));
    assert_eq!(chain.sent(), [(3, Recall), (3, ReleaseAck), (1, LeaseGrant)]);
}

#[test]
fn rule_6_a_request_that_comes_when_the_flow_is_free_does_not_overtake_those_that_wait() {
    let mut chain = Chain::with(1, |settings| settings.tenure_ns = SECOND);
    let heard = chain.now;
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.advance(10 * MS);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    // The clock is past the end of the lease, and the timer was not served yet.
    chain.now = heard + STORE_LEASE + MS;
    chain.send(&lease(COUNTER, owner(3, 1), KEY));
    assert_eq!(chain.sent(), [(2, LeaseGrant)]);
}

#[test]
fn rule_6_a_recall_goes_on_when_nobody_waits_any_more() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    pass_tenure(&mut chain);
    chain.send(&Message { packet: b"parked", ..lease(COUNTER, owner(2, 1), KEY) });
    chain.keep_alive(owner(1, 1), chain.now + 30 * MS);
    assert!(chain.sent().contains(&(1, Recall)));
    let expires = chain.now + 171 * MS;
    while chain.now < expires && chain.head().status(chain.now).held > 0 {
        chain.keep_alive(owner(1, 1), chain.now + 10 * MS);
    }
    // Otherwise a hold time below half a lease would let a switch that cannot be reached keep the
    // flow for ever.
    assert!(
        chain.head().status(chain.now).recalls == 0 || chain.head().counters().leases_withheld > 0
    );
    let granted = chain.ask_last(&lease(COUNTER, owner(2, 1), KEY));
    assert_eq!((granted.kind(), granted.epoch()), (LeaseGrant, epoch + 1));
}

#[test]
fn rule_6_held_requests_are_bounded_in_number_and_bytes() {
    let mut chain = Chain::with(3, |settings| settings.tenure_ns = SECOND);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    for _ in 0..6 {
        chain.send(&lease(COUNTER, owner(2, 1), KEY));
    }
    let status = chain.head().status(chain.now);
    assert_eq!((status.held, chain.head().counters().held_overflow), (4, 2), "per flow");
    chain.advance(STORE_LEASE);
    let replies: Vec<_> = chain.replies.drain(..).map(Reply).collect();
    assert_eq!(replies.len(), 4, "all of the same switch");
    assert!(replies.iter().all(|reply| reply.epoch() == epoch + 1));

    let packet = [0; 2_000];
    for key in [b"aaaa", b"bbbb", b"cccc"] {
        chain.ask(&lease(COUNTER, owner(1, 1), key));
        chain.send(&Message { packet: &packet, ..lease(COUNTER, owner(2, 1), key) });
    }
    assert_eq!(chain.head().status(chain.now).held, 1, "4096 bytes hold one of 2068");
}

#[test]
fn rule_6_a_held_request_is_dropped_when_its_time_is_over() {
    let mut chain = Chain::with(1, |settings| settings.tenure_ns = SECOND);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    for _ in 0..4 {
        chain.advance(60 * MS);
        // Packets keep coming at the first switch: its requests are granted.
        chain.send(&lease(COUNTER, owner(1, 1), KEY));
    }
    assert_eq!(chain.head().counters().held_expired, 1);
    assert!(chain.sent().iter().all(|sent| *sent == (1, LeaseGrant)));
}
