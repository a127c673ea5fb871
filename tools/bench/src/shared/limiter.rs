//! Users whose limits four switches share (systems/swish/p4/limiter/limiter.p4): traffic whose rate
//! and split change, and what came through.

use crate::shared::SWITCHES;
use crate::shared::network::Network;
use crate::shared::plan::{Plan, Planned, Source};
use crate::shared::shares::{Limit, beside};
use crate::shared::traffic::{Live, run};
use anyhow::Result;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

/// Users.
pub const USERS: usize = 2;
/// Packets a second that a user may send.
pub const LIMIT_PPS: u32 = 5_000;
/// What is looked at.
pub const BIN: Duration = Duration::from_millis(200);
/// Of the traffic's frames.
const FRAME_BYTES: u32 = 64;
/// Packets of a burst: those of 5 ms, so that a bin may have 2.5 % more.
const BURST: u32 = 25;
/// A limit in bytes a millisecond.
const RATE: u32 = LIMIT_PPS * FRAME_BYTES / 1000;

/// Traffic for some time.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// What each user offers, over its limit.
    pub offered: f64,
    /// Which part of it takes each switch.
    pub split: [f64; SWITCHES],
    /// How long.
    pub bins: u32,
}

/// Splits: even, most at one switch, most at another one, all at one.
pub const SPLITS: [[f64; SWITCHES]; 4] =
    [[0.25; 4], [0.7, 0.1, 0.1, 0.1], [0.05, 0.05, 0.85, 0.05], [0.0, 1.0, 0.0, 0.0]];

/// What a user offered in a bin, and what came through, in packets.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Bin {
    /// Sent by the hosts.
    pub offered: u32,
    /// Of these, those that arrived.
    pub admitted: u32,
}

impl Bin {
    /// How far the admitted packets are from what the limit allows, as a part of the limit.
    pub fn error(&self) -> f64 {
        let limit = f64::from(LIMIT_PPS) * BIN.as_secs_f64();
        (f64::from(self.admitted) - f64::from(self.offered).min(limit)) / limit
    }
}

/// Each switch sends each user's packets evenly.
fn plan(phases: &[Phase]) -> Plan {
    let sources = (0..USERS).map(|number| {
        let address = u32::from(Ipv4Addr::new(10, 66, 0, 1)) + number as u32;
        Source { address, attacks: false, destinations: Default::default() }
    });
    let destination = u32::from(Ipv4Addr::new(10, 128, 0, 1));
    let packets = std::array::from_fn(|switch| {
        let (mut begin, mut packets) = (Duration::ZERO, vec![]);
        for phase in phases {
            let length = BIN * phase.bins;
            let rate = f64::from(LIMIT_PPS) * phase.offered * phase.split[switch];
            let count = (rate * length.as_secs_f64()).round() as u32;
            for source in 0..USERS {
                // (Users and switches take turns.)
                let turn = (source * SWITCHES + switch) as f64 / (USERS * SWITCHES) as f64;
                for number in 0..count {
                    let at = begin + length.mul_f64((f64::from(number) + turn) / f64::from(count));
                    packets.push(Planned { at, source, destination });
                }
            }
            begin += length;
        }
        packets.sort_by_key(|packet| packet.at);
        packets
    });
    let length = phases.iter().map(|phase| BIN * phase.bins).sum();
    Plan { sources: sources.collect(), packets, length }
}

/// The entry of each user in the program's table.
fn tables() -> String {
    let mut text = "[[table]]\nname = \"LimiterIngress.limits\"\n".to_owned();
    for user in 0..USERS {
        text += &format!(
            "[[table.entry]]\nkey = {{ \"h.ipv4.source\" = \"10.66.0.{}/32\" }}\n\
             action = \"LimiterIngress.limit\"\n\
             arguments = {{ user = {user}, rate = {RATE}, burst = {} }}\n",
            user + 1,
            BURST * FRAME_BYTES
        );
    }
    text
}

/// How switches know how much of a limit others have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Counters with SDW, and windows of so many us.
    Windows(u32),
    /// Counters with EWO.
    Eventual,
    /// They do not: a controller gives each a part of the limit, and looks once in this time.
    Controller(Duration),
}

/// Sends the phases' packets; the bins of each user.
///
/// # Errors
/// The lab does not come up, or a socket fails.
pub fn limit(stateplane: &Path, way: Way, phases: &[Phase]) -> Result<Vec<Vec<Bin>>> {
    let (mode, define, period_us) = match way {
        Way::Windows(period_us) => ("shared", "LIMITER_SDW", period_us),
        Way::Eventual => ("shared", "LIMITER_EWO", 2_000),
        Way::Controller(_) => ("alone", "LIMITER_LOCAL", 2_000),
    };
    let vars = [
        ("program", "limiter".to_owned()),
        ("define", define.to_owned()),
        ("period_us", period_us.to_string()),
        ("tables", tables()),
    ];
    let network = Network::up(stateplane, mode, &vars)?;
    let send = || run(&network, &plan(phases), &Live::default());
    let limits = [Limit { rate: RATE, burst: BURST * FRAME_BYTES }; USERS];
    let ledger = match way {
        Way::Controller(period) => beside(&network, &limits, period, send)?,
        Way::Windows(_) | Way::Eventual => send()?,
    };
    let begin = ledger.iter().flatten().map(|packet| packet.at_ns).min().unwrap_or(0);
    let count: u32 = phases.iter().map(|phase| phase.bins).sum();
    let mut bins = vec![vec![Bin::default(); count as usize]; USERS];
    for packet in ledger.iter().flatten() {
        let at = (u128::from(packet.at_ns - begin) / BIN.as_nanos()) as usize;
        let Some(bin) = bins[packet.source].get_mut(at) else { continue };
        bin.offered += 1;
        bin.admitted += u32::from(packet.arrived);
    }
    Ok(bins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_offers_what_it_says() {
        let phases = [
            Phase { offered: 0.5, split: SPLITS[1], bins: 2 },
            Phase { offered: 3.0, split: SPLITS[3], bins: 5 },
        ];
        let plan = plan(&phases);
        let count = |from: Duration, to: Duration| {
            let all = plan.packets.iter().flatten();
            all.filter(|it| it.source == 1 && (from..to).contains(&it.at)).count()
        };
        assert_eq!(count(Duration::ZERO, BIN * 2), 1000);
        assert_eq!(count(BIN * 2, plan.length), 15_000);
        assert!(plan.packets[0].is_sorted_by_key(|it| it.at));
        assert_eq!(Bin { offered: 2000, admitted: 1050 }.error(), 0.05);
        assert_eq!(Bin { offered: 500, admitted: 450 }.error(), -0.05);
    }
}
