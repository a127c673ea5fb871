//! The digest of what all replicas of a chain must configure alike.
//!
//! Chains and logs carry it, so its text never changes: the names below are the text's own, and
//! stay when a field of the settings is renamed. A new setting appears in the text only if it is
//! not at its default.

use super::settings::{
    AllocatorSettings, BackendSettings, IdleNs, MergeSettings, NatSettings, ObjectSettings,
    Settings,
};

impl Settings {
    /// FNV-1a over the text of what all replicas must share; the upper half.
    pub fn digest(&self) -> u32 {
        let fnv = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        (self.shared_text().bytes().fold(0xcbf2_9ce4_8422_2325, fnv) >> 32) as u32
    }

    fn shared_text(&self) -> String {
        let Settings { shards, lease_us, clock_drift_ppm, lease_margin_us, objects, .. } = self;
        let objects: Vec<String> = objects.iter().map(object_text).collect();
        format!("{shards} {lease_us} {clock_drift_ppm} {lease_margin_us} [{}]", objects.join(", "))
    }
}

fn object_text(object: &ObjectSettings) -> String {
    let ObjectSettings {
        name,
        id,
        key_bytes,
        value_bytes,
        allocator,
        closed_ns,
        half_open_ns,
        shard_bytes,
    } = object;
    let allocator = allocator_text(allocator);
    let shard = shard_bytes.map_or(String::new(), |bytes| format!(", shard_bytes: {bytes}"));
    format!(
        "ObjectSettings {{ name: {name:?}, id: {id}, key_bytes: {key_bytes}, value_bytes: {value_bytes}, \
         allocator: {allocator}, closed_ns: {closed_ns}, half_open_ns: {half_open_ns}{shard} }}"
    )
}

fn allocator_text(allocator: &AllocatorSettings) -> String {
    match allocator {
        AllocatorSettings::Zero { idle_ns } => format!("Zero {{ idle_ns: {idle_ns:?} }}"),
        AllocatorSettings::NatPorts(NatSettings { external, ports, idle_ns }) => {
            let (low, high, idle) = (ports.start(), ports.end(), idle_text(idle_ns));
            format!(
                "NatPorts(NatSettings {{ external: {external:?}, ports: {low}..={high}, idle_ns: {idle} }})"
            )
        }
        AllocatorSettings::Snapshot { slots, slot_bytes, idle_ns, merge } => {
            let merge = merge.map_or(String::new(), |MergeSettings { how, window_bits }| {
                format!(", merge: {how:?}, window_bits: {window_bits:?}")
            });
            format!(
                "Snapshot {{ slots: {slots}, slot_bytes: {slot_bytes}, idle_ns: {idle_ns:?}{merge} }}"
            )
        }
        AllocatorSettings::Backends(BackendSettings { policy, idle_ns }) => {
            let idle = idle_text(idle_ns);
            format!("Backends(BackendSettings {{ policy: {policy:?}, idle_ns: {idle} }})")
        }
    }
}

fn idle_text(IdleNs { tcp, udp, icmp, other }: &IdleNs) -> String {
    format!("IdleNs {{ tcp: {tcp}, udp: {udp}, icmp: {icmp}, other: {other} }}")
}

#[cfg(test)]
mod tests {
    use super::super::settings::{BackendPolicy, Limits};
    use super::*;
    use state_protocol::objects::Merge;

    fn settings() -> Settings {
        let idle_ns = IdleNs { tcp: 7_440, udp: 300, icmp: 60, other: 600 };
        let object = |id, allocator| ObjectSettings {
            name: format!("object {id}"),
            id,
            key_bytes: 13,
            value_bytes: 6,
            allocator,
            closed_ns: 240,
            half_open_ns: 241,
            shard_bytes: None,
        };
        let nat =
            NatSettings { external: vec![[203, 0, 113, 1].into()], ports: 1024..=65535, idle_ns };
        Settings {
            shard: 0,
            shards: 8,
            lease_us: 300_000,
            clock_drift_ppm: 1_000,
            lease_margin_us: 2_000,
            hold_ns: 0,
            tenure_ns: 0,
            recall_resend_ns: 0,
            resend_ns: 0,
            chain_datagram_bytes: 0,
            limits: Limits {
                records: 0,
                sessions: 0,
                held: 0,
                held_per_flow: 0,
                held_bytes: 0,
                unacked: 0,
                unacked_bytes: 0,
            },
            objects: vec![
                object(1, AllocatorSettings::Zero { idle_ns: Some(5) }),
                object(2, AllocatorSettings::Zero { idle_ns: None }),
                object(3, AllocatorSettings::NatPorts(nat)),
                object(4, snapshot(None)),
                object(
                    5,
                    AllocatorSettings::Backends(BackendSettings {
                        policy: BackendPolicy::Maglev,
                        idle_ns,
                    }),
                ),
            ],
        }
    }

    fn snapshot(merge: Option<MergeSettings>) -> AllocatorSettings {
        AllocatorSettings::Snapshot { slots: 192, slot_bytes: 4, idle_ns: None, merge }
    }

    #[test]
    fn servers_that_would_merge_otherwise_are_no_chain() {
        let digests = [
            None,
            Some(MergeSettings { how: Merge::Sum, window_bits: None }),
            Some(MergeSettings { how: Merge::Max, window_bits: None }),
            Some(MergeSettings { how: Merge::Sum, window_bits: Some(32) }),
        ]
        .map(|merge| {
            let mut other = settings();
            other.objects[3].allocator = snapshot(merge);
            other.digest()
        });
        assert_eq!(digests[0], DIGEST);
        assert_eq!(digests.iter().collect::<std::collections::HashSet<_>>().len(), 4);
    }

    #[test]
    fn the_digest_is_that_of_every_build_before() {
        // A change here would take running chains apart, and refuse logs of an earlier build.
        assert_eq!(settings().digest(), DIGEST);
        let mut other = settings();
        other.objects[2].half_open_ns += 1;
        assert_ne!(other.digest(), DIGEST);
        let mut other = settings();
        other.objects[1].shard_bytes = Some(4);
        assert_ne!(other.digest(), DIGEST);
    }

    #[test]
    fn what_each_replica_may_have_of_its_own_is_not_in_it() {
        let mut other = settings();
        (other.shard, other.hold_ns, other.limits.records) = (3, 7, 9);
        assert_eq!(other.digest(), DIGEST);
    }

    const DIGEST: u32 = 0x456b_ed4e;
}
