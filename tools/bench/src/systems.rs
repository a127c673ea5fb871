//! The translators that are compared, each set up for the same network and the same conversations.

use crate::flows::{EXTERNAL, EXTERNAL_ADDRESSES, Flow, INSIDE, PORT_LOW};
use crate::kernel::{self, CObject};
use crate::network::Network;
use anyhow::{Context, Result, bail, ensure};
use c_layout::CStruct;
use dataplane::{
    ActionSpec, AttachMode, Dataplane, EntrySpec, GatewayPort, KeySpec, Object, ReversePath,
    Settings, Write,
};
use libbpf_rs::{MapCore, MapHandle};
use manifest::Manifest;
use nix::time::{ClockId, clock_gettime};
use redplane_switch::FlowRuntime;
use redplane_switch::runtime::{Session, entry_at};
use state_protocol::objects::flow_states;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use swish_protocol::strong::NodeValue;
use swish_switch::strong::Chain;

/// A binding's lease lasts longer than any measurement: what is measured is the established flow.
const LEASE_NS: u64 = 3_600_000_000_000;

/// One of the translators.
pub struct System {
    /// For the report, such as `p4 local`.
    pub name: &'static str,
    kind: Kind,
}

enum Kind {
    /// A NAT, whose bindings are written.
    P4(Box<Dataplane>),
    /// A firewall, whose connections are written.
    Firewall(Box<Dataplane>),
    /// A program that makes its state from the packets.
    Plain(Box<Dataplane>),
    HandWritten(CObject),
    /// The kernel's own; the C object has the program that passes frames up to it.
    Nftables(CObject),
}

/// Programs on interfaces; dropping it takes them off.
pub struct Attached {
    _p4: Vec<dataplane::Link>,
    _c: Vec<libbpf_rs::Link>,
}

fn prefix((address, length): (Ipv4Addr, u32)) -> String {
    format!("{address}/{length}")
}

/// `struct sp_nat_pool` and `struct pool`, which are the same.
fn pool() -> Vec<u8> {
    let mut bytes = EXTERNAL_ADDRESSES.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&PORT_LOW.to_ne_bytes());
    bytes.extend_from_slice(&u16::MAX.to_ne_bytes());
    for number in 0..EXTERNAL_ADDRESSES {
        bytes.extend_from_slice(&(u32::from(EXTERNAL.0) + number).to_be_bytes());
    }
    bytes
}

fn monotonic_ns() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

impl System {
    /// Loads a compiled P4 program that needs ports and routes alone, and keeps its state in this
    /// switch; to be called in the translator's namespace.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn plain(name: &'static str, object: &Path, network: &Network) -> Result<System> {
        Ok(System { name, kind: Kind::Plain(Box::new(Self::load(object, network)?)) })
    }

    fn load(object: &Path, network: &Network) -> Result<Dataplane> {
        let manifest = Manifest::read(&Manifest::path_for(object))?;
        let mut opened = Object::open(object, manifest)?;
        opened.set(Settings { host_traffic: true, ..Settings::default() })?;
        let dataplane = opened.load()?;
        dataplane.set_port(0, network.inside)?;
        dataplane.set_port(1, network.outside)?;
        dataplane
            .set_local_addresses(&[Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 2)], &[])?;
        Ok(dataplane)
    }

    /// Loads a compiled P4 NAT; to be called in the translator's namespace.
    ///
    /// # Errors
    /// It cannot be loaded, or is no NAT.
    pub fn p4(name: &'static str, object: &Path, network: &Network) -> Result<System> {
        let dataplane = Self::load_gateway(object, network)?;
        dataplane.write_array("sp_nat_pool", 0, &pool())?;
        for (table, key, action) in [
            ("NatIngress.external", EXTERNAL, "mark_external"),
            ("NatIngress.external", INSIDE, "route_untranslated"),
            ("NatIngress.inside", INSIDE, "mark_inside"),
        ] {
            set(&dataplane, table, prefix(key), action)?;
        }
        Ok(System { name, kind: Kind::P4(Box::new(dataplane)) })
    }

    /// Loads a compiled P4 firewall, whose connections are a `FlowState`, or a `SharedTable` with
    /// SRO; to be called in the translator's namespace.
    ///
    /// # Errors
    /// It cannot be loaded, or is no firewall.
    pub fn firewall(name: &'static str, object: &Path, network: &Network) -> Result<System> {
        let dataplane = Self::load_gateway(object, network)?;
        let (address, length) = INSIDE;
        let inside = format!("::ffff:{address}/{}", 96 + length);
        for table in ["inside_sources", "inside_destinations"] {
            set(&dataplane, &format!("FirewallIngress.{table}"), inside.clone(), "yes")?;
        }
        set(&dataplane, "FirewallIngress.outside_ports", "1".to_owned(), "yes")?;
        Ok(System { name, kind: Kind::Firewall(Box::new(dataplane)) })
    }

    fn load_gateway(object: &Path, network: &Network) -> Result<Dataplane> {
        let dataplane = Self::load(object, network)?;
        for (port, mac, ifindex) in [
            (0, network.macs.inside_port, network.inside),
            (1, network.macs.outside_port, network.outside),
        ] {
            // Frames of both directions are said to come in on one port: each may be the other.
            let value = GatewayPort {
                mac,
                siblings: 0b11,
                ifindex,
                any_mac: true,
                reverse_path: ReversePath::Strict,
                ..GatewayPort::default()
            };
            dataplane.set_gateway_port(port, &value)?;
        }
        Ok(dataplane)
    }

    /// Loads tools/bench/setups/nat_handwritten.c; to be called in the translator's namespace.
    pub fn hand_written(object: &Path, bindings: u32, network: &Network) -> Result<System> {
        let object = CObject::load(object, &[("bindings", bindings)])?;
        let ports = object.map("ports")?;
        for ifindex in [network.inside, network.outside] {
            kernel::write(&ports, &ifindex.to_ne_bytes(), &ifindex.to_ne_bytes())?;
        }
        let gateway_ports = object.map("gateway_ports")?;
        for (ifindex, mac) in [
            (network.inside, network.macs.inside_port),
            (network.outside, network.macs.outside_port),
        ] {
            let mac = mac.iter().fold(0u64, |mac, byte| mac << 8 | u64::from(*byte)) << 16;
            kernel::write(&gateway_ports, &ifindex.to_ne_bytes(), &mac.to_ne_bytes())?;
        }
        let local = object.map("local_addresses")?;
        for address in [[10, 0, 0, 1], [192, 0, 2, 2]] {
            kernel::write(&local, &address, &[1])?;
        }
        for (map, (address, length), value) in
            [("external", EXTERNAL, 1u32), ("external", INSIDE, 0), ("inside", INSIDE, 1)]
        {
            let mut key = length.to_ne_bytes().to_vec();
            key.extend_from_slice(&address.octets());
            kernel::write(&object.map(map)?, &key, &value.to_ne_bytes())?;
        }
        kernel::write(&object.map("pool")?, &0u32.to_ne_bytes(), &pool())?;
        Ok(System { name: "hand-written C", kind: Kind::HandWritten(object) })
    }

    /// Sets up nftables in the translator's namespace; `traffic` is tools/bench/setups/traffic.c.
    pub fn nftables(traffic: &Path, network: &Network) -> Result<System> {
        let last = Ipv4Addr::from(u32::from(EXTERNAL.0) + EXTERNAL_ADDRESSES - 1);
        let rules = format!(
            "table ip nat {{\n chain postrouting {{\n type nat hook postrouting priority srcnat;\n oifname \"outside\" ip saddr {} snat to {}-{last};\n }}\n}}\n",
            prefix(INSIDE),
            EXTERNAL.0
        );
        let (good, said) =
            lab::process::run(Some(&network.translator), &["nft".to_owned(), rules])?;
        ensure!(good, "nft: {said}");
        Ok(System { name: "nftables", kind: Kind::Nftables(CObject::load(traffic, &[])?) })
    }

    /// Writes the bindings of these conversations, both directions, as if they had been made long
    /// ago and were in use.
    pub fn establish(&self, flows: &[Flow]) -> Result<()> {
        match &self.kind {
            Kind::P4(dataplane) => {
                let pairs = |flow: &Flow| flow.keys().into_iter().zip(flow.values());
                establish_flows(dataplane, flows.iter().flat_map(pairs))
            }
            Kind::Firewall(dataplane) if Chain::of(dataplane.manifest())?.is_some() => {
                establish_shared(dataplane, flows.iter().map(connection))
            }
            Kind::Firewall(dataplane) => establish_flows(dataplane, flows.iter().map(connection)),
            Kind::HandWritten(object) => {
                let map = object.map("bindings")?;
                for flow in flows {
                    for (key, value) in flow.keys().into_iter().zip(flow.values()) {
                        let mut padded_key = [0u8; 16];
                        padded_key[..13].copy_from_slice(&key);
                        let mut padded_value = [0u8; 16];
                        padded_value[..6].copy_from_slice(&value);
                        kernel::write(&map, &padded_key, &padded_value)?;
                    }
                }
                Ok(())
            }
            // They make their own when the first packets come.
            Kind::Plain(_) | Kind::Nftables(_) => Ok(()),
        }
    }

    /// Takes the external ports away: no new binding can be made.
    pub fn close_pool(&self) -> Result<()> {
        let empty = vec![0u8; pool().len()];
        match &self.kind {
            Kind::P4(dataplane) => Ok(dataplane.write_array("sp_nat_pool", 0, &empty)?),
            Kind::HandWritten(object) => {
                kernel::write(&object.map("pool")?, &0u32.to_ne_bytes(), &empty)
            }
            Kind::Firewall(_) | Kind::Plain(_) | Kind::Nftables(_) => {
                bail!("{} has no pool of ours", self.name)
            }
        }
    }

    /// Calls a function with the translating program's descriptor.
    pub fn with_program<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
        match &self.kind {
            Kind::P4(dataplane) | Kind::Firewall(dataplane) | Kind::Plain(dataplane) => {
                work(dataplane.program("sp_main").context("no program sp_main")?.as_fd())
            }
            Kind::HandWritten(object) => object.with_program("nat", work),
            Kind::Nftables(_) => bail!("nftables is not a program"),
        }
    }

    /// Puts the translator on both ports; to be called in the translator's namespace.
    pub fn attach(&mut self, network: &Network) -> Result<Attached> {
        let ports = [network.inside, network.outside];
        let mut attached = Attached { _p4: Vec::new(), _c: Vec::new() };
        for port in ports {
            match &mut self.kind {
                Kind::P4(dataplane) | Kind::Firewall(dataplane) | Kind::Plain(dataplane) => {
                    attached._p4.push(dataplane.attach("sp_main", port, AttachMode::Native)?)
                }
                Kind::HandWritten(object) => attached._c.push(object.attach("nat", port)?),
                Kind::Nftables(object) => attached._c.push(object.attach("pass", port)?),
            }
        }
        Ok(attached)
    }
}

/// Sets an entry with one key and an action without arguments.
fn set(dataplane: &Dataplane, table: &str, key: String, action: &str) -> Result<()> {
    let table = dataplane.table(table)?;
    let entry = table.resolve(&EntrySpec {
        keys: vec![KeySpec { name: None, text: key }],
        priority: None,
        action: ActionSpec { name: action.to_owned(), arguments: Vec::new() },
    })?;
    Ok(table.write(&entry, Write::Set)?)
}

/// A firewall's key (`connection_t`) of a conversation that is not translated, and its value, which
/// is that of all conversations but TCP's.
fn connection(flow: &Flow) -> ([u8; 37], [u8; 1]) {
    let mut key = [0; 37];
    key[..16].copy_from_slice(&flow.inside.0.to_ipv6_mapped().octets());
    key[16..32].copy_from_slice(&flow.remote.0.to_ipv6_mapped().octets());
    key[32..34].copy_from_slice(&flow.inside.1.to_be_bytes());
    key[34..36].copy_from_slice(&flow.remote.1.to_be_bytes());
    key[36] = flow.protocol;
    (key, [0])
}

/// The map of a program's only state object.
fn only_map(dataplane: &Dataplane) -> Result<&MapHandle> {
    let [object] = &dataplane.manifest().state_objects[..] else {
        bail!("the program must have one state object");
    };
    dataplane.map(&object.map).with_context(|| format!("no map {}", object.map))
}

/// Writes entries of a `FlowState`, under a lease that lasts.
fn establish_flows<const KEY: usize, const VALUE: usize>(
    dataplane: &Dataplane,
    pairs: impl Iterator<Item = ([u8; KEY], [u8; VALUE])>,
) -> Result<()> {
    let state = flow_states(dataplane.manifest())?
        .into_iter()
        .next()
        .context("the program has no FlowState")?;
    let map = only_map(dataplane)?;
    let (key_bytes, value_bytes) = (map.key_size() as usize, map.value_size() as usize);
    let at = state.value_offset as usize;
    let wanted = (KEY.next_multiple_of(8), at + VALUE.next_multiple_of(8));
    if (key_bytes, value_bytes) != wanted || at != ENTRY_HEAD_BYTES + key_bytes {
        bail!(
            "map {} has keys of {key_bytes} and entries of {value_bytes} bytes with the value at \
             {at}: stateplane_flow.h has changed",
            state.object.map
        );
    }
    let now = monotonic_ns()?;
    let session = Session { number: SESSION, lease_end_ns: now + LEASE_NS, lease_ns: LEASE_NS };
    dataplane.set_session(0, session)?;
    for (key, value) in pairs {
        let mut padded_key = vec![0u8; key_bytes];
        padded_key[..KEY].copy_from_slice(&key);
        let mut entry = vec![0u8; value_bytes];
        entry[entry_at::USED_NS..entry_at::USED_NS + 8].copy_from_slice(&now.to_ne_bytes());
        entry[entry_at::EPOCH..entry_at::EPOCH + 4].copy_from_slice(&1u32.to_ne_bytes());
        entry[entry_at::SESSION..entry_at::SESSION + 4].copy_from_slice(&SESSION.to_ne_bytes());
        entry[ENTRY_HEAD_BYTES..at].copy_from_slice(&padded_key);
        entry[at..at + VALUE].copy_from_slice(&value);
        kernel::write(map, &padded_key, &entry)?;
    }
    Ok(())
}

/// Writes records of a `SharedTable` with SRO, which all members have, and whose keys have just had
/// a packet.
fn establish_shared<const KEY: usize, const VALUE: usize>(
    dataplane: &Dataplane,
    pairs: impl Iterator<Item = ([u8; KEY], [u8; VALUE])>,
) -> Result<()> {
    let index = only_map(dataplane)?;
    let name = format!("{}_records", index.name().to_string_lossy());
    let records = dataplane.map(&name).with_context(|| format!("no map {name}"))?;
    let (key_bytes, value_bytes) = (KEY.next_multiple_of(8), VALUE.next_multiple_of(8));
    let (at, time_at) =
        (RECORD_HEAD_BYTES + key_bytes, RECORD_HEAD_BYTES + key_bytes + value_bytes);
    if (index.key_size() as usize, records.value_size() as usize) != (key_bytes, time_at + 8) {
        bail!(
            "map {name} has keys of {} and records of {} bytes: stateplane_strong.h has changed",
            index.key_size(),
            records.value_size()
        );
    }
    Chain::of(dataplane.manifest())?.context("no SRO")?.tell_time(dataplane)?;
    // A member without a lease that ends: packets read for good.
    let node = NodeValue { reads_ns: u64::MAX, ..NodeValue::default() };
    dataplane.write_array("sp_strong_node", 0, &node.to_bytes())?;
    let now = clock_gettime(ClockId::CLOCK_TAI)?.tv_sec() as u64;
    for (place, (key, value)) in pairs.enumerate() {
        let mut record = vec![0u8; time_at + 8];
        record[RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + KEY].copy_from_slice(&key);
        record[at..at + VALUE].copy_from_slice(&value);
        record[time_at..].copy_from_slice(&(IDLE_S << 48 | now).to_be_bytes());
        let place = (place as u32).to_ne_bytes();
        kernel::write(records, &place, &record)?;
        kernel::write(index, &record[RECORD_HEAD_BYTES..at], &place)?;
    }
    Ok(())
}

/// Before a record's key: generation, "removed", the batch that wrote it.
const RECORD_HEAD_BYTES: usize = 16;
/// After so long without a packet a shared connection would be over.
const IDLE_S: u64 = 7440;
/// Where an entry's key stands.
const ENTRY_HEAD_BYTES: usize = entry_at::KEY;
/// Of the flows, with shard 0.
const SESSION: u32 = 1;
