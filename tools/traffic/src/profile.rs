//! What a synthetic trace is to be like.

use serde::Serialize;
use std::net::Ipv4Addr;
use std::str::FromStr;
use thiserror::Error;

/// The most flows in one trace: a flow takes 8 bytes of memory while the trace is made.
pub const MOST_FLOWS: u32 = 50_000_000;
/// The lowest source port: below are services.
pub(crate) const FIRST_PORT: u16 = 1_024;
const PORTS: u64 = 65_536 - FIRST_PORT as u64;

/// IPv4 addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Subnet {
    /// The first address.
    pub network: Ipv4Addr,
    /// Bits in common.
    pub length: u8,
}

impl Subnet {
    /// How many addresses hosts can have: all but the first and the last.
    pub fn hosts(&self) -> u32 {
        ((1u64 << (32 - u32::from(self.length.min(32)))) as u32).saturating_sub(2).max(1)
    }

    /// The `number`th host, from 0, counted around.
    pub fn host(&self, number: u32) -> Ipv4Addr {
        let first = if self.length >= 31 { 0 } else { 1 };
        Ipv4Addr::from(u32::from(self.network).wrapping_add(number % self.hosts() + first))
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let fault = || format!("{text:?} is not a subnet; write it as 10.1.0.0/16");
        let (network, length) = text.split_once('/').ok_or_else(fault)?;
        let network: Ipv4Addr = network.parse().map_err(|_| fault())?;
        let length: u8 = length.parse().map_err(|_| fault())?;
        if !(1..=32).contains(&length) {
            return Err(fault());
        }
        let mask = u32::MAX << (32 - u32::from(length));
        Ok(Subnet { network: Ipv4Addr::from(u32::from(network) & mask), length })
    }
}

/// A synthetic trace's properties. The same profile gives the same trace, byte by byte.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// What all draws come from.
    pub seed: u64,
    /// How many flows there are.
    pub flows: u32,
    /// How many packets they have together; at least one each.
    pub packets: u64,
    /// The flow of rank r has packets in proportion to r to the power of minus this (1 and a little
    /// in backbone traces); 0: all alike.
    pub zipf_exponent: f64,
    /// New flows a second: a Poisson process.
    pub new_flows_per_s: f64,
    /// Mean time between a flow's packets in microseconds; flows that would outlast the trace's
    /// last new flow go faster.
    pub packet_gap_us: u64,
    /// How many of the flows are TCP, 0 to 1; the rest is UDP.
    pub tcp_share: f64,
    /// Where flows begin: each (address, port) has one flow.
    pub inside: Subnet,
    /// Where they go.
    pub outside: Subnet,
    /// Ethernet destination.
    pub destination_mac: [u8; 6],
    /// Ethernet source.
    pub source_mac: [u8; 6],
    /// The first flow's start, in ns since 1970.
    pub start_ns: u64,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            seed: 1,
            flows: 10_000,
            packets: 1_000_000,
            zipf_exponent: 1.1,
            new_flows_per_s: 2_000.0,
            packet_gap_us: 2_000,
            tcp_share: 0.8,
            inside: Subnet { network: Ipv4Addr::new(10, 1, 0, 0), length: 16 },
            outside: Subnet { network: Ipv4Addr::new(198, 51, 100, 0), length: 24 },
            destination_mac: [0x02, 0, 0, 0, 0, 2],
            source_mac: [0x02, 0, 0, 0, 0, 1],
            start_ns: 0,
        }
    }
}

/// A profile that no trace can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {reason}")]
pub struct Fault {
    /// The field of [`Profile`].
    pub field: &'static str,
    /// What is wrong, and what to write.
    pub reason: String,
}

impl Profile {
    /// Says what is wrong with the profile, if anything is.
    pub fn check(&self) -> Result<(), Fault> {
        let require = |holds: bool, field, reason: &dyn Fn() -> String| {
            if holds { Ok(()) } else { Err(Fault { field, reason: reason() }) }
        };
        let most = (u64::from(self.inside.hosts()) * PORTS).min(u64::from(MOST_FLOWS)) as u32;
        require((1..=most).contains(&self.flows), "flows", &|| {
            format!(
                "{} is out of range; write 1 to {most} (what `inside` has addresses and ports for)",
                self.flows
            )
        })?;
        require(self.packets >= u64::from(self.flows), "packets", &|| {
            format!(
                "{} is less than one for each of {} flows; write more",
                self.packets, self.flows
            )
        })?;
        require((0.0..=4.0).contains(&self.zipf_exponent), "zipf_exponent", &|| {
            format!("{} is out of range; write 0 to 4", self.zipf_exponent)
        })?;
        require((0.001..=1e9).contains(&self.new_flows_per_s), "new_flows_per_s", &|| {
            format!("{} is out of range; write 0.001 to 1000000000", self.new_flows_per_s)
        })?;
        require((0.0..=1.0).contains(&self.tcp_share), "tcp_share", &|| {
            format!("{} is out of range; write 0 to 1", self.tcp_share)
        })
    }

    /// How many packets each rank has, largest first: each one, and of the rest its share. Their
    /// sum is `packets`.
    pub(crate) fn packets_by_rank(&self) -> Vec<u64> {
        let weight = |rank: u32| f64::from(rank).powf(-self.zipf_exponent);
        let total: f64 = (1..=self.flows).map(weight).sum();
        let rest = self.packets.saturating_sub(u64::from(self.flows)) as f64;
        let (mut before, mut sum) = (0u64, 0.0);
        let mut counts: Vec<u64> = (1..=self.flows)
            .map(|rank| {
                // Rounded sums, not rounded shares: so nothing is lost in the rounding.
                sum += weight(rank);
                let until = (rest * (sum / total)).round() as u64;
                1 + std::mem::replace(&mut before, until).abs_diff(until)
            })
            .collect();
        // Floating point may end a packet short.
        let missing = self.packets.saturating_sub(counts.iter().sum());
        if let Some(first) = counts.first_mut() {
            *first += missing;
        }
        counts
    }
}
