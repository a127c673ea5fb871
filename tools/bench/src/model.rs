//! The analytical model of the state protocol's bandwidth: what messages a switch's traffic makes,
//! by systems/redplane/docs/state-protocol.md and systems/redplane/docs/snapshots.md alone. It is
//! computed, not fitted; experiments compare it with what was on the wire.

use crate::trace::numbers_by_flow;
use anyhow::{Context, Result};
use lab::Lab;
use manifest::Manifest;
use serde::Serialize;
use state_protocol::objects::{Consistency, flow_states, snapshot_states};
use wire::{Report, Reporter, SwitchLoad};

/// Ethernet, IPv4, UDP, and the protocol's header.
pub const MESSAGE_BYTES: f64 = 14.0 + 20.0 + 8.0 + 64.0;
/// What precedes a snapshot part's slots.
const PART_HEAD_BYTES: f64 = 16.0;
/// Slots of a part.
const PART_BYTES: f64 = 1280.0;
/// The set of bits in SNAPSHOT_ACK.
const PART_SET_BYTES: f64 = 8.0;
/// A session's heartbeats in each lease.
const HEARTBEATS_A_LEASE: f64 = 3.0;

/// A switch's `REPORT`s to each controller in each second, and as many `HEARD`s back
/// (core/controller/docs/protocol.md).
const REPORTS_A_SECOND: f64 = 20.0;
/// The least time between two UPDATEs of a flow that the generator sends (`resend_timeout_us` of a
/// switch's configuration, its default).
const GENERATED_EVERY_S: f64 = 0.005;

/// An application and its cluster, as far as bandwidth goes.
#[derive(Clone, Debug, Serialize)]
pub struct Model {
    /// Of the program's state object, on the wire.
    pub key_bytes: f64,
    /// The same.
    pub value_bytes: f64,
    /// Share of the packets that are updates.
    pub updates: f64,
    /// Mean length of those packets, as they come in and as they leave: each travels with its
    /// update and back.
    pub update_packet_bytes: f64,
    /// If the generator sends updates, without the packets, each flow's at most once in 5 ms, with
    /// its newest value: for each flow, which of the updates are its own. None: each packet travels
    /// with its update.
    #[serde(skip)]
    pub asynchronous_flows: Option<Vec<Vec<usize>>>,
    /// Controllers that hear of the switch.
    pub controllers: f64,
    /// Bytes of a `REPORT` behind its header.
    pub report_bytes: f64,
    /// Shards, each with a session of the switch.
    pub shards: f64,
    /// Of the sessions, in seconds.
    pub lease_s: f64,
    /// Bytes of messages of one snapshot of one key, both ways, and seconds between two; none
    /// without snapshots.
    pub snapshot: Option<(f64, f64)>,
    /// Keys of which snapshots are taken: sketches.
    pub sketches: f64,
}

/// The JSON of a switch's `REPORT`, as long as it is once there are views and flows (numbers have a
/// digit more or less).
fn report_bytes(lab: &str, program: &str, shards: u16) -> Result<f64> {
    let load = SwitchLoad {
        name: format!("{lab}-s1"),
        program: program.to_owned(),
        ports_attached: 3,
        ports: 3,
        sessions: u32::from(shards),
        owned: 1_000,
        pending: 0,
        generator_lag_us: Some(100),
    };
    let reporter = Reporter::Switch { switch_id: 1 };
    let (machine, replicas, load) = (String::new(), Vec::new(), Some(load));
    let report = Report {
        reporter,
        version: 10,
        shards,
        heard_ms: 0,
        accepted: false,
        machine,
        replicas,
        load,
    };
    Ok(serde_json::to_string(&report)?.len() as f64)
}

/// How many updates of a flow leave in each second, if those with these numbers, of so many that
/// are played round and round, are its own.
fn generated_a_second(own: &[usize], all: usize, updates_per_s: f64) -> f64 {
    let (mut sent, mut next_s) = (0u32, f64::NEG_INFINITY);
    for number in own {
        let at_s = *number as f64 / updates_per_s;
        // One that waits has the newest value when it leaves.
        if at_s >= next_s - GENERATED_EVERY_S {
            next_s = next_s.max(at_s) + GENERATED_EVERY_S;
            sent += 1;
        }
    }
    (f64::from(sent) * updates_per_s / all.max(1) as f64).min(1.0 / GENERATED_EVERY_S)
}

fn number(lab: &Lab, name: &str) -> Result<f64> {
    let text =
        lab.topology().vars.get(name).with_context(|| format!("the lab has no variable {name}"))?;
    text.parse().with_context(|| format!("the lab's {name}: {text:?}"))
}

impl Model {
    /// The model of what a lab's switches run: `folder` is the program's name, and its updates are
    /// frames for which `updates` holds.
    ///
    /// # Errors
    /// The lab has no such program, or lacks a variable.
    pub fn of(
        lab: &Lab,
        folder: &str,
        frames: &[Vec<u8>],
        updates: fn(&[u8]) -> bool,
    ) -> Result<Model> {
        let manifest = Manifest::read(&lab.dir().join(format!("{folder}.json")))?;
        let updating: Vec<&Vec<u8>> = frames.iter().filter(|frame| updates(frame)).collect();
        let bytes: usize = updating.iter().map(|frame| frame.len()).sum();
        let flows = flow_states(&manifest)?;
        let flow = flows.first();
        let asynchronous =
            flow.is_some_and(|flow| flow.settings.consistency == Consistency::Asynchronous);
        let shards = number(lab, "shards")?;
        let snapshots = snapshot_states(&manifest)?;
        let snapshot = snapshots.iter().find(|state| state.settings.period_us != 0).map(|state| {
            let slots = f64::from(state.slots * state.slot_bytes);
            let parts = (slots / PART_BYTES).ceil();
            let (key, period) =
                (f64::from(state.object.key_bytes), f64::from(state.settings.period_us) / 1e6);
            (
                parts * (2.0 * (MESSAGE_BYTES + key) + PART_HEAD_BYTES + PART_SET_BYTES) + slots,
                period,
            )
        });
        Ok(Model {
            key_bytes: flow.map_or(0.0, |it| f64::from(it.object.key_bytes)),
            value_bytes: flow.map_or(0.0, |it| f64::from(it.value_bytes)),
            updates: updating.len() as f64 / frames.len().max(1) as f64,
            update_packet_bytes: bytes as f64 / updating.len().max(1) as f64,
            asynchronous_flows: asynchronous.then(|| numbers_by_flow(updating.iter().copied())),
            controllers: lab
                .topology()
                .node
                .keys()
                .filter(|node| node.starts_with("controller"))
                .count() as f64,
            report_bytes: report_bytes(lab.name(), folder, shards as u16)?,
            shards,
            lease_s: number(lab, "lease_ms")? / 1e3,
            snapshot,
            sketches: if snapshot.is_some() { 1.0 } else { 0.0 },
        })
    }

    /// UPDATE and UPDATE_ACK, both with the packet, or both without.
    fn bytes_an_update(&self) -> f64 {
        let packet = if self.asynchronous_flows.is_some() { 0.0 } else { self.update_packet_bytes };
        2.0 * (MESSAGE_BYTES + self.key_bytes + packet) + self.value_bytes
    }

    /// Updates that leave in each second, at a rate of packets.
    fn updates_a_second(&self, packets_per_s: f64) -> f64 {
        let updates = self.updates * packets_per_s;
        match &self.asynchronous_flows {
            None => updates,
            Some(flows) => {
                let all = flows.iter().map(Vec::len).sum();
                flows.iter().map(|own| generated_a_second(own, all, updates)).sum()
            }
        }
    }

    /// Messages for each second, in bytes, however much traffic there is: heartbeats, reports and
    /// snapshots.
    pub fn bytes_a_second(&self) -> f64 {
        let heartbeats = self.heartbeats_a_second() * 2.0 * MESSAGE_BYTES;
        let reports =
            self.controllers * REPORTS_A_SECOND * (2.0 * MESSAGE_BYTES + self.report_bytes);
        heartbeats
            + reports
            + self.snapshot.map_or(0.0, |(bytes, period_s)| self.sketches * bytes / period_s)
    }

    /// Reports that each controller hears from so many switches, in each second.
    pub fn reports_a_second(switches: f64) -> f64 {
        switches * REPORTS_A_SECOND
    }

    /// Of one switch, to all shards.
    pub fn heartbeats_a_second(&self) -> f64 {
        self.shards * HEARTBEATS_A_LEASE / self.lease_s
    }

    /// All of it, at a rate of packets.
    pub fn bytes_per_s(&self, packets_per_s: f64) -> f64 {
        self.bytes_an_update() * self.updates_a_second(packets_per_s) + self.bytes_a_second()
    }

    /// Messages' share of all bytes, in percent, of this many switches that forward packets of this
    /// length in and out.
    pub fn share_percent(&self, switches: f64, packets_per_s: f64, frame_bytes: f64) -> f64 {
        let messages = switches * self.bytes_per_s(packets_per_s);
        100.0 * messages / (messages + switches * packets_per_s * 2.0 * frame_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_and_a_sketch_by_hand() {
        let counter = Model {
            key_bytes: 13.0,
            value_bytes: 8.0,
            updates: 1.0,
            update_packet_bytes: 64.0,
            asynchronous_flows: None,
            controllers: 0.0,
            report_bytes: 0.0,
            shards: 8.0,
            lease_s: 0.25,
            snapshot: None,
            sketches: 0.0,
        };
        // UPDATE 106 + 13 + 8 + 64, UPDATE_ACK 106 + 13 + 64.
        assert_eq!(counter.bytes_an_update(), 374.0);
        assert_eq!(counter.bytes_a_second(), 96.0 * 212.0);
        // Three controllers, and each REPORT and HEARD with a header; 100 bytes of JSON.
        let controlled = Model { controllers: 3.0, report_bytes: 100.0, ..counter.clone() };
        assert_eq!(controlled.bytes_a_second(), 96.0 * 212.0 + 3.0 * 20.0 * 312.0);
        // An UPDATE 106 + 13 + 8 and its UPDATE_ACK 106 + 13, without the packet, no more than 200
        // a second and flow.
        let asynchronous = Model {
            asynchronous_flows: Some((0..1_024).map(|flow| vec![flow]).collect()),
            ..counter.clone()
        };
        assert_eq!(asynchronous.bytes_per_s(10_000.0), 10_000.0 * 246.0 + 96.0 * 212.0);
        assert_eq!(asynchronous.bytes_per_s(1e9), 204_800.0 * 246.0 + 96.0 * 212.0);
        // Ten updates of a flow within 5 ms: the first leaves, and the last of them; then come 90
        // flows with one each.
        let flows =
            std::iter::once((0..10).collect()).chain((10..100).map(|flow| vec![flow])).collect();
        let uneven = Model { asynchronous_flows: Some(flows), ..counter.clone() };
        assert!((uneven.bytes_per_s(2_000.0) - (20.0 * 92.0 * 246.0 + 96.0 * 212.0)).abs() < 1e-3);
        let sketch = Model {
            updates: 0.0,
            snapshot: Some((1_012.0, 0.001)),
            sketches: 3.0,
            ..counter.clone()
        };
        assert!((sketch.bytes_a_second() - (96.0 * 212.0 + 3_036_000.0)).abs() < 1e-3);
        assert_eq!(
            counter.share_percent(1.0, 1e6, 64.0),
            counter.share_percent(10_000.0, 1e6, 64.0)
        );
    }
}
