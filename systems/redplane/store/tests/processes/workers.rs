//! Server processes with several workers: each a server of its own, that die together.

use crate::chain::{Chain, Plan};
use crate::etcd::Etcd;
use controller::shell::Status;
use std::collections::BTreeSet;

const SHARDS: u16 = 16;

/// Each chain is on three processes, whatever their workers are; SIGKILL to a process takes one
/// server from a chain, and its workers come back into their chains.
pub fn workers_die_together_and_nothing_is_lost() {
    let plan =
        Plan { servers: 4, running: 4, shards: SHARDS, etcd: Etcd::None, logs: false, workers: 2 };
    let mut chain = Chain::start_as(&plan);
    let status = chain.settle();
    assert_eq!(status.peers.len(), 8, "two workers in each of four processes: {status:?}");
    let used: BTreeSet<_> = status.shards.iter().flat_map(|shard| &shard.chain).collect();
    assert_eq!(used.len(), 8, "every worker has shards: {status:?}");
    on_three_machines(&status);
    for at in 0..4 {
        for address in chain.workers_of(at) {
            let own =
                state_store::shell::query_status(address, &chain.keys, crate::PATIENCE).unwrap();
            let heads: Vec<_> =
                status.shards.iter().filter(|shard| shard.chain[0] == address).collect();
            let roles = own.replicas.iter().filter(|replica| replica.role == "head").count();
            assert_eq!(roles, heads.len(), "{address}: {own:?}");
        }
    }

    let victims: Vec<_> = chain.workers_of(1).collect();
    let hit: Vec<_> = status
        .shards
        .iter()
        .filter(|shard| shard.chain.iter().any(|server| victims.contains(server)))
        .collect();
    assert!(!hit.is_empty());
    let before = status.version;
    chain.kill(1);
    let repaired = chain.await_control(|status| {
        on_three_machines(status);
        status.version > before
            && status.shards.iter().all(|shard| shard.chain.iter().all(|on| !victims.contains(on)))
    });
    for (shard, before) in repaired.shards.iter().zip(&status.shards) {
        // f = 1 of each chain: the others have gone on, none was founded anew.
        let kept = before.chain.iter().filter(|server| shard.chain.contains(server)).count();
        assert!(kept >= 2, "{before:?} became {shard:?}");
    }
    // The fourth process takes the places; then the killed one comes back, and gets those that are
    // its own.
    chain.settle();
    chain.servers[1] = chain.spawn(1);
    chain.await_control(|status| {
        on_three_machines(status);
        let back = status
            .shards
            .iter()
            .flat_map(|shard| &shard.chain)
            .any(|server| victims.contains(server));
        status.settled && back
    });
    chain.stop();
}

/// No chain has two workers of a process (each has an IP address of its own).
fn on_three_machines(status: &Status) {
    for shard in &status.shards {
        let machines: BTreeSet<_> = shard.chain.iter().map(|server| server.ip()).collect();
        assert_eq!(machines.len(), shard.chain.len(), "{shard:?}");
        let joins_elsewhere = shard.joining.is_none_or(|joining| !machines.contains(joining.ip()));
        assert!(joins_elsewhere, "{shard:?}");
    }
}
