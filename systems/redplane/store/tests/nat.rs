//! NAT_PORTS of `systems/redplane/docs/state-protocol.md`: bindings in pairs, ports that run out
//! and come back.

mod common;

use common::*;
use state_protocol::{Flags, Message, MessageType, Owner};
use wire::shard_of;

fn nat_key(
    host: u8,
    remote: u8,
    source_port: u16,
    destination_port: u16,
    protocol: u8,
) -> [u8; 13] {
    let [s0, s1] = source_port.to_be_bytes();
    let [d0, d1] = destination_port.to_be_bytes();
    [10, 0, 0, host, 8, 8, 8, remote, s0, s1, d0, d1, protocol]
}

/// The key of packets that come back to the binding.
fn reverse_of(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&key[4..8], &value[..4], &key[10..12], &value[4..], &key[12..]].concat()
}

#[test]
fn nat_bindings_are_made_in_pairs_and_found_from_both_sides() {
    let mut chain = Chain::new(3);
    for (protocol, source_port, destination_port) in [(6, 2_000, 80), (17, 999, 53), (1, 2_001, 0)]
    {
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

/// The request of a switch that takes the reverse of a new binding along.
fn both(sender: Owner, key: &[u8]) -> Message<'_> {
    let request = lease(NAT, sender, key);
    Message { flags: request.flags.with(Flags::REVERSE), packet: b"parked", ..request }
}

#[test]
fn a_new_binding_comes_behind_its_reverse() {
    for (protocol, phase) in [(6, Flags::HALF_OPEN), (17, Flags::NONE)] {
        let mut chain = Chain::new(3);
        let key = nat_key(1, 1, 2_000, 80, protocol);
        chain.send(&both(owner(1, 1), &key));
        let (back, there) = (chain.reply().unwrap(), chain.reply().unwrap());
        assert!(chain.reply().is_none());
        let (back, there) = (back.message(), there.message());
        let reverse = reverse_of(&key, there.value);
        assert_eq!(
            (back.flags, back.key, back.value, back.packet),
            (
                phase.with(Flags::REVERSE),
                &reverse[..],
                &[&key[..4], &key[8..10]].concat()[..],
                &[][..]
            )
        );
        assert_eq!((there.flags, there.key, there.packet), (Flags::NONE, &key[..], &b"parked"[..]));
        let grant = |it: &Message<'_>| {
            (it.message_type, it.epoch, it.seq, it.session, it.lease_us, it.request_ns)
        };
        assert_eq!(grant(&back), grant(&there));
        assert_eq!((back.message_type, back.lease_us), (MessageType::LeaseGrant, LEASE_US));
        // Both are the switch's, and neither is made anew.
        for key in [&key[..], &reverse[..]] {
            assert_eq!(chain.ask(&both(owner(1, 1), key)).epoch(), there.epoch);
        }
        assert_eq!((chain.head().records().len(), chain.head().counters().grants), (2, 2));
        chain.assert_alike();
        // The switch dies: its session ends ten seconds after its lease, and then the binding is
        // idle. Whether one of TCP was answered only the switch knew: it is kept as if it was.
        chain.advance(17 * SECOND);
        assert_eq!(chain.head().records().len(), if protocol == 6 { 2 } else { 0 });
        chain.assert_alike();
    }
}

#[test]
fn a_reverse_that_another_switch_needs_is_recalled_at_once_and_soon_is_not_granted_ahead() {
    let mut chain = Chain::new(3);
    let mut ahead = Vec::new();
    for remote in 0..80 {
        let key = nat_key(1, remote, 2_000, 53, 17);
        chain.send(&both(owner(1, 1), &key));
        ahead.push(chain.replies.len() == 2);
        let there = Reply(chain.replies.pop_back().unwrap());
        chain.replies.clear();
        let (reverse, epoch) = (reverse_of(&key, there.message().value), there.epoch());
        // The answers of the first forty come by another switch.
        let other = owner(if remote < 40 { 2 } else { 1 }, 1);
        chain.send(&message(MessageType::LeaseRequest, NAT, other, &reverse));
        if remote < 40 && *ahead.last().unwrap() {
            // Nobody has used it, so there is no time to wait for; the clock stands.
            assert_eq!(chain.sent(), [(1, MessageType::Recall)]);
            chain.send(&Message {
                object_id: NAT,
                ..release(owner(1, 1), &reverse, epoch, 0, &[0; 6])
            });
            assert_eq!(chain.sent(), [(1, MessageType::ReleaseAck), (2, MessageType::LeaseGrant)]);
        } else {
            assert_eq!(chain.sent(), [(other.switch_id, MessageType::LeaseGrant)]);
        }
    }
    assert!(ahead[0], "nothing is known yet");
    assert!(!ahead[2..40].contains(&true), "{ahead:?}");
    assert!(ahead.ends_with(&[true; 5]), "they come by the same switch again: {ahead:?}");
    chain.assert_alike();
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
    let mut flows: Vec<_> = chain
        .head()
        .records()
        .iter()
        .filter(|r| r.primary)
        .map(|r| (r.key.clone(), r.epoch))
        .collect();
    flows.sort_by(|one, other| one.0.as_slice().cmp(other.0.as_slice()));
    for (key, epoch) in flows {
        chain.ask(&Message {
            object_id: NAT,
            ..release(owner(1, 1), key.as_slice(), epoch, 0, &[0; 6])
        });
    }
    chain.advance(2 * SECOND + MS);
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
    let grant = chain.ask(&lease(NAT, owner(1, 1), &key));
    let reverse = reverse_of(&key, grant.message().value);
    let back = chain.ask(&message(MessageType::LeaseRequest, NAT, owner(2, 1), &reverse));
    let nat =
        |sender, key, epoch| Message { object_id: NAT, ..release(sender, key, epoch, 0, &[0; 6]) };
    chain.ask(&nat(owner(1, 1), &key[..], grant.epoch()));
    chain.keep_alive(owner(2, 1), chain.now + 7 * SECOND);
    chain.sent(); // is asked whether it has the flow
    assert_eq!(chain.head().records().len(), 2);
    let released = chain.now;
    chain.ask(&nat(owner(2, 1), &reverse[..], back.epoch()));
    chain.run_until(released + 2 * SECOND - MS);
    assert_eq!(chain.head().records().len(), 2, "the idle time is not over");
    chain.run_until(released + 2 * SECOND + MS);
    assert_eq!(chain.head().records().len(), 0);
    assert_eq!(chain.head().records().pool(1).unwrap().in_use(), 0);
}

/// A grant that got lost, with no packet behind it, would be the switch's for ever, and a port with
/// it.
#[test]
fn an_owner_that_shows_nothing_is_asked_whether_it_has_the_flow() {
    for has_it in [false, true] {
        let mut chain = Chain::new(3);
        let key = nat_key(1, 1, 2_000, 53, 17);
        let grant = chain.ask(&lease(NAT, owner(1, 1), &key));
        let granted = chain.now;
        chain.keep_alive(owner(1, 1), granted + 2 * SECOND - MS);
        assert_eq!(chain.sent(), [], "most are taken, and nothing tells yet that this one was not");
        let mut asked = vec![];
        while asked.is_empty() {
            assert!(chain.now < granted + 5 * SECOND, "never asked");
            chain.keep_alive(owner(1, 1), chain.now + 10 * MS);
            asked.extend(chain.replies.drain(..));
        }
        let probe = Reply(asked.remove(0));
        let (kind, flags) = (probe.kind(), probe.message().flags);
        assert_eq!(
            (kind, flags, probe.epoch(), asked.len()),
            (MessageType::Recall, Flags::PROBE, grant.epoch(), 0)
        );
        // Unanswered it is sent again when the record is looked at again, and costs the session
        // nothing.
        chain.keep_alive(owner(1, 1), chain.now + 3 * SECOND);
        let again = chain.sent();
        assert!(
            (2..=3).contains(&again.len())
                && again.iter().all(|it| *it == (1, MessageType::Recall)),
            "{again:?}"
        );
        assert_eq!(chain.head().counters().leases_withheld, 0);
        assert_eq!(chain.head().records().len(), 2);
        if has_it {
            let held =
                Message { object_id: NAT, ..read_commit(owner(1, 1), &key, grant.epoch(), 0) };
            assert_eq!(chain.ask(&held).kind(), MessageType::UpdateAck);
        } else {
            let lost = Message {
                object_id: NAT,
                value: &[],
                ..release(owner(1, 1), &key, grant.epoch(), 0, &[])
            };
            chain.send(&Message { flags: Flags::UNKNOWN, ..lost });
        }
        chain.sent();
        chain.keep_alive(owner(1, 1), chain.now + 20 * SECOND);
        assert_eq!(chain.sent(), [], "never asked again, {has_it}");
        assert_eq!(chain.head().records().len(), if has_it { 2 } else { 0 });
        chain.assert_alike();
    }
}

/// The switch remembers for some seconds that it does not have a flow; a message that says so may
/// be older, while nothing tells how old it is.
#[test]
fn a_new_head_takes_no_word_of_what_a_switch_lacks_for_a_lease() {
    let mut chain = Chain::new(3);
    let key = nat_key(1, 1, 2_000, 53, 17);
    let grant = chain.ask(&lease(NAT, owner(1, 1), &key));
    chain.down.push(0);
    chain.adopt(2, &[(1, 2), (2, 3)], &[1, 2]);
    chain.advance(STORE_LEASE / 2);
    let lost =
        Message { object_id: NAT, value: &[], ..release(owner(1, 1), &key, grant.epoch(), 0, &[]) };
    let lost = Message { flags: Flags::UNKNOWN, ..lost };
    chain.send_to(1, &lost);
    assert_eq!(chain.sent(), []);
    chain.advance(STORE_LEASE / 2 + MS);
    chain.send_to(1, &lost);
    assert_eq!(chain.sent(), [(1, MessageType::ReleaseAck)]);
}

#[test]
fn a_binding_is_closed_if_one_side_is_or_both_are_by_half() {
    use Flags as F;
    for (forward, backward, closed) in [
        (F::CLOSED, F::NONE, true),
        (F::NONE, F::CLOSED, true),
        (F::HALF_CLOSED, F::HALF_CLOSED, true),
        (F::HALF_CLOSED, F::NONE, false),
        (F::NONE, F::HALF_CLOSED, false),
    ] {
        let mut chain = Chain::new(3);
        // TCP: idle after two hours, closed after a second.
        let key = nat_key(1, 1, 2_000, 80, 6);
        let grant = chain.ask(&lease(NAT, owner(1, 1), &key));
        let reverse = reverse_of(&key, grant.message().value);
        let back = chain.ask(&message(MessageType::LeaseRequest, NAT, owner(2, 1), &reverse));
        let nat = |sender, key, epoch, flags| Message {
            object_id: NAT,
            flags,
            ..release(sender, key, epoch, 0, &[0; 6])
        };
        chain.ask(&nat(owner(1, 1), &key[..], grant.epoch(), forward));
        chain.ask(&nat(owner(2, 1), &reverse[..], back.epoch(), backward));
        chain.advance(3 * SECOND);
        assert_eq!(chain.head().records().is_empty(), closed, "{forward:?} {backward:?}");
        chain.assert_alike();
    }
}

/// How many seconds a TCP binding of `forward` (and of `backward`, if its other direction was
/// granted) is kept after its release. The chain keeps established ones for two hours, half-open
/// ones for five seconds, closed ones for one.
fn kept_s(forward: Option<Flags>, backward: Option<Flags>) -> u64 {
    let mut chain = Chain::new(3);
    let key = nat_key(1, 1, 2_000, 80, 6);
    let grant = chain.ask(&lease(NAT, owner(1, 1), &key));
    let reverse = reverse_of(&key, grant.message().value);
    let nat = |sender, key, epoch, flags| Message {
        object_id: NAT,
        flags,
        ..release(sender, key, epoch, 0, &[0; 6])
    };
    let phases = [(&key[..], owner(1, 1), forward), (&reverse[..], owner(2, 1), backward)];
    for (at, (key, switch, phase)) in phases.into_iter().enumerate() {
        let granted = match (at, phase) {
            (0, _) => grant.epoch(),
            (_, None) => continue,
            _ => chain.ask(&message(MessageType::LeaseRequest, NAT, switch, key)).epoch(),
        };
        if let Some(phase) = phase {
            chain.ask(&nat(switch, key, granted, phase));
        }
    }
    let released = chain.now;
    // A switch that does not release dies: its session ends ten seconds after its lease.
    let dead_s = if forward.is_none() { 10 } else { 0 };
    for second in 1..30 {
        chain.run_until(released + (second + dead_s) * SECOND + 200 * MS);
        if chain.head().records().is_empty() {
            chain.assert_alike();
            return second;
        }
    }
    7_440
}

#[test]
fn a_binding_that_was_not_answered_is_kept_for_half_open_s() {
    use Flags as F;
    assert_eq!(kept_s(Some(F::HALF_OPEN), None), 5, "SYN, no answer");
    // (Counted from the look that finds the session over, a second later at the most.)
    assert!(
        (5..=6).contains(&kept_s(None, None)),
        "the same, and the switch died before it could say so"
    );
    assert_eq!(kept_s(Some(F::HALF_OPEN), Some(F::NONE)), 7_440, "an answer came");
    assert_eq!(
        kept_s(Some(F::HALF_OPEN), Some(F::HALF_OPEN)),
        5,
        "both sent a SYN, and none was answered"
    );
    assert_eq!(kept_s(Some(F::NONE), None), 7_440, "the switch says that it is no new connection");
    assert_eq!(kept_s(Some(F::HALF_OPEN), Some(F::CLOSED)), 1, "a reset was the answer");
    assert_eq!(
        kept_s(Some(F::HALF_OPEN), Some(F::HALF_CLOSED)),
        7_440,
        "it is open in one direction"
    );
}

#[test]
fn only_tcp_is_half_open() {
    let mut chain = Chain::new(1);
    for (protocol, phase) in [(6, Flags::HALF_OPEN), (17, Flags::NONE), (1, Flags::NONE)] {
        let key = nat_key(1, 1, 2_000, 80, protocol);
        chain.ask(&lease(NAT, owner(1, 1), &key));
        let phases: Vec<_> =
            chain.head().records().iter().filter(|it| it.key.as_slice()[12] == protocol).collect();
        assert!(phases.len() == 2 && phases.iter().all(|it| it.phase == phase), "{protocol}");
    }
}

#[test]
fn a_reverse_key_is_of_the_same_shard() {
    let with = |settings: &mut state_store::core::Settings| {
        settings.shards = 64;
        settings.limits.records = 10_000;
        let state_store::core::AllocatorSettings::NatPorts(nat) =
            &mut settings.objects[1].allocator
        else {
            panic!()
        };
        nat.ports = 1_024..=65_535;
    };
    let mut made = 0;
    let mut chain = Chain::with(1, with);
    for source_port in 0..3_000 {
        let key = nat_key(1, 1, source_port, 80, 6);
        if shard_of(&key, 64) != 0 {
            continue;
        }
        let grant = chain.ask(&lease(NAT, owner(1, 1), &key));
        let reverse = reverse_of(&key, grant.message().value);
        assert_eq!(shard_of(&reverse, 64), 0);
        made += 1;
    }
    assert!(made > 20, "{made}");
    // Few ports: those of the shard, and then none.
    let few = |settings: &mut state_store::core::Settings| {
        with(settings);
        let state_store::core::AllocatorSettings::NatPorts(nat) =
            &mut settings.objects[1].allocator
        else {
            panic!()
        };
        (nat.ports, nat.external) = (2_000..=2_999, vec![std::net::Ipv4Addr::new(203, 0, 113, 1)]);
    };
    let mut chain = Chain::with(1, few);
    let any = nat_key(1, 1, 1, 80, 6);
    let good = |port: &u16| {
        shard_of(&reverse_of(&any, &[&[203, 0, 113, 1], &port.to_be_bytes()[..]].concat()), 64) == 0
    };
    let expected = (2_000..=2_999).filter(good).count();
    let keys =
        (0..60_000).map(|port| nat_key(2, 1, port, 80, 6)).filter(|key| shard_of(key, 64) == 0);
    let granted = keys
        .take(expected + 5)
        .filter(|key| chain.ask(&lease(NAT, owner(1, 1), key)).kind() == MessageType::LeaseGrant);
    assert_eq!(granted.count(), expected);
    assert!(expected > 5);
}
