//! Each rule of `docs/state-protocol.md`, "Rules of the store", on a chain in one process with a clock that the test sets.

mod common;

use common::*;
use state_protocol::{Flags, Message, MessageType};
use state_store::core::{Input, Outputs, Server};

const KEY: &[u8] = b"flow";

fn nat_key(host: u8, remote: u8, source_port: u16, destination_port: u16, protocol: u8) -> [u8; 13] {
    let [s0, s1] = source_port.to_be_bytes();
    let [d0, d1] = destination_port.to_be_bytes();
    [10, 0, 0, host, 8, 8, 8, remote, s0, s1, d0, d1, protocol]
}

/// The key of packets that come back to the binding.
fn reverse_of(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&key[4..8], &value[..4], &key[10..12], &value[4..], &key[12..]].concat()
}

#[test]
fn rule_1_an_answer_means_on_every_server() {
    for length in 1..=4 {
        let mut chain = Chain::new(length);
        let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
        let ack = chain.ask(&update(owner(1, 1), KEY, epoch, 1, b"12345678"));
        assert_eq!(ack.kind(), MessageType::UpdateAck);
        assert_eq!(ack.0.from, server_address(length - 1), "the tail answers");
        for server in &chain.servers {
            let slot = server.records().find(0, KEY).unwrap();
            assert_eq!(server.records().get(slot).value.as_slice(), b"12345678");
        }
        chain.assert_alike();
    }
}

#[test]
fn rule_1_no_answer_while_a_server_is_cut_off_and_all_answers_after() {
    for cut in [1, 2] {
        let mut chain = Chain::new(3);
        let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
        chain.down = vec![cut];
        for seq in 1..=5 {
            chain.send(&update(owner(1, 1), KEY, epoch, seq, b"12345678"));
        }
        chain.advance(SECOND);
        assert!(chain.reply().is_none());
        chain.down.clear();
        chain.advance(SECOND);
        let seqs: Vec<_> = chain.replies.iter().map(|reply| Message::decode(&reply.bytes).unwrap().seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4, 5], "in order, each once");
        chain.assert_alike();
    }
}

#[test]
fn rule_2_a_lease_ends_exactly_after_its_length_and_margins() {
    let mut chain = Chain::new(3);
    let granted = chain.now;
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.run_until(granted + STORE_LEASE - 1);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    assert!(chain.reply().is_none(), "one ns early");
    chain.advance(1);
    assert_eq!(chain.reply().unwrap().kind(), MessageType::LeaseGrant);
}

#[test]
fn rule_2_updates_and_renewals_prolong_the_lease() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.advance(60 * MS);
    assert_eq!(chain.ask(&update(owner(1, 1), KEY, epoch, 1, b"12345678")).message().lease_us, LEASE_US);
    chain.advance(60 * MS);
    let renew = Message { epoch, ..message(MessageType::LeaseRenew, COUNTER, owner(1, 1), KEY) };
    let renewed = chain.ask(&renew);
    assert_eq!((renewed.kind(), renewed.epoch()), (MessageType::LeaseGrant, epoch));
    assert_eq!((renewed.message().seq, renewed.message().value), (1, &b"12345678"[..]));
    let at = chain.now;
    chain.advance(60 * MS);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    chain.run_until(at + STORE_LEASE - 1);
    assert!(chain.reply().is_none());
    chain.advance(1);
    assert_eq!(chain.reply().unwrap().kind(), MessageType::LeaseGrant);
}

#[test]
fn rule_3_epochs_rise_with_every_other_owner_and_only_then() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch(), first, "same switch, same life");
    chain.advance(SECOND);
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch(), first, "also after its lease was over");
    chain.advance(SECOND);
    let second = chain.ask(&lease(COUNTER, owner(1, 2), KEY)).epoch();
    assert_eq!(second, first + 1, "a new life is another owner");
    chain.advance(SECOND);
    assert_eq!(chain.ask(&lease(COUNTER, owner(2, 1), KEY)).epoch(), second + 1);
}

#[test]
fn rule_3_epochs_rise_across_a_records_lives() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.advance(10 * SECOND);
    assert!(chain.head().records().is_empty());
    let again = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    assert!(again > first, "the switch may still have the first life's value under that epoch");
}

#[test]
fn rule_3_a_new_life_waits_for_the_lease_of_the_old_one() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    // While a program is replaced from port to port, both lives run.
    chain.send(&lease(COUNTER, owner(1, 2), KEY));
    let update = chain.ask(&update(owner(1, 1), KEY, first, 1, b"12345678"));
    assert_eq!(update.kind(), MessageType::UpdateAck, "the old life is the owner still");
}

#[test]
fn rule_4_fencing_refuses_all_but_the_owner_under_the_current_epoch() {
    let mut chain = Chain::new(3);
    let old = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.advance(SECOND);
    let new = chain.ask(&lease(COUNTER, owner(2, 1), KEY)).epoch();
    let digest = chain.head().digest();
    for (sender, epoch) in
        [(owner(1, 1), old), (owner(1, 1), new), (owner(2, 1), old), (owner(2, 1), new + 1), (owner(2, 2), new)]
    {
        for message_type in [MessageType::Update, MessageType::LeaseRenew, MessageType::ReadCommit] {
            let value: &[u8] = if message_type == MessageType::Update { b"stale!!!" } else { b"" };
            let packet: &[u8] = if message_type == MessageType::LeaseRenew { b"" } else { b"out" };
            let request = Message { epoch, seq: 9, value, packet, ..message(message_type, COUNTER, sender, KEY) };
            let refusal = chain.ask(&request);
            assert_eq!((refusal.kind(), refusal.epoch()), (MessageType::Refused, epoch));
            assert!(refusal.message().packet.is_empty());
        }
    }
    assert_eq!(chain.head().digest(), digest);
    let unknown = chain.ask(&update(owner(1, 1), b"none", old, 1, b"12345678"));
    assert_eq!((unknown.kind(), unknown.epoch()), (MessageType::Refused, old));
}

#[test]
fn rule_4_an_old_sequence_number_changes_nothing_and_is_acknowledged() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.ask(&update(owner(1, 1), KEY, epoch, 5, b"newest!!"));
    for seq in [5, 4, 1, 0] {
        let late = Message { packet: b"out", ..update(owner(1, 1), KEY, epoch, seq, b"stale!!!") };
        let ack = chain.ask(&late);
        assert_eq!((ack.kind(), ack.message().seq), (MessageType::UpdateAck, 5));
        assert_eq!(ack.message().packet, b"out");
    }
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), KEY)).message().value, b"newest!!");
}

#[test]
fn rule_5_read_commits_wait_for_their_update() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    let read =
        |seq| Message { epoch, seq, packet: b"read", ..message(MessageType::ReadCommit, COUNTER, owner(1, 1), KEY) };
    assert_eq!(chain.ask(&read(0)).kind(), MessageType::UpdateAck);
    chain.send(&read(2));
    chain.send(&read(1));
    assert!(chain.reply().is_none());
    chain.send(&update(owner(1, 1), KEY, epoch, 1, b"12345678"));
    let replies: Vec<_> = chain.replies.drain(..).map(Reply).collect();
    assert_eq!(
        replies.iter().map(|r| (r.message().seq, r.message().packet.len())).collect::<Vec<_>>(),
        [(1, 0), (1, 4)]
    );
    chain.send(&update(owner(1, 1), KEY, epoch, 2, b"12345678"));
    assert_eq!(chain.replies.drain(..).count(), 2);
    // Bounded in time:
    chain.send(&read(9));
    chain.advance(200 * MS);
    assert_eq!(chain.head().counters().held_expired, 1);
    chain.send(&update(owner(1, 1), KEY, epoch, 9, b"12345678"));
    assert_eq!(chain.replies.drain(..).count(), 1, "only the update's");
}

#[test]
fn rule_5_a_held_read_of_a_former_owner_is_refused() {
    let mut chain = Chain::new(1);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.advance(STORE_LEASE - 10 * MS);
    chain.send(&Message { epoch, seq: 1, ..message(MessageType::ReadCommit, COUNTER, owner(1, 1), KEY) });
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    chain.advance(20 * MS);
    let kinds: Vec<_> = chain.replies.drain(..).map(|reply| Reply(reply).kind()).collect();
    assert_eq!(kinds, [MessageType::LeaseGrant]);
    let seq_1 = chain.head().records().find(0, KEY).unwrap();
    let new_epoch = chain.head().records().get(seq_1).epoch;
    chain.ask(&update(owner(2, 1), KEY, new_epoch, 1, b"12345678"));
    assert_eq!(chain.head().status(chain.now).held, 0);
    assert_eq!(chain.head().counters().refused, 1);
}

#[test]
fn rule_6_held_requests_are_bounded_in_number_bytes_and_time() {
    let mut chain = Chain::new(3);
    let keep = |chain: &mut Chain, epoch| {
        chain.ask(&update(owner(1, 1), KEY, epoch, 0, b"12345678"));
    };
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    keep(&mut chain, epoch);
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
    assert_eq!(chain.head().status(chain.now).held, 1, "4096 bytes hold one of 2052");
}

#[test]
fn rule_6_a_held_request_is_dropped_when_its_time_is_over() {
    let mut chain = Chain::new(1);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    for _ in 0..4 {
        chain.advance(60 * MS);
        // Packets keep coming at the first switch: its requests are granted.
        chain.send(&lease(COUNTER, owner(1, 1), KEY));
    }
    assert_eq!(chain.head().counters().held_expired, 1);
    assert!(chain.replies.drain(..).all(|reply| reply.to == switch_address(1)));
}

#[test]
fn rule_6_renewals_and_updates_do_not_keep_a_flow_that_another_switch_waits_for() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    let granted = chain.now;
    chain.advance(50 * MS);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    let ack = chain.ask(&update(owner(1, 1), KEY, epoch, 1, b"12345678"));
    assert_eq!((ack.kind(), ack.message().lease_us), (MessageType::UpdateAck, 0), "recorded, not prolonged");
    chain.send(&Message { epoch, ..message(MessageType::LeaseRenew, COUNTER, owner(1, 1), KEY) });
    assert!(chain.reply().is_none(), "not answered");
    chain.run_until(granted + STORE_LEASE);
    let grant = chain.reply().unwrap();
    assert_eq!((grant.0.to, grant.epoch(), grant.message().seq), (switch_address(2), epoch + 1, 1));
}

#[test]
fn rule_7_what_does_not_belong_is_counted_and_changes_nothing() {
    let mut chain = Chain::new(3);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    let digest = chain.head().digest();
    chain.send(&lease(77, owner(1, 1), KEY));
    chain.send(&lease(COUNTER, owner(1, 1), b"longer"));
    chain.send(&update(owner(1, 1), KEY, 1001, 1, b"short"));
    chain.send(&message(MessageType::Refused, COUNTER, owner(1, 1), KEY));
    let mut bytes = Vec::new();
    lease(COUNTER, owner(1, 1), KEY).append_to(&mut bytes).unwrap();
    bytes[2] = 2;
    chain.send_bytes(switch_address(1), &bytes);
    let counters = chain.head().counters();
    assert_eq!((counters.dropped_unknown_object, counters.dropped_wrong_size), (1, 2));
    assert_eq!((counters.dropped_wrong_direction, counters.malformed_total()), (1, 1));
    assert!(chain.replies.is_empty());
    assert_eq!(chain.head().digest(), digest);
    let mut out = Outputs::new();
    bytes[2] = 1;
    let (now, from) = (chain.now, switch_address(1));
    chain.servers[1].handle(now, Input::Datagram { from, bytes: &bytes }, &mut out);
    assert_eq!(chain.servers[1].counters().dropped_not_head, 1);
}

#[test]
fn absent_state_is_said_to_be_absent_by_the_tail() {
    let mut chain = Chain::new(3);
    let request = Message { packet: b"parked", ..message(MessageType::LeaseRequest, COUNTER, owner(1, 1), KEY) };
    let absent = chain.ask(&request);
    assert_eq!((absent.kind(), absent.message().packet), (MessageType::Absent, &b"parked"[..]));
    assert_eq!((absent.0.from, absent.message().flags), (server_address(2), Flags::NONE));
}

#[test]
fn nat_bindings_are_made_in_pairs_and_found_from_both_sides() {
    let mut chain = Chain::new(3);
    for (protocol, source_port, destination_port) in [(6, 2_000, 80), (17, 999, 53), (1, 2_001, 0)] {
        let key = nat_key(1, 1, source_port, destination_port, protocol);
        let grant = chain.ask(&Message { packet: b"parked", ..lease(NAT, owner(1, 1), &key) });
        let value = grant.message().value.to_vec();
        let port = u16::from_be_bytes([value[4], value[5]]);
        assert!((2_000..=2_003).contains(&port));
        assert!(source_port < 2_000 || port == source_port, "preserved if it can be");
        let reverse = reverse_of(&key, &value);
        // The other direction is another record: another switch may have it at the same time.
        let back = chain.ask(&message(MessageType::LeaseRequest, NAT, owner(2, 1), &reverse));
        assert_eq!((back.kind(), back.epoch()), (MessageType::LeaseGrant, grant.epoch()));
        assert_eq!(back.message().value, [&key[..4], &key[8..10]].concat());
        chain.assert_alike();
    }
}

#[test]
fn nat_ports_run_out_exactly_and_come_back_when_idle() {
    let mut chain = Chain::new(3);
    let mut taken = std::collections::HashSet::new();
    for host in 0..8 {
        let key = nat_key(host, 1, 5_000, 53, 17);
        let grant = chain.ask(&lease(NAT, owner(1, 1), &key));
        assert_eq!(grant.kind(), MessageType::LeaseGrant, "two addresses of four ports each");
        assert!(taken.insert(grant.message().value.to_vec()));
    }
    let more = nat_key(100, 1, 5_000, 53, 17);
    let full = chain.ask(&Message { packet: b"parked", ..lease(NAT, owner(1, 1), &more) });
    assert_eq!((full.kind(), full.message().flags), (MessageType::Absent, Flags::EXHAUSTED));
    let elsewhere = nat_key(100, 2, 5_000, 53, 17);
    assert_eq!(chain.ask(&lease(NAT, owner(1, 1), &elsewhere)).kind(), MessageType::LeaseGrant);
    chain.advance(2 * SECOND + STORE_LEASE);
    chain.assert_alike();
    for server in &chain.servers {
        assert!(server.records().is_empty());
        assert_eq!(server.records().pool(1).unwrap().in_use(), 0);
    }
    assert_eq!(chain.ask(&lease(NAT, owner(1, 1), &more)).kind(), MessageType::LeaseGrant);
}

#[test]
fn a_binding_in_use_from_one_side_keeps_both() {
    let mut chain = Chain::new(3);
    let key = nat_key(1, 1, 2_000, 53, 17);
    let value = chain.ask(&lease(NAT, owner(1, 1), &key)).message().value.to_vec();
    let reverse = reverse_of(&key, &value);
    for _ in 0..5 {
        chain.advance(1_500 * MS);
        let back = chain.ask(&message(MessageType::LeaseRequest, NAT, owner(1, 1), &reverse));
        assert_eq!(back.kind(), MessageType::LeaseGrant);
    }
    assert_eq!(chain.head().records().len(), 2);
    chain.advance(2 * SECOND - 1);
    assert_eq!(chain.head().records().len(), 2, "the idle time is not over");
    chain.advance(1);
    assert_eq!(chain.head().records().len(), 0);
}

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
        chain.servers[victim] = Server::new(settings(3, victim), start(77, chain.now));
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
        chain.servers[victim] = Server::new(settings(3, victim), start(77, chain.now));
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
