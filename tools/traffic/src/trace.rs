//! A synthetic trace, packet by packet in the order of time, in memory for the flows that are open.

use crate::frame::{self, ACK, FIN, Headers, SMALLEST_FRAME_BYTES, SYN, TCP, UDP};
use crate::profile::{FIRST_PORT, Fault, Profile};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const LARGEST_FRAME_BYTES: usize = 1_500;
/// Frames are small (acknowledgements, requests), full, or anything between, with these shares: the
/// shape of packet sizes on links to the Internet.
const SMALL_SHARE: f64 = 0.45;
const FULL_SHARE: f64 = 0.35;
/// Services that flows go to, by protocol.
const TCP_SERVICES: [u16; 4] = [443, 80, 22, 8080];
const UDP_SERVICES: [u16; 3] = [443, 53, 123];
const NS_PER_S: f64 = 1e9;

/// A packet of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When, in ns since 1970.
    pub time_ns: u64,
    /// The flow's number, from 0 in the order of their beginnings.
    pub flow: u32,
    /// The whole Ethernet frame.
    pub frame: Vec<u8>,
}

/// A flow with packets to come. Ordered by time, then number, so that the order is total.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    next_ns: u64,
    number: u32,
    left: u64,
    gap_ns: u64,
    protocol: u8,
    remote: u32,
    service: u16,
    sequence: u32,
    first: bool,
}

/// The packets of a profile: an iterator.
pub struct Trace {
    profile: Profile,
    random: StdRng,
    /// Packets of each flow, in the order of their beginnings.
    counts: Vec<u64>,
    begun: u32,
    next_begin_ns: u64,
    end_ns: u64,
    open: BinaryHeap<Reverse<Open>>,
}

impl Trace {
    /// The trace of a profile.
    pub fn new(profile: Profile) -> Result<Trace, Fault> {
        profile.check()?;
        let mut random = StdRng::seed_from_u64(profile.seed);
        let mut counts = profile.packets_by_rank();
        counts.shuffle(&mut random);
        let lasts_ns = (f64::from(profile.flows) / profile.new_flows_per_s * NS_PER_S) as u64;
        let (next_begin_ns, end_ns) = (profile.start_ns, profile.start_ns.saturating_add(lasts_ns));
        Ok(Trace {
            profile,
            random,
            counts,
            begun: 0,
            next_begin_ns,
            end_ns,
            open: BinaryHeap::new(),
        })
    }

    /// What it was made from.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Exponentially distributed, as the gaps of a Poisson process.
    fn gap_ns(&mut self, mean_ns: f64) -> u64 {
        (-(1.0 - self.random.random::<f64>()).ln() * mean_ns) as u64
    }

    fn begin(&mut self) {
        let number = self.begun;
        let left = self.counts[number as usize];
        let room_ns = self.end_ns.saturating_sub(self.next_begin_ns);
        let tcp = self.random.random_bool(self.profile.tcp_share);
        let services: &[u16] = if tcp { &TCP_SERVICES } else { &UDP_SERVICES };
        let service = services[self.random.random_range(0..services.len())];
        self.open.push(Reverse(Open {
            next_ns: self.next_begin_ns,
            number,
            left,
            gap_ns: (self.profile.packet_gap_us * 1_000).min(room_ns / left.max(1)),
            protocol: if tcp { TCP } else { UDP },
            remote: self.random.random_range(0..self.profile.outside.hosts()),
            service,
            sequence: self.random.random(),
            first: true,
        }));
        self.begun += 1;
        let gap = self.gap_ns(NS_PER_S / self.profile.new_flows_per_s);
        self.next_begin_ns = self.next_begin_ns.saturating_add(gap);
    }

    fn frame_bytes(&mut self) -> usize {
        let draw = self.random.random::<f64>();
        if draw < SMALL_SHARE {
            SMALLEST_FRAME_BYTES
        } else if draw < SMALL_SHARE + FULL_SHARE {
            LARGEST_FRAME_BYTES
        } else {
            self.random.random_range(SMALLEST_FRAME_BYTES..=LARGEST_FRAME_BYTES)
        }
    }

    fn packet(&mut self, flow: &mut Open) -> Packet {
        let last = flow.left == 1;
        let control = flow.protocol == TCP && (flow.first || last);
        let frame_bytes = if control { SMALLEST_FRAME_BYTES } else { self.frame_bytes() };
        let flags = match (flow.first, last) {
            (true, _) => SYN,
            (false, true) => FIN | ACK,
            (false, false) => ACK,
        };
        let hosts = self.profile.inside.hosts();
        let headers = Headers {
            destination_mac: self.profile.destination_mac,
            source_mac: self.profile.source_mac,
            // Each (address, port) once: `check` saw to it that there are enough.
            source: (
                self.profile.inside.host(flow.number),
                FIRST_PORT + (flow.number / hosts) as u16,
            ),
            destination: (self.profile.outside.host(flow.remote), flow.service),
            protocol: flow.protocol,
            identification: flow.left as u16,
            sequence: flow.sequence,
            flags,
        };
        let mut bytes = vec![];
        frame::write(&headers, frame_bytes, &mut bytes);
        let sent = frame::payload_bytes(flow.protocol, frame_bytes) as u32;
        // RFC 9293 §3.4: SYN takes one number.
        flow.sequence = flow.sequence.wrapping_add(if flow.first { 1 } else { sent });
        flow.first = false;
        Packet { time_ns: flow.next_ns, flow: flow.number, frame: bytes }
    }
}

impl Iterator for Trace {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        while (self.begun as usize) < self.counts.len()
            && self.open.peek().is_none_or(|Reverse(first)| self.next_begin_ns <= first.next_ns)
        {
            self.begin();
        }
        let Reverse(mut flow) = self.open.pop()?;
        let packet = self.packet(&mut flow);
        flow.left -= 1;
        if flow.left > 0 {
            let gap = self.gap_ns(flow.gap_ns as f64);
            flow.next_ns = flow.next_ns.saturating_add(gap);
            self.open.push(Reverse(flow));
        }
        Some(packet)
    }
}
