//! Each rule of `systems/redplane/docs/state-protocol.md`, "Sessions" and "Tags", on a chain in one
//! process with a clock that the test sets.

mod common;

use common::*;
use state_protocol::MessageType::{
    Heartbeat, HeartbeatAck, LeaseGrant, LeaseRequest, ReadCommit, Recall, Refused, Release,
    ReleaseAck, Update, UpdateAck,
};
use state_protocol::{Flags, Message};
use state_store::core::{Input, Outputs, REPLAY_WINDOW_NS, SESSION_FORGOTTEN_NS};
use wire::{KeyRing, SECRET_BYTES, Secret};

const KEY: &[u8] = b"flow";

#[test]
fn sessions_1_a_lease_ends_exactly_after_its_length_and_margins() {
    let mut chain = Chain::new(3);
    let heard = chain.now;
    let grant = chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    assert_eq!((grant.kind(), grant.message().lease_us), (LeaseGrant, LEASE_US));
    chain.run_until(heard + STORE_LEASE - 1);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    assert_eq!(chain.sent(), [(1, Recall)], "one ns early");
    chain.advance(1);
    assert_eq!(chain.sent(), [(2, LeaseGrant)]);
}

#[test]
fn sessions_1_every_request_prolongs_all_flows_of_the_switch() {
    let refused = Message { packet: b"", ..update(owner(1, 1), b"none", 1, 1, b"12345678") };
    let epoch_of = |chain: &mut Chain| chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    for prolonging in [heartbeat(owner(1, 1)), lease(COUNTER, owner(1, 1), b"else"), refused] {
        let mut chain = Chain::with(3, |settings| settings.tenure_ns = SECOND);
        epoch_of(&mut chain);
        chain.advance(60 * MS);
        let heard = chain.now;
        assert_eq!(chain.ask(&prolonging).message().lease_us, LEASE_US);
        chain.advance(60 * MS);
        chain.send(&lease(COUNTER, owner(2, 1), KEY));
        chain.run_until(heard + STORE_LEASE - 1);
        assert_eq!(chain.sent(), []);
        chain.advance(1);
        assert_eq!(chain.sent(), [(2, LeaseGrant)]);
    }
}

#[test]
fn sessions_1_what_is_older_than_a_request_before_prolongs_nothing() {
    let mut chain = Chain::with(3, |settings| settings.tenure_ns = SECOND);
    let heard = chain.now;
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    for n in 0..4 {
        chain.advance(20 * MS);
        // Late, or replayed: the promise counts from `request_ns`, so it may be made; but the
        // session does not live longer by it.
        let late = Message { request_ns: heard - MS + n, ..lease(COUNTER, owner(1, 1), KEY) };
        assert_eq!(chain.ask(&late).message().lease_us, LEASE_US);
    }
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    chain.run_until(heard + STORE_LEASE);
    assert_eq!(chain.sent(), [(2, LeaseGrant)]);
}

#[test]
fn sessions_2_a_new_head_takes_every_session_as_alive_for_a_lease() {
    let mut chain = Chain::new(2);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.advance(STORE_LEASE - MS);
    let now = chain.now;
    chain.adopt(2, &[(1, 2)], &[0, 1]);
    chain.send_to(1, &lease(COUNTER, owner(2, 1), KEY));
    chain.run_until(now + STORE_LEASE - 1);
    assert_eq!(chain.sent(), [], "and recalls nothing before it has heard of the owner");
    chain.advance(1);
    assert_eq!(chain.sent(), [(2, LeaseGrant)]);
}

#[test]
fn sessions_3_numbers_rise_and_never_repeat() {
    let mut chain = Chain::new(3);
    let mut last = 0;
    for round in 1..=5 {
        let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY));
        assert!(first.session() > last, "round {round}");
        assert_eq!(chain.ask(&heartbeat(owner(1, 1))).session(), first.session(), "goes on");
        let other = chain.ask(&heartbeat(owner(2, 1)));
        assert!(other.session() != first.session());
        chain.advance(STORE_LEASE);
        // Taking a flow ends the session; its next request begins another.
        let taken = chain.ask(&lease(COUNTER, owner(2, 1), KEY));
        last = first.session().max(taken.session());
        chain.advance(STORE_LEASE);
        chain.assert_alike();
    }
    assert!(chain.head().counters().sessions_ended >= 5);
}

#[test]
fn sessions_3_a_session_from_which_nothing_was_taken_goes_on() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.advance(5 * SECOND);
    let again = chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    assert_eq!((again.session(), again.epoch()), (first.session(), first.epoch()));
}

#[test]
fn sessions_3_one_that_is_silent_for_long_is_forgotten_and_its_flows_are_nobodys() {
    let mut chain = Chain::new(3);
    let first = chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.advance(STORE_LEASE + SESSION_FORGOTTEN_NS - 1);
    assert_eq!(chain.head().status(chain.now).sessions, 1);
    chain.advance(1);
    assert_eq!(chain.head().status(chain.now).sessions, 0);
    assert_eq!(chain.head().records().len(), 1, "its idle time begins now");
    let again = chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    assert!(again.session() > first.session());
    assert_eq!(again.epoch(), first.epoch(), "nobody else had it");
    chain.assert_alike();
}

#[test]
fn sessions_are_bounded() {
    let mut chain = Chain::new(1);
    for switch_id in 1..=16 {
        assert_eq!(chain.ask(&heartbeat(owner(switch_id, 1))).kind(), HeartbeatAck);
    }
    chain.send(&heartbeat(owner(17, 1)));
    assert_eq!((chain.sent().len(), chain.head().counters().dropped_sessions_full), (0, 1));
}

#[test]
fn sessions_4_a_flow_of_a_session_that_ended_is_anybodys_at_once() {
    let mut chain = Chain::new(3);
    for key in [KEY, b"more"] {
        chain.ask(&lease(COUNTER, owner(1, 1), key));
    }
    chain.advance(STORE_LEASE);
    assert_eq!(chain.ask(&lease(COUNTER, owner(2, 1), KEY)).kind(), LeaseGrant);
    // The switch is back, in a new session that is alive; its other flow was of the old one.
    let heard = chain.ask(&heartbeat(owner(1, 1)));
    assert_eq!((heard.kind(), heard.message().lease_us), (HeartbeatAck, LEASE_US));
    let second = chain.ask(&lease(COUNTER, owner(3, 1), b"more"));
    assert_eq!(second.kind(), LeaseGrant);
    assert_eq!(chain.record(b"more").owner, Some(owner(3, 1)));
}

#[test]
fn sessions_4_an_acknowledgement_takes_the_flow_into_the_session_that_it_names() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.ask(&lease(COUNTER, owner(1, 1), b"else"));
    chain.ask(&update(owner(1, 1), KEY, epoch, 1, b"12345678"));
    for request in
        [update(owner(1, 1), KEY, epoch, 1, b"12345678"), read_commit(owner(1, 1), KEY, epoch, 1)]
    {
        chain.advance(STORE_LEASE);
        let taken = chain.ask(&lease(COUNTER, owner(2, 1), b"else"));
        assert_eq!(taken.kind(), LeaseGrant);
        let before = chain.record(KEY).session;
        let ack = chain.ask(&request);
        assert_eq!((ack.kind(), ack.message().lease_us), (UpdateAck, LEASE_US));
        assert!(ack.session() > before);
        assert_eq!(chain.record(KEY).session, ack.session(), "{:?}", request.message_type);
        chain.assert_alike();
        chain.advance(STORE_LEASE);
        chain.ask(&lease(COUNTER, owner(1, 1), b"else"));
    }
}

#[test]
fn sessions_5_heartbeats_are_answered_by_the_tail_and_only_newer_ones() {
    let mut chain = Chain::new(3);
    let at = chain.now;
    let beat = |request_ns| Message { request_ns, ..heartbeat(owner(1, 1)) };
    let ack = chain.ask(&beat(at));
    assert_eq!(
        (ack.kind(), ack.0.from, ack.message().lease_us),
        (HeartbeatAck, server_address(2), LEASE_US)
    );
    let digest = chain.head().digest();
    for old in [at, at - 1, at - 20 * MS] {
        chain.send(&beat(old));
    }
    // The first is the very same message.
    let counters = chain.head().counters().clone();
    assert_eq!((chain.sent(), counters.heartbeats_stale, counters.replayed), (vec![], 2, 1));
    assert_eq!(chain.head().digest(), digest);
    assert_eq!(chain.ask(&beat(at + 1)).kind(), HeartbeatAck);
}

#[test]
fn sessions_6_a_switch_that_heartbeats_but_does_not_release_loses_its_session() {
    let mut chain = Chain::new(3);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.ask(&lease(COUNTER, owner(1, 1), b"else"));
    chain.keep_alive(owner(1, 1), chain.now + TENURE);
    let asked = chain.now;
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    let mut granted = None;
    for _ in 0..20 {
        chain.keep_alive(owner(1, 1), chain.now + 10 * MS);
        if chain.sent().contains(&(2, LeaseGrant)) {
            granted = Some(chain.now);
            break;
        }
    }
    let waited = granted.expect("never granted") - asked;
    assert!(waited <= u64::from(LEASE_US) * 500 + 45 * MS + STORE_LEASE, "{waited} ns");
    assert!(
        chain.head().counters().leases_withheld > 0 && chain.head().counters().recalls_resent > 3
    );
    // It goes on, in another session.
    assert_eq!(chain.ask(&lease(COUNTER, owner(1, 1), b"else")).message().lease_us, LEASE_US);
}

#[test]
fn sessions_6_an_answered_recall_withholds_nothing() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.keep_alive(owner(1, 1), chain.now + TENURE);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    chain.keep_alive(owner(1, 1), chain.now + 90 * MS);
    assert_eq!(chain.ask_last(&heartbeat(owner(1, 1))).message().lease_us, 0, "withheld");
    chain.send(&release(owner(1, 1), KEY, epoch, 0, b"12345678"));
    assert_eq!(chain.sent()[..], [(1, ReleaseAck), (2, LeaseGrant)]);
    assert_eq!(chain.ask(&heartbeat(owner(1, 1))).message().lease_us, LEASE_US);
}

/// Found by the simulator (seed 4000110065): the switch that this happened to got no lease any
/// more.
#[test]
fn sessions_6_a_recall_in_a_lost_session_withholds_nothing_from_the_next() {
    let mut chain = Chain::new(3);
    let epoch = chain.ask(&lease(COUNTER, owner(1, 1), KEY)).epoch();
    chain.ask(&lease(COUNTER, owner(1, 1), b"else"));
    chain.keep_alive(owner(1, 1), chain.now + TENURE);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    // The servers stand still, until the lease is over. What waited for them comes before their
    // timers do.
    chain.now += STORE_LEASE;
    chain.send(&lease(COUNTER, owner(2, 1), b"else"));
    chain.send(&update(owner(1, 1), KEY, epoch, 1, b"12345678"));
    assert_eq!(chain.sent(), [(1, Recall), (2, LeaseGrant), (1, UpdateAck)], "in another session");
    chain.advance(MS);
    chain.send(&release(owner(1, 1), KEY, epoch, 1, b"12345678"));
    assert_eq!(chain.ask_last(&heartbeat(owner(1, 1))).message().lease_us, LEASE_US);
}

#[test]
fn sessions_6_a_head_that_drained_and_goes_on_withholds_nothing() {
    let mut chain = Chain::new(3);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    chain.keep_alive(owner(1, 1), chain.now + TENURE);
    chain.send(&lease(COUNTER, owner(2, 1), KEY));
    chain.keep_alive(owner(1, 1), chain.now + 90 * MS);
    assert_eq!(chain.ask_last(&heartbeat(owner(1, 1))).message().lease_us, 0, "withheld");
    let members = [(0, 1), (1, 2), (2, 3)];
    for (number, draining) in [(2, true), (3, false)] {
        let mut views = member::views(number, 0, 1, &members);
        views.shards[0].draining = draining;
        chain.tell(&views, &[0, 1, 2]);
    }
    assert_eq!(
        chain.ask_last(&heartbeat(owner(1, 1))).message().lease_us,
        LEASE_US,
        "it forgot what it recalled"
    );
}

#[test]
fn tags_what_is_not_genuine_changes_nothing_and_is_counted() {
    let mut chain = Chain::new(3);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    let digest = chain.head().digest();
    let (from, to) = (switch_address(1), server_address(0));
    let request = Message { request_ns: chain.now + 1, ..lease(COUNTER, owner(1, 1), KEY) };
    let genuine = signed(&request, from, to);
    let mut unsigned = Vec::new();
    request.append_to(&mut unsigned).unwrap();
    let mut unknown_key = unsigned.clone();
    assert!(KeyRing::new(3, Secret([1; SECRET_BYTES])).unwrap().sign(
        &mut unknown_key,
        *from.ip(),
        *to.ip()
    ));
    let mut wrong_secret = unsigned.clone();
    assert!(KeyRing::new(1, Secret([9; SECRET_BYTES])).unwrap().sign(
        &mut wrong_secret,
        *from.ip(),
        *to.ip()
    ));
    let mut changed = genuine.clone();
    changed[66] ^= 1;
    let elsewhere = signed(&request, from, server_address(1));
    for bytes in [&unsigned, &unknown_key, &wrong_secret, &changed, &elsewhere] {
        chain.send_bytes(from, bytes);
    }
    chain.send_bytes(switch_address(2), &genuine);
    assert_eq!((chain.sent(), chain.head().counters().bad_tag), (vec![], 6));
    assert_eq!(chain.head().digest(), digest);
    chain.send_bytes(from, &genuine);
    assert_eq!(chain.sent(), [(1, LeaseGrant)]);
}

#[test]
fn tags_any_accepted_secret_will_do_and_rings_change_while_running() {
    let mut chain = Chain::new(3);
    let (from, to) = (switch_address(1), server_address(0));
    let mut second = keys();
    assert!(second.send_with(2));
    let mut bytes = Vec::new();
    Message { request_ns: chain.now, ..heartbeat(owner(1, 1)) }.append_to(&mut bytes).unwrap();
    assert!(second.sign(&mut bytes, *from.ip(), *to.ip()));
    chain.send_bytes(from, &bytes);
    assert_eq!(chain.sent(), [(1, HeartbeatAck)]);
    for at in 0..3 {
        chain.servers[at].set_keys(second.clone());
    }
    chain.send(&lease(COUNTER, owner(1, 1), KEY));
    let reply = chain.reply().unwrap();
    assert_eq!(second.verify(&reply.0.bytes, *server_address(2).ip(), *from.ip()), Ok(()));
    assert_eq!(reply.0.bytes[54], 2, "sent with the new one");
}

#[test]
fn tags_old_requests_are_replays() {
    let mut chain = Chain::new(3);
    chain.advance(5 * SECOND);
    let at = chain.now;
    let request = |request_ns| Message { request_ns, ..lease(COUNTER, owner(1, 1), KEY) };
    chain.ask(&request(at));
    let digest = chain.head().digest();
    chain.send(&request(at - REPLAY_WINDOW_NS - 1));
    assert_eq!((chain.sent(), chain.head().counters().replayed), (vec![], 1));
    assert_eq!(chain.head().digest(), digest);
    assert_eq!(chain.ask(&request(at - REPLAY_WINDOW_NS)).kind(), LeaseGrant);
}

#[test]
fn tags_no_request_is_taken_twice() {
    let mut chain = Chain::new(3);
    let from = switch_address(1);
    let bytes = signed(
        &Message { request_ns: chain.now, ..lease(COUNTER, owner(1, 1), KEY) },
        from,
        server_address(0),
    );
    chain.send_bytes(from, &bytes);
    let grant = chain.reply().unwrap();
    let epoch = grant.message().epoch;
    chain.advance(MS);
    let gone = Message {
        request_ns: chain.now,
        ..release(owner(1, 1), KEY, epoch, 0, grant.message().value)
    };
    assert_eq!(chain.ask(&gone).kind(), ReleaseAck);
    // A copy of what asked for the flow does not ask for it again.
    let digest = chain.head().digest();
    for _ in 0..3 {
        chain.send_bytes(from, &bytes);
    }
    assert_eq!((chain.sent(), chain.head().counters().replayed), (vec![], 3));
    assert_eq!(chain.head().digest(), digest);
}

#[test]
fn tags_no_replay_brings_a_session_back() {
    let mut chain = Chain::new(3);
    let at = chain.now;
    let request = |incarnation, request_ns| Message {
        request_ns,
        ..lease(COUNTER, owner(1, incarnation), KEY)
    };
    chain.ask(&request(7, at));
    chain.advance(STORE_LEASE);
    chain.ask(&lease(COUNTER, owner(2, 1), KEY));
    let (digest, replayed) = (chain.head().digest(), chain.head().counters().replayed);
    for old in [at, at - 1, at - 500 * MS] {
        chain.send(&request(7, old));
    }
    chain.send(&request(6, chain.now));
    assert_eq!((chain.sent(), chain.head().digest()), (vec![], digest));
    let counters = chain.head().counters();
    assert_eq!((counters.replayed - replayed, counters.old_incarnation), (3, 1));
    // Newer ones of the same life, and newer lives, are themselves.
    chain.advance(TENURE);
    chain.send(&request(7, at + 1));
    chain.send(&request(8, 1));
    assert_eq!(chain.head().status(chain.now).sessions, 3);
}

#[test]
fn every_request_of_an_unknown_shard_changes_nothing() {
    let mut chain = Chain::with(1, |settings| (settings.shard, settings.shards) = (3, 8));
    let of = |shard| {
        (0..100u32).map(|n| n.to_be_bytes()).find(|key| wire::shard_of(key, 8) == shard).unwrap()
    };
    let (mine, others) = (of(3), of(4));
    let digest = chain.head().digest();
    for message_type in [LeaseRequest, Update, ReadCommit, Release] {
        let value: &[u8] = if matches!(message_type, Update | Release) { b"12345678" } else { b"" };
        let request = |shard, key| Message {
            shard,
            value,
            flags: Flags::ALLOCATE,
            ..message(message_type, COUNTER, owner(1, 1), key)
        };
        chain.send(&request(4, &others[..]));
        chain.send(&request(3, &others));
        chain.send(&request(4, &mine));
    }
    chain.send(&Message { shard: 4, ..message(Heartbeat, 0, owner(1, 1), b"") });
    assert_eq!((chain.sent(), chain.head().digest()), (vec![], digest));
    assert_eq!(chain.head().counters().dropped_not_head, 13);
    let granted = chain.ask(&Message { shard: 3, ..lease(COUNTER, owner(1, 1), &mine) });
    assert_eq!(granted.kind(), LeaseGrant);
    assert_eq!(chain.ask(&Message { shard: 3, ..heartbeat(owner(1, 1)) }).kind(), HeartbeatAck);
}

#[test]
fn a_status_is_for_those_with_a_secret() {
    let mut chain = Chain::new(1);
    let request = message(state_protocol::MessageType::StatusRequest, 0, owner(0, 0), b"");
    let mut bytes = Vec::new();
    request.append_to(&mut bytes).unwrap();
    let mut out = Outputs::new();
    let now = chain.now;
    chain.servers[0].handle(
        now,
        Input::Datagram { from: switch_address(1), bytes: &bytes },
        &mut out,
    );
    chain.servers[0].flush(now, &mut out);
    assert!(out.is_empty() && chain.head().counters().bad_tag == 1);
    chain.send_bytes(switch_address(1), &signed(&request, switch_address(1), server_address(0)));
    assert!(chain.reply().unwrap().message().packet.starts_with(b"{\"state\":\"ready\""));
}

#[test]
fn old_views_change_nothing_and_are_counted() {
    let mut chain = Chain::new(3);
    chain.ask(&lease(COUNTER, owner(1, 1), KEY));
    let digests: Vec<u64> = chain.servers.iter().map(|server| server.digest()).collect();
    // Those of the beginning come again, and others that somebody kept; in them the chain is
    // another.
    chain.adopt(1, &[(0, 1), (1, 2), (2, 3)], &[0, 1, 2]);
    chain.adopt(1, &[(2, 3)], &[0, 1, 2]);
    for (server, digest) in chain.servers.iter().zip(digests) {
        assert_eq!((server.counters().views_old, server.digest()), (2, digest));
        assert_eq!(server.status(chain.now).view, 1);
    }
    assert_eq!(chain.ask(&heartbeat(owner(1, 1))).kind(), HeartbeatAck);
}

#[test]
fn what_a_server_has_is_told_page_by_page() {
    use state_store::core::{StateAnswer, StateQuery, to_hex};
    let mut chain = Chain::new(1);
    for n in 0..100u32 {
        let switch = 1 + n % 2;
        assert_eq!(
            chain.ask(&lease(COUNTER, owner(switch, 1), format!("{n:04}").as_bytes())).kind(),
            LeaseGrant
        );
    }
    let mut ask = |query: &StateQuery| -> StateAnswer {
        let json = serde_json::to_vec(query).unwrap();
        let request = message(state_protocol::MessageType::StateRequest, 0, owner(0, 0), b"");
        let reply = chain.ask(&state_protocol::Message { packet: &json, ..request });
        serde_json::from_slice(reply.message().packet).unwrap()
    };
    let mut all = |mut query: StateQuery| {
        let (mut keys, mut pages) = (vec![], 0);
        loop {
            let answer = ask(&query);
            assert_eq!((answer.shards, answer.all_shards), (vec![0], 1));
            keys.extend(answer.records.into_iter().map(|record| record.key));
            pages += 1;
            match answer.next {
                Some(next) => query.from = next,
                None => break,
            }
        }
        keys.sort_unstable();
        keys.dedup();
        (keys.len(), pages)
    };
    assert!(matches!(all(StateQuery::default()), (100, 2..)), "each once, on more than one page");
    assert_eq!(all(StateQuery { owner: Some(2), ..StateQuery::default() }).0, 50);
    assert_eq!(all(StateQuery { owner: Some(3), ..StateQuery::default() }).0, 0);
    assert_eq!(all(StateQuery { object: Some(NAT), ..StateQuery::default() }).0, 0);
    let key = Some(to_hex(b"0042"));
    let answer =
        ask(&StateQuery { object: Some(COUNTER), key: key.clone(), ..StateQuery::default() });
    assert!(
        matches!(&answer.records[..], [one] if one.owner == Some(1) && Some(&one.key) == key.as_ref())
    );
    let none = ask(&StateQuery {
        object: Some(COUNTER),
        key: Some(to_hex(b"4242")),
        ..StateQuery::default()
    });
    assert_eq!(none.records, []);
}

#[test]
fn refusals_come_from_the_tail() {
    let mut chain = Chain::new(3);
    let refusal = chain.ask(&update(owner(1, 1), KEY, 5, 1, b"12345678"));
    assert_eq!((refusal.kind(), refusal.epoch(), refusal.0.from), (Refused, 5, server_address(2)));
}
