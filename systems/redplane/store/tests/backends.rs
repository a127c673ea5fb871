//! Load balancing: what becomes of a backend's conversations when its health is bad.

mod common;

use common::*;
use state_protocol::MessageType::{LeaseGrant, LeaseRequest, Recall};
use state_protocol::{Message, MessageType, client_shard_of};
use state_store::core::backends::{Backend, Health};
use std::net::{Ipv4Addr, SocketAddrV4};

const TCP: u8 = 6;

fn backend(last: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 3, 0, last), 8080)
}

/// Client, virtual address, their ports, TCP.
fn key(client_port: u16) -> [u8; 13] {
    let mut key = [198, 51, 100, 10, 203, 0, 113, 10, 0, 0, 0, 80, TCP];
    key[8..10].copy_from_slice(&client_port.to_be_bytes());
    key
}

fn reverse_of(key: &[u8; 13], value: &[u8]) -> [u8; 13] {
    let mut reverse = *key;
    reverse[4..8].copy_from_slice(&value[..4]);
    reverse[10..12].copy_from_slice(&value[4..6]);
    reverse
}

fn chain() -> Chain {
    let mut chain = Chain::new(3);
    for server in &mut chain.servers {
        let active = |last| Backend {
            address: backend(last),
            weight: 1,
            drained: false,
            health: Health::Up,
        };
        assert!(server.node.set_backends(BALANCER, vec![active(1), active(2)]));
    }
    chain
}

fn set_health(chain: &mut Chain, address: SocketAddrV4, health: Health) {
    for server in &mut chain.servers {
        server.node.set_health([(BALANCER, address, health)]);
    }
    // As the shell does: what it brought about is looked at with the next batch.
    (0..chain.servers.len()).for_each(|at| chain.handle(at, state_store::core::Input::Timer));
}

/// A conversation whose two directions two switches have; its backend, and the epochs.
fn conversation(chain: &mut Chain, port: u16) -> (SocketAddrV4, [u8; 13], u32, u32) {
    let there = chain.ask(&lease(BALANCER, owner(1, 1), &key(port)));
    let value = there.message().value.to_vec();
    let reverse = reverse_of(&key(port), &value);
    let back = chain.ask(&message(LeaseRequest, BALANCER, owner(2, 1), &reverse));
    assert_eq!((there.kind(), back.kind()), (LeaseGrant, LeaseGrant));
    let address = Ipv4Addr::new(value[0], value[1], value[2], value[3]);
    (
        SocketAddrV4::new(address, u16::from_be_bytes([value[4], value[5]])),
        reverse,
        there.epoch(),
        back.epoch(),
    )
}

fn both_live(chain: &mut Chain, for_ns: u64) -> Vec<(u32, MessageType)> {
    let until = chain.now + for_ns;
    let mut sent = vec![];
    while chain.now < until {
        chain.send(&heartbeat(owner(1, 1)));
        chain.send(&heartbeat(owner(2, 1)));
        chain.run_until(until.min(chain.now + 10 * MS));
        sent.extend(chain.sent().into_iter().filter(|(_, kind)| *kind == Recall));
    }
    sent
}

#[test]
fn any_shard_can_give_any_backend_and_keeps_both_directions() {
    let mut chain = Chain::with(3, |settings| settings.shards = 64);
    for server in &mut chain.servers {
        let active = |last| Backend {
            address: backend(last),
            weight: 1,
            drained: false,
            health: Health::Up,
        };
        assert!(server.node.set_backends(BALANCER, vec![active(1), active(2)]));
    }
    let ports: Vec<u16> =
        (1_024..4_000).filter(|port| client_shard_of(&key(*port), 64) == 0).collect();
    assert!(ports.len() > 20, "{}", ports.len());
    let given: Vec<SocketAddrV4> =
        ports.iter().map(|port| conversation(&mut chain, *port).0).collect();
    let first = given.iter().filter(|address| **address == backend(1)).count();
    assert!(
        first.abs_diff(given.len() - first) <= 1,
        "the fewest connections: {first} of {}",
        given.len()
    );
    // A key of another shard is not this one's.
    let elsewhere = (1_024..).find(|port| client_shard_of(&key(*port), 64) != 0).expect("most are");
    chain.send(&lease(BALANCER, owner(1, 1), &key(elsewhere)));
    assert_eq!(chain.sent(), []);
    chain.assert_alike();
}

#[test]
fn a_backend_that_is_down_gets_nothing_new_and_keeps_what_it_has() {
    let mut chain = chain();
    let (address, ..) = conversation(&mut chain, 2_000);
    set_health(&mut chain, address, Health::Down);
    assert_eq!(both_live(&mut chain, SECOND), [], "nothing is taken away");
    assert_eq!(chain.head().records().len(), 2);
    for port in 2_001..2_010 {
        assert_ne!(conversation(&mut chain, port).0, address);
    }
    // Back again: the fewest conversations are there.
    set_health(&mut chain, address, Health::Up);
    assert_eq!(conversation(&mut chain, 3_000).0, address);
    chain.assert_alike();
}

#[test]
fn conversations_of_a_backend_that_is_gone_are_taken_away() {
    let mut chain = chain();
    let (address, reverse, there, back) = conversation(&mut chain, 2_000);
    both_live(&mut chain, TENURE);
    set_health(&mut chain, address, Health::Gone);
    let recalled = both_live(&mut chain, 30 * MS);
    assert!(recalled.contains(&(1, Recall)) && recalled.contains(&(2, Recall)), "{recalled:?}");

    // One half is released; a packet of it comes again: it is given to nobody.
    let first = key(2_000);
    let done = |sender, key, epoch| Message {
        object_id: BALANCER,
        ..release(sender, key, epoch, 0, &[0; 6])
    };
    chain.send(&done(owner(1, 1), &first[..], there));
    chain.send(&lease(BALANCER, owner(1, 1), &key(2_000)));
    assert!(chain.sent().iter().all(|(_, kind)| *kind != LeaseGrant));
    chain.send(&done(owner(2, 1), &reverse[..], back));
    chain.sent();
    both_live(&mut chain, 20 * MS);
    assert_eq!(chain.head().records().len(), 0);
    assert_eq!(chain.head().counters().conversations_dropped, 1);
    chain.assert_alike();

    // The client's next connection, from the same port even, goes to the other.
    let other = conversation(&mut chain, 2_000);
    assert_ne!(other.0, address);
}

#[test]
fn what_a_dead_switch_had_of_a_gone_backend_is_free_for_the_next_request() {
    let mut chain = chain();
    let (address, ..) = conversation(&mut chain, 2_000);
    // Both switches are dead, and their sessions forgotten.
    chain.advance(STORE_LEASE + 11 * SECOND);
    set_health(&mut chain, address, Health::Gone);
    chain.advance(MS);
    assert_eq!(chain.head().records().len(), 0);
    assert_ne!(conversation(&mut chain, 2_000).0, address);
}

/// The health was bad before: a new head finds what the old one had no time for.
#[test]
fn a_new_head_takes_away_what_was_gone_before_it_became_the_head() {
    let mut chain = chain();
    let (address, ..) = conversation(&mut chain, 2_000);
    chain.advance(STORE_LEASE + 11 * SECOND);
    let kept = conversation(&mut chain, 2_001).0;
    assert_ne!(kept, address);
    chain.down = vec![0];
    for server in &mut chain.servers[1..] {
        server.node.set_health([(BALANCER, address, Health::Gone)]);
    }
    chain.adopt(2, &[(1, 2), (2, 3)], &[1, 2]);
    assert_eq!(chain.servers[1].records().len(), 4);
    chain.advance(20 * MS);
    assert_eq!(chain.servers[1].records().len(), 2);
}

/// While all are gone, nothing is taken away; the first one that is up again, or new in the list,
/// makes the others count.
#[test]
fn what_was_gone_before_another_is_up_is_taken_away_then() {
    for listed in [false, true] {
        let mut chain = chain();
        let backends = [conversation(&mut chain, 2_000).0, conversation(&mut chain, 2_001).0];
        assert_ne!(backends[0], backends[1]);
        chain.advance(STORE_LEASE + 11 * SECOND);
        backends.iter().for_each(|address| set_health(&mut chain, *address, Health::Gone));
        chain.advance(SECOND);
        assert_eq!(chain.head().records().len(), 4);
        if listed {
            for server in &mut chain.servers {
                let of =
                    |address| Backend { address, weight: 1, drained: false, health: Health::Up };
                let list = [backends[0], backends[1], backend(3)].map(of);
                assert!(server.node.set_backends(BALANCER, list.to_vec()));
            }
            (0..chain.servers.len())
                .for_each(|at| chain.handle(at, state_store::core::Input::Timer));
        } else {
            set_health(&mut chain, backends[0], Health::Up);
        }
        chain.advance(20 * MS);
        assert_eq!(chain.head().records().len(), if listed { 0 } else { 2 });
    }
}

/// A chain that drains for a change of its order may keep its head.
#[test]
fn what_was_gone_while_the_head_drained_is_taken_away_afterwards() {
    let mut chain = chain();
    let (address, ..) = conversation(&mut chain, 2_000);
    let all = [(0, 1), (1, 2), (2, 3)];
    let mut draining = common::member::views(2, 0, 1, &all);
    draining.shards[0].draining = true;
    chain.tell(&draining, &[0, 1, 2]);
    set_health(&mut chain, address, Health::Gone);
    assert_eq!(both_live(&mut chain, 20 * MS), [], "it orders nothing");
    chain.adopt(3, &all, &[0, 1, 2]);
    let recalled = both_live(&mut chain, TENURE + 30 * MS);
    assert!(recalled.contains(&(1, Recall)) && recalled.contains(&(2, Recall)), "{recalled:?}");
}
