//! Each rule of `systems/redplane/docs/state-protocol.md`, "Rules of the store", on a chain in one
//! process with a clock that the test sets. Rule 6 has a file of its own: `recalls.rs`.

mod common;

use common::*;
use state_protocol::MessageType::{
    Absent, LeaseGrant, LeaseRequest, ReadCommit, Recall, Refused, ReleaseAck, Update, UpdateAck,
};
use state_protocol::{Flags, Message};
use state_store::core::{AllocatorSettings, Input, ObjectSettings, Outputs};

const KEY: &[u8] = b"flow";
const VALUE: &[u8] = b"12345678";

/// Keys with one first field are of one shard, and requests for them go to its head only.
#[test]
fn the_first_bytes_pick_the_shard() {
    let mut chain = Chain::with(1, |settings| {
        settings.shards = 8;
        settings.objects[0].shard_bytes = Some(2);
    });
    let here = (0..u16::MAX).find(|it| wire::shard_of(&it.to_be_bytes(), 8) == 0).unwrap();
    for last in 0..20u16 {
        let key = [here.to_be_bytes(), last.to_be_bytes()].concat();
        assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), &key)).kind(), LeaseGrant, "{last}");
    }
    let other = (0..u16::MAX).find(|it| wire::shard_of(&it.to_be_bytes(), 8) == 1).unwrap();
    chain.send(&lease(COUNTER, owner(1, 1), &[other.to_be_bytes(), [0, 0]].concat()));
    assert_eq!((chain.sent(), chain.head().counters().dropped_not_head), (vec![], 1));
}

#[test]
fn rule_1_an_answer_means_on_every_server() {
    for length in 1..=4 {
        let mut chain = Chain::new(length);
        let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
        let ack = chain.ask(&update(owner(1, 1), KEY, epoch, 1, b"12345678"));
        assert_eq!(ack.kind(), UpdateAck);
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
        let seqs: Vec<_> =
            chain.replies.iter().map(|reply| Message::decode(&reply.bytes).unwrap().seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4, 5], "in order, each once");
        chain.assert_alike();
    }
}

#[test]
fn rule_2_a_flow_is_granted_without_an_owner_or_to_its_owner_and_else_waits() {
    let mut chain = Chain::with(3, |settings| settings.tenure_ns = SECOND);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), KEY)).kind(), LeaseGrant, "its owner");
    for other in [owner(2, 1), owner(1, 2)] {
        chain.send(&lease(COUNTER, other, KEY));
        assert_eq!(
            chain.sent(),
            [],
            "another, be it another life of the same switch: while an upgrade goes from port to port, both run"
        );
    }
    let update = chain.ask(&update(owner(1, 1), KEY, epoch, 1, VALUE));
    assert_eq!(update.kind(), UpdateAck, "the old life is the owner still");
    chain.send(&release(owner(1, 1), KEY, epoch, 1, VALUE));
    assert_eq!(chain.sent(), [(1, ReleaseAck), (2, LeaseGrant)], "nobody's");
}

#[test]
fn rule_3_epochs_rise_with_every_other_owner_and_only_then() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    assert_eq!(
        chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch(),
        first,
        "same switch, same life"
    );
    chain.advance(SECOND);
    assert_eq!(
        chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch(),
        first,
        "also after its lease was over"
    );
    chain.advance(SECOND);
    let second = chain.ask(&lease(COUNTER, owner(1, 2), KEY)).epoch();
    assert_eq!(second, first + 1, "a new life is another owner");
    chain.advance(SECOND);
    let third = chain.ask(&lease(COUNTER, owner(2, 1), KEY)).epoch();
    assert_eq!(third, second + 1);
    chain.ask(&release(owner(2, 1), KEY, third, 0, VALUE));
    assert_eq!(
        chain.ask(&lease(COUNTER, owner(2, 1), KEY)).epoch(),
        third + 1,
        "released is released, also for itself"
    );
}

#[test]
fn rule_3_epochs_rise_across_a_records_lives() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.ask(&release(owner(1, 1), KEY, first, 0, VALUE));
    chain.advance(10 * SECOND);
    assert!(chain.head().records().is_empty());
    let again = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    assert!(again > first, "the switch may still have the first life's value under that epoch");
}

#[test]
fn rule_4_fencing_refuses_all_but_the_owner_under_the_current_epoch() {
    let mut chain = Chain::new(3);
    let old = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.advance(STORE_LEASE);
    let new = chain.ask(&lease(COUNTER, owner(2, 1), KEY)).epoch();
    let digest = chain.head().records().shared_digest();
    let others =
        [(owner(1, 1), old), (owner(1, 1), new), (owner(2, 1), old), (owner(2, 1), new + 1)];
    let records = |chain: &Chain| chain.record(KEY).value.as_slice().to_vec();
    let before = records(&chain);
    for (sender, epoch) in others {
        for message_type in [Update, ReadCommit] {
            let value: &[u8] = if message_type == Update { b"stale!!!" } else { b"" };
            let request = Message {
                epoch,
                seq: 9,
                value,
                packet: b"out",
                ..message(message_type, COUNTER, sender, KEY)
            };
            let refusal = chain.ask(&request);
            assert_eq!((refusal.kind(), refusal.epoch()), (Refused, epoch));
            assert!(refusal.message().packet.is_empty());
        }
    }
    assert_eq!(records(&chain), before);
    assert_ne!(
        chain.head().records().shared_digest(),
        digest,
        "the first switch has a session again"
    );
    let unknown = chain.ask(&update(owner(1, 1), b"none", old, 1, VALUE));
    assert_eq!((unknown.kind(), unknown.epoch()), (Refused, old));
}

#[test]
fn rule_4_an_old_sequence_number_changes_nothing_and_is_acknowledged() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.ask(&update(owner(1, 1), KEY, epoch, 5, b"newest!!"));
    for seq in [5, 4, 1, 0] {
        let late = Message { packet: b"out", ..update(owner(1, 1), KEY, epoch, seq, b"stale!!!") };
        let ack = chain.ask(&late);
        assert_eq!((ack.kind(), ack.message().seq), (UpdateAck, 5));
        assert_eq!(ack.message().packet, b"out");
    }
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), KEY)).message().value, b"newest!!");
}

#[test]
fn rule_4_an_owner_whose_session_is_over_may_update_what_nobody_else_was_given() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    let taken = chain.ask(&lease(COUNTER, owner(1, 1), b"else")).epoch();
    chain.advance(STORE_LEASE);
    chain.ask(&lease(COUNTER, owner(2, 1), b"else"));
    assert_eq!(chain.ask(&update(owner(1, 1), KEY, epoch, 1, VALUE)).kind(), UpdateAck);
    assert_eq!(chain.ask(&update(owner(1, 1), b"else", taken, 1, VALUE)).kind(), Refused);
    chain.assert_alike();
}

#[test]
fn rule_5_read_commits_wait_for_their_update() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    let read = |seq| read_commit(owner(1, 1), KEY, epoch, seq);
    assert_eq!(chain.ask(&read(0)).kind(), UpdateAck);
    chain.send(&read(2));
    chain.send(&read(1));
    assert_eq!(chain.sent(), []);
    chain.send(&update(owner(1, 1), KEY, epoch, 1, VALUE));
    let replies: Vec<_> = chain.replies.drain(..).map(Reply).collect();
    let lengths: Vec<_> =
        replies.iter().map(|r| (r.message().seq, r.message().packet.len())).collect();
    assert_eq!(lengths, [(1, 0), (1, 4)]);
    chain.send(&update(owner(1, 1), KEY, epoch, 2, VALUE));
    assert_eq!(chain.replies.drain(..).count(), 2);
    // Bounded in time:
    chain.send(&read(9));
    chain.advance(200 * MS);
    assert_eq!(chain.head().counters().held_expired, 1);
    chain.send(&update(owner(1, 1), KEY, epoch, 9, VALUE));
    assert_eq!(chain.replies.drain(..).count(), 1, "only the update's");
}

#[test]
fn rule_5_a_held_read_of_a_former_owner_is_refused() {
    let mut chain = Chain::new(1);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.send(&read_commit(owner(1, 1), KEY, epoch, 5));
    chain.send(&release(owner(1, 1), KEY, epoch, 4, VALUE));
    assert_eq!(chain.sent(), [(1, ReleaseAck), (1, Refused)]);
    assert_eq!(chain.head().status(chain.now).held, 0);
}

#[test]
fn rule_7_a_release_records_what_is_newer_and_makes_the_flow_nobodys() {
    for (seq, expected) in
        [(4, (5, &b"recorded"[..])), (5, (5, b"recorded")), (6, (6, b"released"))]
    {
        let mut chain = Chain::new(3);
        let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
        chain.ask(&update(owner(1, 1), KEY, epoch, 5, b"recorded"));
        let ack = chain.ask(&release(owner(1, 1), KEY, epoch, seq, b"released"));
        assert_eq!((ack.kind(), ack.epoch(), ack.0.from), (ReleaseAck, epoch, server_address(2)));
        for server in &chain.servers {
            let record = server.records().get(server.records().find(0, KEY).unwrap());
            assert_eq!((record.owner, record.session), (None, 0));
            assert_eq!((record.seq, record.value.as_slice()), expected);
        }
        assert_eq!(
            chain.ask(&update(owner(1, 1), KEY, epoch, 9, VALUE)).kind(),
            Refused,
            "also to who released it"
        );
    }
}

#[test]
fn rule_7_a_release_that_is_over_changes_nothing_and_is_acknowledged() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.ask(&release(owner(1, 1), KEY, epoch, 3, VALUE));
    chain.ask(&heartbeat(owner(2, 1)));
    for round in 0..2 {
        let digest = chain.head().records().shared_digest();
        for _ in 0..2 {
            let ack = chain.ask(&release(owner(1, 1), KEY, epoch, 9, b"stale!!!"));
            assert_eq!((ack.kind(), ack.epoch()), (ReleaseAck, epoch), "round {round}");
        }
        assert_eq!(chain.head().records().shared_digest(), digest);
        // The same once more when another has the flow.
        chain.ask(&lease(COUNTER, owner(2, 1), KEY));
    }
    assert_eq!(
        chain.ask(&release(owner(1, 1), b"none", epoch, 9, VALUE)).kind(),
        ReleaseAck,
        "no such record"
    );
    chain.send(&release(owner(1, 1), KEY, epoch + 9, 9, b"stale!!!"));
    assert_eq!(
        (chain.sent(), chain.head().counters().releases_unknown),
        (vec![], 1),
        "of a grant that never was"
    );
}

#[test]
fn rule_7_an_unknown_release_leaves_the_value() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.ask(&update(owner(1, 1), KEY, epoch, 5, b"recorded"));
    let unknown = Message { flags: Flags::UNKNOWN, ..release(owner(1, 1), KEY, epoch, 9, b"") };
    assert_eq!(chain.ask(&unknown).kind(), ReleaseAck);
    let grant = chain.ask(&lease(COUNTER, owner(2, 1), KEY));
    assert_eq!(
        (grant.message().value, grant.message().seq, grant.epoch()),
        (&b"recorded"[..], 5, epoch + 1)
    );
}

#[test]
fn rule_8_a_record_is_removed_when_it_is_nobodys_and_was_unused_for_its_time() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.keep_alive(owner(1, 1), chain.now + 9 * SECOND);
    chain.sent(); // it is asked whether it has the flow
    assert_eq!(chain.head().records().len(), 1, "somebody's");
    let idle = Message { lease_us: 1_000, ..release(owner(1, 1), KEY, epoch, 0, VALUE) };
    let released = chain.now;
    chain.ask(&idle);
    chain.run_until(released + 3 * SECOND - MS);
    assert_eq!(
        chain.head().records().len(),
        1,
        "its idle time is 4 s, of which 1 s was over when it was released"
    );
    chain.run_until(released + 4 * SECOND);
    assert!(chain.servers.iter().all(|server| server.records().is_empty()));
    chain.assert_alike();
}

#[test]
fn rule_8_a_closed_record_is_removed_sooner_and_a_grant_opens_it_again() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    let closed =
        |epoch| Message { flags: Flags::CLOSED, ..release(owner(1, 1), KEY, epoch, 0, VALUE) };
    chain.ask(&closed(epoch));
    assert_eq!(chain.record(KEY).phase, Flags::CLOSED);
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch(), epoch + 1);
    assert_eq!(chain.record(KEY).phase, Flags::NONE, "in use again");
    let released = chain.now;
    chain.ask(&closed(epoch + 1));
    chain.run_until(released + SECOND - MS);
    assert_eq!(chain.head().records().len(), 1);
    chain.run_until(released + SECOND + MS);
    assert_eq!(chain.head().records().len(), 0);
}

/// Counters are kept for 4 s, closed ones for 1 s.
#[test]
fn rule_8_an_update_says_how_far_a_flow_has_come_also_of_a_dead_switch() {
    for (flags, kept) in [(Flags::NONE, 4), (Flags::CLOSED, 1), (Flags::HALF_OPEN, 2)] {
        let mut chain = Chain::with(3, |settings| settings.objects[0].half_open_ns = 2 * SECOND);
        let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
        chain.ask(&Message { flags, ..update(owner(1, 1), KEY, epoch, 1, VALUE) });
        assert_eq!(chain.record(KEY).phase, flags);
        // It died; its session ends ten seconds after its lease, and a look finds that a second
        // later at the most.
        chain.advance(10 * SECOND + STORE_LEASE);
        chain.advance(kept * SECOND - 500 * MS);
        assert_eq!(chain.head().records().len(), 1, "{flags:?}");
        chain.advance(1_600 * MS);
        assert_eq!(chain.head().records().len(), 0, "{flags:?}");
        chain.assert_alike();
    }
}

#[test]
fn rule_8_a_dead_switchs_flows_go_in_the_end() {
    let mut chain = Chain::new(3);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.advance(14 * SECOND);
    assert_eq!(
        chain.head().records().len(),
        1,
        "its session ended 10 s after its lease; the idle time is 4 s"
    );
    chain.advance(2 * SECOND);
    assert_eq!(chain.head().records().len(), 0);
}

/// The switch goes on with its flows when its session was over but not ended: so what is idle must
/// not go before the session is.
#[test]
fn rule_8_what_is_of_a_session_that_was_not_ended_stays_its_owners() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    // Its lease is long over, and twice its idle time.
    chain.advance(9 * SECOND);
    assert_eq!(chain.head().records().len(), 1);
    let beat = chain.ask(&heartbeat(owner(1, 1)));
    assert_eq!((beat.session(), beat.message().lease_us), (first.session(), LEASE_US));
    assert_eq!(chain.ask(&update(owner(1, 1), KEY, first.epoch(), 1, VALUE)).kind(), UpdateAck);
    // Another switch gets it only with a session that is ended in the chain before the grant is
    // made.
    chain.advance(9 * SECOND);
    let other = chain.ask(&lease(COUNTER, owner(2, 1), KEY));
    assert_eq!(
        (other.kind(), other.epoch(), other.message().value),
        (LeaseGrant, first.epoch() + 1, VALUE)
    );
    assert!(
        chain.servers.iter().all(|server| server.records().sessions.of(&owner(1, 1)).is_none())
    );
    chain.assert_alike();
}

#[test]
fn rule_9_what_does_not_belong_is_counted_and_changes_nothing() {
    let mut chain = Chain::new(3);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    let digest = chain.head().digest();
    chain.send(&lease(77, owner(1, 1), KEY));
    chain.send(&lease(COUNTER, owner(1, 1), b"longer"));
    chain.send(&update(owner(1, 1), KEY, 1001, 1, b"short"));
    chain.send(&release(owner(1, 1), KEY, 1001, 1, b"short"));
    for answer in [Refused, Recall] {
        chain.send(&message(answer, COUNTER, owner(1, 1), KEY));
    }
    let (from, to) = (switch_address(1), server_address(0));
    let mut bytes =
        signed(&Message { request_ns: chain.now, ..lease(COUNTER, owner(1, 1), KEY) }, from, to);
    bytes[2] = 1;
    assert!(keys().sign(&mut bytes, *from.ip(), *to.ip()));
    chain.send_bytes(from, &bytes);
    let counters = chain.head().counters();
    assert_eq!((counters.dropped_unknown_object, counters.dropped_wrong_size), (1, 3));
    assert_eq!((counters.dropped_wrong_direction, counters.malformed_total()), (2, 1));
    assert!(chain.replies.is_empty());
    assert_eq!(chain.head().digest(), digest);
    let mut out = Outputs::new();
    let bytes = signed(
        &Message { request_ns: chain.now, ..lease(COUNTER, owner(1, 1), KEY) },
        from,
        server_address(1),
    );
    let now = chain.now;
    chain.servers[1].handle(now, Input::Datagram { from, bytes: &bytes }, &mut out);
    assert_eq!(chain.servers[1].counters().dropped_not_head, 1);
}

#[test]
fn absent_state_is_said_to_be_absent_by_the_tail() {
    let mut chain = Chain::new(3);
    let request = Message { packet: b"parked", ..message(LeaseRequest, COUNTER, owner(1, 1), KEY) };
    let absent = chain.ask(&request);
    assert_eq!((absent.kind(), absent.message().packet), (Absent, &b"parked"[..]));
    assert_eq!((absent.0.from, absent.message().flags), (server_address(2), Flags::NONE));
}

/// What a server noted when it was the head before is of then: the flow has been used since, under
/// another head.
#[test]
fn rule_8_who_becomes_head_again_frees_nothing_that_was_used_meanwhile() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.ask(&release(owner(1, 1), KEY, epoch, 0, VALUE));
    chain.adopt(2, &[(1, 2), (2, 3), (0, 1)], &[0, 1, 2]);
    chain.advance(3 * SECOND);
    chain.replies.clear();
    chain.send_to(1, &lease(COUNTER, owner(1, 1), KEY));
    let epoch = chain.reply().expect("a grant").epoch();
    chain.send_to(1, &release(owner(1, 1), KEY, epoch, 0, VALUE));
    chain.adopt(3, &[(0, 1), (1, 2), (2, 3)], &[0, 1, 2]);
    let again = chain.now;
    chain.run_until(again + 3 * SECOND);
    assert_eq!(chain.head().records().len(), 1, "unused for 3 s; its idle time is 4 s");
    chain.run_until(again + 9 * SECOND);
    assert_eq!(chain.head().records().len(), 0);
}

/// systems/redplane/docs/snapshots.md, "The store", 6: the bound is the shard's.
#[test]
fn snapshots_of_all_objects_together_are_bounded() {
    const SKETCHES: [u16; 2] = [8, 9];
    let mut chain = Chain::with(1, |settings| {
        let sketch = |id: u16| ObjectSettings {
            name: format!("sketch {id}"),
            id,
            key_bytes: 4,
            value_bytes: 4,
            // Two of a key: half a GiB. (Room is made only when one comes.)
            allocator: AllocatorSettings::Snapshot {
                slots: 1 << 26,
                slot_bytes: 4,
                idle_ns: None,
                merge: None,
            },
            closed_ns: SECOND,
            half_open_ns: SECOND,
            shard_bytes: None,
        };
        settings.objects.extend(SKETCHES.map(sketch));
    });
    for (object, fits) in [(8, true), (9, true), (8, false)] {
        let key = chain.now.to_be_bytes();
        let reply = chain.ask(&lease(object, owner(1, 1), &key[4..]));
        assert_eq!(reply.kind() != Absent, fits, "object {object}");
        while chain.reply().is_some() {} // the parts, and the grant
        chain.advance(MS);
    }
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), &[1; 4])).kind(), LeaseGrant);
}
