//! `[[object]]` of `store.toml`: sizes, allocators and backends of the objects that the store
//! keeps.

use crate::core::backends::{Backend, Health, MOST_BACKENDS, MOST_WEIGHT};
use crate::core::nat::{KEY_BYTES, VALUE_BYTES};
use crate::core::{
    AllocatorSettings, BackendPolicy, BackendSettings, IdleNs, MergeSettings, NatSettings,
    ObjectSettings,
};
use crate::health::{HealthCheck, HealthTable};
use daemon::config::{Problem, require, require_distinct};
use manifest::{Manifest, StateObject};
use serde::Deserialize;
use state_protocol::objects::{
    Allocator, Consistency, LEAST_WINDOW_BITS, MOST_MERGED_KEY_BYTES, Merge, ObjectError,
    flow_states, snapshot_states,
};
use state_protocol::{
    MAX_KEY_BYTES, MAX_VALUE_BYTES, MOST_SNAPSHOT_KEY_BYTES, MOST_SNAPSHOT_PARTS,
    SNAPSHOT_PART_BYTES, SNAPSHOT_VALUE_BYTES,
};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ObjectTable {
    name: String,
    id: Option<u16>,
    key_bytes: Option<usize>,
    value_bytes: Option<usize>,
    allocator: Option<AllocatorName>,
    external: Option<Vec<Ipv4Addr>>,
    ports: Option<String>,
    idle: Option<IdleTable>,
    idle_s: Option<u32>,
    policy: Option<PolicyName>,
    #[serde(default)]
    backend: Vec<BackendTable>,
    health: Option<HealthTable>,
    closed_s: Option<u32>,
    /// So many bytes of a key, from its first, pick its shard; all if there is no such line.
    shard_bytes: Option<usize>,
    half_open_s: Option<u32>,
    slots: Option<usize>,
    slot_bytes: Option<usize>,
    merge: Option<Merge>,
    window_bits: Option<u32>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum AllocatorName {
    Zero,
    NatPorts,
    Snapshot,
    Backends,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum PolicyName {
    Weighted,
    LeastConnections,
    Maglev,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackendTable {
    address: Ipv4Addr,
    port: u16,
    weight: Option<u32>,
    #[serde(default)]
    state: StateName,
}

#[derive(Deserialize, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum StateName {
    #[default]
    Active,
    Drained,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct IdleTable {
    tcp_s: u32,
    udp_s: u32,
    icmp_s: u32,
    other_s: u32,
}

impl Default for IdleTable {
    fn default() -> Self {
        // RFC 5382 REQ-5 (2 h 4 min), RFC 4787 REQ-5 (recommended 5 min), RFC 5508 REQ-1 (60 s).
        IdleTable { tcp_s: 7_440, udp_s: 300, icmp_s: 60, other_s: 300 }
    }
}

pub(super) const NS_PER_S: u64 = 1_000_000_000;
/// RFC 7857 §2: a NAT keeps a closed TCP connection's binding for 4 minutes.
const DEFAULT_CLOSED_S: u32 = 240;
/// RFC 5382 REQ-5: that of a connection that is only partly open for no less than 4 minutes.
const DEFAULT_HALF_OPEN_S: u32 = 240;

/// The table of the manifest's object, made if there is none, and how messages call it.
fn table_of<'a>(
    tables: &'a mut Vec<ObjectTable>,
    object: &StateObject,
) -> (String, &'a mut ObjectTable) {
    let at = tables.iter().position(|table| table.name == object.name).unwrap_or_else(|| {
        tables.push(ObjectTable { name: object.name.clone(), ..ObjectTable::default() });
        tables.len() - 1
    });
    (format!("object[{at}] \"{}\"", object.name), &mut tables[at])
}

/// Takes ids, sizes and allocators from the program's manifest, and objects that have no table of
/// their own.
pub(super) fn fill_from_manifest(
    tables: &mut Vec<ObjectTable>,
    manifest: &Manifest,
) -> Result<(), Problem> {
    let fault = |error: ObjectError| ("manifest".to_owned(), error.to_string());
    let flows = flow_states(manifest).map_err(fault)?;
    for flow in flows.iter().filter(|flow| flow.settings.consistency != Consistency::Local) {
        let (place, table) = table_of(tables, &flow.object);
        let allocator = match flow.settings.allocator {
            Allocator::Zero => AllocatorName::Zero,
            Allocator::NatPorts => AllocatorName::NatPorts,
            Allocator::Backends => AllocatorName::Backends,
        };
        fill(&mut table.id, flow.object.id, &format!("{place}.id"))?;
        fill(&mut table.key_bytes, flow.object.key_bytes as usize, &format!("{place}.key_bytes"))?;
        fill(&mut table.value_bytes, flow.value_bytes as usize, &format!("{place}.value_bytes"))?;
        fill(&mut table.allocator, allocator, &format!("{place}.allocator"))?;
        if let Some(bytes) = flow.settings.shard_bytes {
            fill(&mut table.shard_bytes, bytes as usize, &format!("{place}.shard_bytes"))?;
        } else {
            require(table.shard_bytes.is_none(), &format!("{place}.shard_bytes"), || {
                "the manifest's object declares no shard_fields; leave it out".to_owned()
            })?;
        }
    }
    let snapshots = snapshot_states(manifest).map_err(fault)?;
    for snapshot in snapshots.iter().filter(|snapshot| snapshot.settings.period_us != 0) {
        let (place, table) = table_of(tables, &snapshot.object);
        fill(&mut table.id, snapshot.object.id, &format!("{place}.id"))?;
        fill(
            &mut table.key_bytes,
            snapshot.object.key_bytes as usize,
            &format!("{place}.key_bytes"),
        )?;
        fill(&mut table.value_bytes, SNAPSHOT_VALUE_BYTES, &format!("{place}.value_bytes"))?;
        fill(&mut table.allocator, AllocatorName::Snapshot, &format!("{place}.allocator"))?;
        fill(&mut table.slots, snapshot.slots as usize, &format!("{place}.slots"))?;
        fill(&mut table.slot_bytes, snapshot.slot_bytes as usize, &format!("{place}.slot_bytes"))?;
        if let Some(MergeSettings { how, window_bits }) = MergeSettings::of(snapshot) {
            fill(&mut table.merge, how, &format!("{place}.merge"))?;
            if let Some(bits) = window_bits {
                fill(&mut table.window_bits, bits, &format!("{place}.window_bits"))?;
            }
        } else {
            require(table.merge.is_none(), &format!("{place}.merge"), || {
                "the manifest's object declares no Merge; leave it out".to_owned()
            })?;
        }
    }
    // One that is described in full may be another program's.
    match tables.iter().enumerate().find(|(_, table)| table.id.is_none()) {
        Some((at, table)) => {
            let known = tables
                .iter()
                .filter(|table| table.id.is_some())
                .map(|table| format!("\"{}\"", table.name));
            let known = known.collect::<Vec<_>>().join(", ");
            let has = if known.is_empty() { "none".to_owned() } else { known };
            Err((
                format!("object[{at}].name"),
                format!("the manifest has no object \"{}\" in the store; it has {has}", table.name),
            ))
        }
        None => Ok(()),
    }
}

fn fill<T: PartialEq + Copy + std::fmt::Debug>(
    own: &mut Option<T>,
    manifests: T,
    field: &str,
) -> Result<(), Problem> {
    let before = *own.get_or_insert(manifests);
    require(before == manifests, field, || {
        format!("{before:?}, but the manifest says {manifests:?}; leave it out")
    })
}

fn given<T: Copy>(value: Option<T>, place: &str, field: &str) -> Result<T, Problem> {
    let problem = "is missing; write it, or name the program's `manifest`, where it stands";
    value.ok_or_else(|| (format!("{place}.{field}"), problem.to_owned()))
}

pub(super) fn check_objects(tables: Vec<ObjectTable>) -> Result<Vec<ObjectSettings>, Problem> {
    let mut ids = HashSet::new();
    let mut objects = Vec::new();
    for (at, table) in tables.into_iter().enumerate() {
        let place = format!("object[{at}] \"{}\"", table.name);
        let id = given(table.id, &place, "id")?;
        require(id != 0, &format!("{place}.id"), || {
            "0 is not an object's number; write the number in the program's manifest, 1 or more"
                .to_owned()
        })?;
        require(ids.insert(id), &format!("{place}.id"), || {
            format!("{id} is used twice; give each object its own")
        })?;
        objects.push(check_object(table, &place)?);
    }
    Ok(objects)
}

fn check_object(table: ObjectTable, place: &str) -> Result<ObjectSettings, Problem> {
    let id = given(table.id, place, "id")?;
    let key_bytes = given(table.key_bytes, place, "key_bytes")?;
    let value_bytes = given(table.value_bytes, place, "value_bytes")?;
    require((1..=MAX_KEY_BYTES).contains(&key_bytes), &format!("{place}.key_bytes"), || {
        format!("{} is out of range; write 1 to {MAX_KEY_BYTES}", key_bytes)
    })?;
    require((1..=MAX_VALUE_BYTES).contains(&value_bytes), &format!("{place}.value_bytes"), || {
        format!("{} is out of range; write 1 to {MAX_VALUE_BYTES}", value_bytes)
    })?;
    let allocator = match given(table.allocator, place, "allocator")? {
        AllocatorName::Zero => check_zero(&table, place)?,
        AllocatorName::Snapshot => check_snapshot(&table, [key_bytes, value_bytes], place)?,
        AllocatorName::NatPorts => {
            AllocatorSettings::NatPorts(check_nat(&table, key_bytes, value_bytes, place)?)
        }
        AllocatorName::Backends => {
            AllocatorSettings::Backends(check_balancer(&table, key_bytes, value_bytes, place)?)
        }
    };
    let snapshot = matches!(allocator, AllocatorSettings::Snapshot { .. });
    for (given, field) in [
        (table.slots.is_some(), "slots"),
        (table.slot_bytes.is_some(), "slot_bytes"),
        (table.merge.is_some(), "merge"),
        (table.window_bits.is_some(), "window_bits"),
    ] {
        require(snapshot || !given, &format!("{place}.{field}"), || {
            "belongs to allocator = \"snapshot\"; remove it".to_owned()
        })?;
    }
    if let Some(bytes) = table.shard_bytes {
        let is_zero = matches!(allocator, AllocatorSettings::Zero { .. });
        require(is_zero, &format!("{place}.shard_bytes"), || {
            "belongs to allocator = \"zero\"; remove it".to_owned()
        })?;
        require((1..=key_bytes).contains(&bytes), &format!("{place}.shard_bytes"), || {
            format!("{bytes} is out of range; write 1 to {key_bytes}, the bytes of the key")
        })?;
    }
    let closed_s = table.closed_s.unwrap_or(DEFAULT_CLOSED_S);
    require(closed_s > 0, &format!("{place}.closed_s"), || {
        format!(
            "0 would reuse a port while packets of the old connection are under way; write 1 or more (default {DEFAULT_CLOSED_S})"
        )
    })?;
    let half_open_s = table.half_open_s.unwrap_or(DEFAULT_HALF_OPEN_S);
    require(half_open_s > 0, &format!("{place}.half_open_s"), || {
        format!(
            "0 would remove a connection's state before its answer can arrive; write 1 or more (default {DEFAULT_HALF_OPEN_S})"
        )
    })?;
    let (closed_ns, half_open_ns) =
        (u64::from(closed_s) * NS_PER_S, u64::from(half_open_s) * NS_PER_S);
    Ok(ObjectSettings {
        name: table.name,
        id,
        key_bytes,
        value_bytes,
        allocator,
        closed_ns,
        half_open_ns,
        shard_bytes: table.shard_bytes,
    })
}

fn check_zero(table: &ObjectTable, place: &str) -> Result<AllocatorSettings, Problem> {
    for (present, field) in [
        (table.external.is_some(), "external"),
        (table.ports.is_some(), "ports"),
        (table.idle.is_some(), "idle"),
    ] {
        require(!present, &format!("{place}.{field}"), || {
            "belongs to allocator = \"nat_ports\"; remove it (idle_s is the idle time of \"zero\")"
                .to_owned()
        })?;
    }
    require(table.idle_s != Some(0), &format!("{place}.idle_s"), || {
        "0 would remove records at once; leave it out to keep them for ever".to_owned()
    })?;
    Ok(AllocatorSettings::Zero {
        idle_ns: table.idle_s.map(|seconds| u64::from(seconds) * NS_PER_S),
    })
}

fn check_snapshot(
    table: &ObjectTable,
    [key_bytes, value_bytes]: [usize; 2],
    place: &str,
) -> Result<AllocatorSettings, Problem> {
    let AllocatorSettings::Zero { idle_ns } = check_zero(table, place)? else {
        return Err((place.to_owned(), "has no idle time".to_owned()));
    };
    let most = MOST_SNAPSHOT_KEY_BYTES;
    require(key_bytes <= most, &format!("{place}.key_bytes"), || {
        format!("{key_bytes} is too long for allocator \"snapshot\"; write {most} at most")
    })?;
    let slots = given(table.slots, place, "slots")?;
    let slot_bytes = given(table.slot_bytes, place, "slot_bytes")?;
    require([4, 8].contains(&slot_bytes), &format!("{place}.slot_bytes"), || {
        format!("{slot_bytes} is out of range; write 4 or 8")
    })?;
    let most = MOST_SNAPSHOT_PARTS * SNAPSHOT_PART_BYTES / slot_bytes;
    require((1..=most).contains(&slots), &format!("{place}.slots"), || {
        format!("{slots} is out of range; write 1 to {most}")
    })?;
    require(value_bytes == SNAPSHOT_VALUE_BYTES, &format!("{place}.value_bytes"), || {
        format!(
            "allocator \"snapshot\" needs {SNAPSHOT_VALUE_BYTES} (of no meaning), not {value_bytes}"
        )
    })?;
    let merge = check_merge(table, slots, slot_bytes, place)?;
    Ok(AllocatorSettings::Snapshot { slots, slot_bytes, idle_ns, merge })
}

/// How the slots of several switches are merged.
fn check_merge(
    table: &ObjectTable,
    slots: usize,
    slot_bytes: usize,
    place: &str,
) -> Result<Option<MergeSettings>, Problem> {
    let Some(how) = table.merge else {
        require(table.window_bits.is_none(), &format!("{place}.window_bits"), || {
            "belongs to merge = \"sum\", \"max\" or \"or\"; remove it".to_owned()
        })?;
        return Ok(None);
    };
    let key_bytes = table.key_bytes.unwrap_or(0);
    require(key_bytes <= MOST_MERGED_KEY_BYTES, &format!("{place}.key_bytes"), || {
        format!(
            "{key_bytes} is too long for merge: each switch's number stands behind the key; write {MOST_MERGED_KEY_BYTES} at most"
        )
    })?;
    let most_bits = 8 * slot_bytes as u32;
    let fits = |bits: u32| (LEAST_WINDOW_BITS..=most_bits).contains(&bits) && slots > 1;
    require(table.window_bits.is_none_or(fits), &format!("{place}.window_bits"), || {
        format!(
            "the window's number is the last of several slots, and must not come round while an old snapshot is kept; write {LEAST_WINDOW_BITS} to {most_bits}"
        )
    })?;
    Ok(Some(MergeSettings { how, window_bits: table.window_bits }))
}

/// What a NAT and a load balancer have in common: keys, values and idle times.
fn check_bindings(
    table: &ObjectTable,
    allocator: &str,
    key_bytes: usize,
    value_bytes: usize,
    place: &str,
) -> Result<IdleNs, Problem> {
    require(key_bytes == KEY_BYTES, &format!("{place}.key_bytes"), || {
        format!(
            "allocator \"{allocator}\" needs {KEY_BYTES} (addresses, ports, protocol), not {}",
            key_bytes
        )
    })?;
    require(value_bytes == VALUE_BYTES, &format!("{place}.value_bytes"), || {
        format!(
            "allocator \"{allocator}\" needs {VALUE_BYTES} (address, port), not {}",
            value_bytes
        )
    })?;
    require(table.idle_s.is_none(), &format!("{place}.idle_s"), || {
        "belongs to allocator = \"zero\"; write idle = { tcp_s = …, udp_s = …, icmp_s = … }"
            .to_owned()
    })?;
    let default_idle = IdleTable::default();
    let idle = table.idle.as_ref().unwrap_or(&default_idle);
    for (seconds, field) in [
        (idle.tcp_s, "tcp_s"),
        (idle.udp_s, "udp_s"),
        (idle.icmp_s, "icmp_s"),
        (idle.other_s, "other_s"),
    ] {
        require(seconds > 0, &format!("{place}.idle.{field}"), || {
            "0 would free bindings in use; write 1 or more".to_owned()
        })?;
    }
    let ns = |seconds: u32| u64::from(seconds) * NS_PER_S;
    Ok(IdleNs {
        tcp: ns(idle.tcp_s),
        udp: ns(idle.udp_s),
        icmp: ns(idle.icmp_s),
        other: ns(idle.other_s),
    })
}

fn check_balancer(
    table: &ObjectTable,
    key_bytes: usize,
    value_bytes: usize,
    place: &str,
) -> Result<BackendSettings, Problem> {
    let idle_ns = check_bindings(table, "backends", key_bytes, value_bytes, place)?;
    for (present, field) in
        [(table.external.is_some(), "external"), (table.ports.is_some(), "ports")]
    {
        require(!present, &format!("{place}.{field}"), || {
            "belongs to allocator = \"nat_ports\"; remove it".to_owned()
        })?;
    }
    let policy = match table.policy.unwrap_or(PolicyName::Weighted) {
        PolicyName::Weighted => BackendPolicy::Weighted,
        PolicyName::LeastConnections => BackendPolicy::LeastConnections,
        PolicyName::Maglev => BackendPolicy::Maglev,
    };
    Ok(BackendSettings { policy, idle_ns })
}

/// The backends of each object that may have them.
pub(super) fn check_backends(tables: &[ObjectTable]) -> Result<Vec<(u16, Vec<Backend>)>, Problem> {
    let mut lists = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        let place = format!("object[{at}] \"{}\"", table.name);
        if table.allocator != Some(AllocatorName::Backends) {
            let none = table.backend.is_empty() && table.policy.is_none() && table.health.is_none();
            require(none, &format!("{place}.backend"), || {
                "belongs to allocator = \"backends\", as policy and health do; remove it".to_owned()
            })?;
            continue;
        }
        require(table.backend.len() <= MOST_BACKENDS, &format!("{place}.backend"), || {
            format!("there are {}; list at most {MOST_BACKENDS}", table.backend.len())
        })?;
        let mut backends: Vec<Backend> = Vec::new();
        for (number, backend) in table.backend.iter().enumerate() {
            let field = |name: &str| format!("{place}.backend[{number}].{name}");
            let address = SocketAddrV4::new(backend.address, backend.port);
            require(
                !address.ip().is_unspecified() && address.port() != 0,
                &field("address"),
                || format!("{address} is not a backend's address; write its address and port"),
            )?;
            require(
                backends.iter().all(|other| other.address != address),
                &field("address"),
                || format!("{address} is listed twice; list each backend once"),
            )?;
            let weight = backend.weight.unwrap_or(1);
            require((1..=MOST_WEIGHT).contains(&weight), &field("weight"), || {
                format!(
                    "{weight} is out of range; write 1 to {MOST_WEIGHT}, or state = \"drained\" for none"
                )
            })?;
            backends.push(Backend {
                address,
                weight,
                drained: backend.state == StateName::Drained,
                health: Health::Up,
            });
        }
        if let Some(id) = table.id {
            lists.push((id, backends));
        }
    }
    Ok(lists)
}

/// How the health of each object's backends is checked.
pub(super) fn check_health(tables: &[ObjectTable]) -> Result<Vec<(u16, HealthCheck)>, Problem> {
    let mut checks = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        if let (Some(health), Some(id)) = (&table.health, table.id) {
            checks.push((id, health.check(&format!("object[{at}] \"{}\".health", table.name))?));
        }
    }
    Ok(checks)
}

fn check_nat(
    table: &ObjectTable,
    key_bytes: usize,
    value_bytes: usize,
    place: &str,
) -> Result<NatSettings, Problem> {
    let idle_ns = check_bindings(table, "nat_ports", key_bytes, value_bytes, place)?;
    let external = table.external.clone().unwrap_or_default();
    let field = format!("{place}.external");
    require(!external.is_empty(), &field, || {
        "must list at least one address, such as external = [\"203.0.113.1\"]".to_owned()
    })?;
    require_distinct(&external, &field, "address")?;
    Ok(NatSettings {
        external,
        ports: check_ports(table.ports.as_deref().unwrap_or("1024-65535"), place)?,
        idle_ns,
    })
}

fn check_ports(text: &str, place: &str) -> Result<std::ops::RangeInclusive<u16>, Problem> {
    let bounds = text.split_once('-').and_then(|(low, high)| {
        let range: (u16, u16) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        Some(range)
    });
    match bounds {
        Some((low, high)) if low > 0 && low <= high => Ok(low..=high),
        _ => Err((
            format!("{place}.ports"),
            format!(
                "\"{text}\" is not a range of ports; write lowest-highest, such as \"1024-65535\""
            ),
        )),
    }
}
