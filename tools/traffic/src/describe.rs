//! What a trace is like: sizes, flows, rates, and the exponent of the flows' sizes.

use crate::source::Source;
use serde::Serialize;
use std::collections::HashMap;

/// More flows are counted together as `flows_beyond`: memory stays bounded.
const MOST_FLOWS: usize = 4_000_000;
/// The exponent is fitted over so many of the largest flows: behind them sizes are a few packets,
/// and rounding hides the shape.
const FITTED_RANKS: usize = 1_000;
/// Upper ends of the frames' size classes, in bytes.
pub const SIZE_CLASSES: [usize; 6] = [64, 127, 255, 511, 1_023, 1_500];

/// What a trace is like.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Description {
    /// Packets.
    pub packets: u64,
    /// Bytes of all frames.
    pub bytes: u64,
    /// IPv4 flows: one direction of a conversation.
    pub flows: u64,
    /// Packets of flows beyond those that were told apart.
    pub packets_beyond: u64,
    /// Packets that are not TCP or UDP over IPv4.
    pub other_packets: u64,
    /// Flows that are TCP, of all.
    pub tcp_share: f64,
    /// From the first to the last packet, in seconds.
    pub duration_s: f64,
    /// New flows a second, over the duration.
    pub new_flows_per_s: f64,
    /// Packets by size: at most 64, 127, 255, 511, 1023, 1500 bytes, and more.
    pub sizes: [u64; SIZE_CLASSES.len() + 1],
    /// Packets of the largest flow, of all.
    pub largest_flow_share: f64,
    /// Packets of the largest hundredth of the flows, of all.
    pub largest_percent_share: f64,
    /// Negated slope of log(packets) over log(rank) for the largest flows; `None` below ten flows.
    pub zipf_exponent: Option<f64>,
}

type Key = [u8; 13];

/// The flow of a frame: addresses, ports, protocol.
fn key(frame: &[u8]) -> Option<Key> {
    let header_bytes = usize::from(frame.get(14)? & 0x0f) * 4;
    let is_ipv4 = frame[12..14] == [8, 0] && frame[14] >> 4 == 4;
    let protocol = *frame.get(23)?;
    if !is_ipv4 || ![6, 17].contains(&protocol) {
        return None;
    }
    let ports = frame.get(14 + header_bytes..14 + header_bytes + 4)?;
    let mut key = [protocol; 13];
    key[..8].copy_from_slice(frame.get(26..34)?);
    key[8..12].copy_from_slice(ports);
    Some(key)
}

/// Reads a source to its end. `each` sees every packet: its time in ns since 1970, and its frame.
pub fn describe<E: From<capture::Error>>(
    source: &mut Source,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<Description, E> {
    let mut found = Description::default();
    let mut flows: HashMap<Key, u64> = HashMap::new();
    let (mut first_ns, mut last_ns) = (u64::MAX, 0);
    let mut frame = vec![];
    while let Some(time_ns) = source.next_into(&mut frame)? {
        each(time_ns, &frame)?;
        (first_ns, last_ns) = (first_ns.min(time_ns), last_ns.max(time_ns));
        found.packets += 1;
        found.bytes += frame.len() as u64;
        found.sizes[SIZE_CLASSES
            .iter()
            .position(|most| frame.len() <= *most)
            .unwrap_or(SIZE_CLASSES.len())] += 1;
        let Some(key) = key(&frame) else {
            found.other_packets += 1;
            continue;
        };
        let room = flows.len() < MOST_FLOWS;
        match flows.get_mut(&key) {
            Some(count) => *count += 1,
            None if room => drop(flows.insert(key, 1)),
            None => found.packets_beyond += 1,
        }
    }
    found.flows = flows.len() as u64;
    found.duration_s = last_ns.saturating_sub(first_ns.min(last_ns)) as f64 / 1e9;
    summarise(&mut found, &flows);
    Ok(found)
}

fn summarise(found: &mut Description, flows: &HashMap<Key, u64>) {
    if flows.is_empty() {
        return;
    }
    found.tcp_share = flows.keys().filter(|key| key[12] == 6).count() as f64 / flows.len() as f64;
    if found.duration_s > 0.0 {
        found.new_flows_per_s = flows.len() as f64 / found.duration_s;
    }
    let mut counts: Vec<u64> = flows.values().copied().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let share = |count: u64| count as f64 / found.packets as f64;
    found.largest_flow_share = share(counts[0]);
    found.largest_percent_share = share(counts[..counts.len().div_ceil(100)].iter().sum());
    found.zipf_exponent = exponent(&counts[..counts.len().min(FITTED_RANKS)]);
}

/// Least squares of ln(packets) over ln(rank), each rank weighted by 1/rank: in logarithms the
/// large ranks lie dense.
fn exponent(counts: &[u64]) -> Option<f64> {
    if counts.len() < 10 {
        return None;
    }
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (at, count) in counts.iter().enumerate() {
        let rank = (at + 1) as f64;
        let (weight, x, y) = (1.0 / rank, rank.ln(), (*count as f64).ln());
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    let below = w * wxx - wx * wx;
    (below > 0.0).then(|| -(w * wxy - wx * wy) / below)
}
