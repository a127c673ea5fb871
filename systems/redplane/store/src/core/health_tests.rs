//! What a change of backends' health costs a server of many shards.

use super::backends::{Backend, Health};
use super::pool::Pool;
use super::{
    AllocatorSettings, BackendPolicy, BackendSettings, IdleNs, Limits, Node, ObjectSettings,
    Outputs, Replica, Settings, Start,
};
use chain::StateMachine;
use state_protocol::{Effect, Flags, RecordWrite};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{KeyRing, Member, SECRET_BYTES, Secret, ShardView, Views};

const OBJECT: u16 = 3;
const CONVERSATIONS: u16 = 10;

fn address(last: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 3, 0, last), 80)
}

fn settings() -> Settings {
    let idle_ns = IdleNs { tcp: 1 << 40, udp: 1 << 40, icmp: 1 << 40, other: 1 << 40 };
    let allocator =
        AllocatorSettings::Backends(BackendSettings { policy: BackendPolicy::Maglev, idle_ns });
    let name = "balancer".to_owned();
    Settings {
        shard: 0,
        shards: 3,
        lease_us: 100_000,
        clock_drift_ppm: 1_000,
        lease_margin_us: 1_000,
        hold_ns: 1_000_000,
        tenure_ns: 1_000_000,
        recall_resend_ns: 1_000_000,
        resend_ns: 1_000_000,
        chain_datagram_bytes: 1_400,
        limits: Limits {
            records: 100,
            sessions: 4,
            held: 4,
            held_per_flow: 4,
            held_bytes: 4_096,
            unacked: 64,
            unacked_bytes: 1 << 20,
        },
        objects: vec![ObjectSettings {
            name,
            id: OBJECT,
            key_bytes: 13,
            value_bytes: 6,
            allocator,
            closed_ns: 1 << 40,
            half_open_ns: 1 << 40,
            shard_bytes: None,
        }],
    }
}

fn member(last: u8) -> Member {
    let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 5407);
    Member { address, incarnation: last.into() }
}

/// A server that knows the backends, and is in no chain yet.
fn outside() -> Node {
    let me = member(1);
    let start = Start { incarnation: me.incarnation, epoch_base: 1, seed: 1, now_ns: 0 };
    let keys = KeyRing::new(1, Secret([1; SECRET_BYTES])).unwrap();
    let mut node = Node::new(settings(), start, keys, me.address, Vec::new());
    let list = (1..=4).map(|last| Backend {
        address: address(last),
        weight: 1,
        drained: false,
        health: Health::Up,
    });
    assert!(node.set_backends(OBJECT, list.collect()));
    node
}

fn views() -> Views {
    let view = |members: [u8; 3]| ShardView {
        number: 1,
        founded: 1,
        members: members.map(member).to_vec(),
        joining: None,
        draining: false,
    };
    Views { version: 1, shards: [[1, 2, 3], [2, 1, 3], [2, 3, 1]].map(view).to_vec() }
}

/// A server that is the head of shard 0's chain, a middle of shard 1's and the tail of shard 2's,
/// all with conversations of the first backend.
fn node() -> Node {
    let mut node = outside();
    node.adopt(0, &views(), &mut Outputs::new());
    for shard in 0..3 {
        let Some(replica) = node.process.replica_mut(shard) else { continue };
        (0..CONVERSATIONS).for_each(|client_port| converse(replica, client_port));
    }
    node
}

fn converse(replica: &mut Replica, client_port: u16) {
    let [a, b] = client_port.to_be_bytes();
    let (key, reverse) =
        ([9, 9, 9, 9, 8, 8, 8, 8, a, b, 0, 80, 6], [9, 9, 9, 9, 10, 3, 0, 1, a, b, 0, 80, 6]);
    let write = |key| RecordWrite {
        object_id: OBJECT,
        epoch: 1,
        seq: 0,
        owner: None,
        session: 0,
        phase: Flags::NONE,
        key,
        value: &[0; 6],
    };
    let slot = replica
        .chain
        .state_mut()
        .apply(&Effect::Pair { first: write(&key), second: write(&reverse) })
        .unwrap();
    if replica.settings.shard == 0 {
        replica.watch_idle(0, slot.unwrap());
    }
}

/// What each replica has as its backends: where it is in memory.
fn shared(node: &Node) -> Vec<usize> {
    let place = |replica: &Replica| match replica.records().pool(0) {
        Some(Pool::Backends(pool)) => pool.backends_at(),
        _ => panic!("no backends"),
    };
    node.replicas().map(place).collect()
}

#[test]
fn replicas_from_a_journal_have_the_backends_that_were_set_before() {
    let (mut node, mut out) = (outside(), Outputs::new());
    node.keep_journal(0, None, &mut out);
    node.adopt(0, &views(), &mut out);
    node.flush(0, &mut out);
    let mut restored = settings().nothing_restored();
    restored.read(&out.journal).unwrap();
    let mut again = outside();
    again.keep_journal(0, Some(restored), &mut Outputs::new());
    let known = |replica: &Replica| match replica.records().pool(0) {
        Some(Pool::Backends(pool)) => pool.status().len(),
        _ => panic!("no backends"),
    };
    assert_eq!(again.replicas().map(known).collect::<Vec<_>>(), [4; 3]);
}

#[test]
fn changes_that_come_together_make_one_table_for_all_shards() {
    let mut node = node();
    let before = shared(&node);
    assert_eq!(before, [before[0]; 3]);
    node.set_health([1, 2].map(|last| (OBJECT, address(last), Health::Down)));
    let after = shared(&node);
    assert_eq!(after, [after[0]; 3]);
    assert_ne!(after[0], before[0]);
    let health: Vec<Health> = node.backends(OBJECT).iter().map(|backend| backend.health).collect();
    assert_eq!(health, [Health::Down, Health::Down, Health::Up, Health::Up]);
    // What changes nothing in the end, and what is of no object or backend.
    let nothing = [(OBJECT, address(3), Health::Gone), (OBJECT, address(3), Health::Up)];
    node.set_health(
        nothing
            .into_iter()
            .chain([(OBJECT, address(9), Health::Down), (9, address(1), Health::Down)]),
    );
    assert_eq!(shared(&node), after);
}

#[test]
fn a_backend_that_flaps_leaves_nothing_behind() {
    let mut node = node();
    let watched = |node: &Node| -> Vec<usize> {
        node.replicas().map(|replica| replica.idle.records.len()).collect()
    };
    assert_eq!(watched(&node), [usize::from(CONVERSATIONS), 0, 0]);
    let due = |node: &Node| node.replicas().any(|replica| replica.idle.next_deadline() == Some(0));
    for _ in 0..5 {
        node.set_health([(OBJECT, address(2), Health::Down)]);
        node.set_health([(OBJECT, address(2), Health::Up)]);
        assert!(!due(&node), "nothing is gone");
    }
    for _ in 0..5 {
        node.set_health([(OBJECT, address(1), Health::Gone)]);
        assert!(due(&node));
        node.set_health([(OBJECT, address(1), Health::Up)]);
        assert_eq!(watched(&node), [usize::from(CONVERSATIONS), 0, 0]);
    }
    // As when it becomes the head while a backend is gone.
    node.set_health([(OBJECT, address(1), Health::Gone)]);
    let head = node.process.replica_mut(1).unwrap();
    head.watch_everything(5);
    assert_eq!(
        (head.idle.records.len(), head.idle.next_deadline()),
        (usize::from(CONVERSATIONS), Some(0))
    );
}
