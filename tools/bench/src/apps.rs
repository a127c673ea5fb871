//! The applications that experiments run: one entry each.

use crate::experiments::Context;
use crate::labs::{Running, Wanted};
use crate::line::Line;
use crate::packets::{self, KV_PORT, Signal, UDP_PAYLOAD, UPLINK_PAYLOAD};
use crate::probe::{Path, Shape};
use crate::trace::Played;
use anyhow::{Context as _, Result};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::net::Ipv4Addr;

const INSIDE: u32 = u32::from_be_bytes([10, 1, 0, 10]);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const MANAGER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 9);
const STATION: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 21);
const VIRTUAL: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 10), 80);
const BACKEND_PORT: u16 = 8_080;
const USERS: u32 = u32::from_be_bytes([100, 64, 1, 0]);
/// Where measured packets go; the programs that count know them by it.
pub const PORT: u16 = 7;
/// Flows of one host.
const FLOWS_A_HOST: u32 = 16;
/// Setup packets a second: no faster than a store takes new flows.
const SETUP_RATE: f64 = 5_000.0;
/// RedPlane §7.1: one signalling packet for every 17 data packets.
const DATA_A_SIGNALLING: u32 = 17;

/// What is sent through an application.
pub struct Traffic {
    /// Sent before anything is measured.
    pub setup: Vec<Vec<u8>>,
    /// Sent again and again.
    pub frames: Vec<Vec<u8>>,
}

/// An application with what experiments need to know of it.
pub struct App {
    /// As experiments show it.
    pub name: &'static str,
    /// Its folder in `systems/redplane/p4`, and program.
    pub folder: &'static str,
    /// Its lab, with mode `plain` besides the next.
    pub lab: &'static str,
    /// The lab's mode with fault tolerance.
    pub mode: &'static str,
    /// Values for the lab's `${name}`, with fault tolerance.
    pub vars: &'static [(&'static str, &'static str)],
    /// The same, for a switch whose updates travel with their packets, as the paper's do.
    pub wrapped: &'static [(&'static str, &'static str)],
    /// The macro that takes fault tolerance away.
    pub local: &'static str,
    /// The macro that sets how much state a switch holds, and how many entries a flow takes.
    pub size: Option<(&'static str, u32)>,
    /// Reads mostly: fault tolerance must cost nothing (RedPlane §7).
    pub read_centric: bool,
    /// Where packets for round trips have their stamp; none if they do not come back.
    pub shape: Option<Shape>,
    /// The way of its packets through the switch that is measured.
    pub path: Path<'static>,
    /// UDP port, of either end, of packets that have been through.
    pub counted_port: u16,
    /// Whether any UDP packets from inside to outside will do: then a trace can be played.
    pub any_udp: bool,
    /// Whether a frame of the traffic makes an update.
    pub updates: fn(&[u8]) -> bool,
    /// The traffic of so many flows; the number is a seed.
    pub traffic: fn(u32, u64) -> Traffic,
    /// RedPlane's figures: latency (Fig. 9), share of bandwidth (Fig. 10), throughput ratio (Fig.
    /// 12).
    pub paper: [&'static str; 3],
}

/// The counter whose updates only one store has (RedPlane's Figure 9: "w/o chain").
pub const WITHOUT_CHAIN: [App; 1] = [App {
    name: "sync counter, one store",
    vars: &[("commit", "batch"), ("fast_off", ""), ("chain_length", "1")],
    wrapped: &[("commit", "wrap"), ("chain_length", "1")],
    paper: ["+8 µs", "", ""],
    ..SYNC_COUNTER
}];

const SYNC_COUNTER: App = App {
    name: "sync counter",
    folder: "flow_counter",
    lab: "systems/redplane/lab/flow_counter.toml",
    mode: REPLICATED,
    vars: &[("commit", "batch"), ("fast_off", "")],
    wrapped: &[("commit", "wrap")],
    local: "COUNTER_LOCAL",
    size: Some(("COUNTER_FLOWS", 1)),
    read_centric: false,
    shape: Some(Shape::UDP),
    path: OUTWARD,
    counted_port: PORT,
    any_udp: true,
    updates: |_| true,
    traffic: udp,
    paper: ["+20 µs", "51.2 %", "about a half"],
};

/// All of them; who is not there (no lab file) is named, and misses its goals.
pub const ALL: &[App] = &[
    App {
        name: "NAT",
        folder: "nat",
        lab: "systems/redplane/lab/nat.toml",
        mode: REPLICATED,
        vars: &[],
        wrapped: &[],
        local: "NAT_LOCAL",
        size: Some(("NAT_ENTRIES", 2)),
        read_centric: true,
        shape: Some(Shape::UDP),
        path: OUTWARD,
        counted_port: PORT,
        any_udp: true,
        updates: |_| false,
        traffic: udp,
        paper: ["8 µs, as without", "about 0", "1"],
    },
    App {
        name: "firewall",
        folder: "firewall",
        lab: "systems/redplane/lab/firewall.toml",
        mode: REPLICATED,
        vars: &[],
        wrapped: &[],
        local: "FIREWALL_LOCAL",
        size: Some(("FIREWALL_CONNECTIONS", 1)),
        read_centric: true,
        shape: Some(Shape::UDP),
        path: OUTWARD,
        counted_port: PORT,
        any_udp: true,
        updates: |_| false,
        traffic: udp,
        paper: ["8 µs, as without", "about 0", "1"],
    },
    App {
        name: "load balancer",
        folder: "load_balancer",
        lab: "systems/redplane/lab/load_balancer.toml",
        mode: REPLICATED,
        vars: &[],
        wrapped: &[],
        local: "LOAD_BALANCER_LOCAL",
        size: Some(("LOAD_BALANCER_ENTRIES", 2)),
        read_centric: true,
        shape: Some(Shape::UDP),
        path: Path { near: "core", switch: "s1", far: "tor" },
        counted_port: BACKEND_PORT,
        any_udp: false,
        updates: |_| false,
        traffic: |flows, _| Traffic {
            setup: Vec::new(),
            frames: (0..flows).map(client_of_backend).collect(),
        },
        paper: ["8 µs, as without", "about 0", "1"],
    },
    App {
        name: "gateway",
        folder: "serving_gateway",
        lab: "systems/redplane/lab/serving_gateway.toml",
        mode: REPLICATED,
        vars: &[],
        wrapped: &[("commit", "wrap")],
        local: "SERVING_GATEWAY_LOCAL",
        size: Some(("SERVING_GATEWAY_USERS", 1)),
        read_centric: false,
        shape: Some(Shape {
            sent: UPLINK_PAYLOAD,
            reflected: UDP_PAYLOAD,
            collected: UPLINK_PAYLOAD,
        }),
        path: OUTWARD,
        counted_port: PORT,
        any_udp: false,
        updates: packets::is_signalling,
        traffic: gateway,
        paper: ["8 µs, as without", "12.8 %", "a little less"],
    },
    App {
        name: "heavy hitter",
        folder: "heavy_hitter",
        lab: "systems/redplane/lab/heavy_hitter.toml",
        mode: REPLICATED,
        vars: &[],
        wrapped: &[],
        local: "HEAVY_HITTER_LOCAL",
        size: None,
        read_centric: true,
        shape: Some(Shape::UDP),
        path: OUTWARD,
        counted_port: PORT,
        any_udp: true,
        updates: |_| false,
        traffic: udp,
        paper: ["8 µs, as without", "34 Mbit/s at 1 ms", "1"],
    },
    SYNC_COUNTER,
    App {
        name: "async counter",
        mode: ASYNCHRONOUS,
        vars: &[],
        wrapped: &[],
        // The draft's Figures 11 to 13; the printed paper has no asynchronous counter.
        paper: ["8 µs, as without", "11.8 %", "1"],
        ..SYNC_COUNTER
    },
    App {
        name: "key-value, 10 % updates",
        folder: "key_value",
        lab: "systems/redplane/lab/key_value.toml",
        mode: REPLICATED,
        vars: &[],
        wrapped: &[("commit", "wrap")],
        local: "KEY_VALUE_LOCAL",
        size: Some(("KEY_VALUE_KEYS", 1)),
        read_centric: false,
        shape: None,
        path: OUTWARD,
        counted_port: KV_PORT,
        any_udp: false,
        updates: packets::is_key_value_update,
        traffic: |keys, seed| key_value(keys, seed, 0.1),
        paper: ["", "", "Fig. 13"],
    },
];

/// The mode of labs with fault tolerance.
pub const REPLICATED: &str = "replicated";
/// The one in which packets do not wait for their updates.
pub const ASYNCHRONOUS: &str = "asynchronous";
/// From inside to outside: most applications' way.
const OUTWARD: Path = Path { near: "tor", switch: "s1", far: "core" };
/// The switch that is measured, in every lab.
pub const SWITCH: &str = "s1";
/// The router between it and the stores, in every lab.
pub const STORES_ROUTER: &str = "tor";

/// The folders of all, each once.
pub fn folders() -> Vec<&'static str> {
    let mut folders: Vec<&str> = ALL.iter().map(|app| app.folder).collect();
    folders.dedup();
    folders
}

/// An application by its folder; of several, the first.
///
/// # Errors
/// There is none.
pub fn named(folder: &str) -> Result<&'static App> {
    ALL.iter().find(|app| app.folder == folder).with_context(|| format!("no application {folder}"))
}

impl App {
    /// Whether its packets wait until their updates are stored.
    pub fn waits(&self) -> bool {
        !self.read_centric && self.mode != ASYNCHRONOUS
    }

    /// Its lab, with fault tolerance and each update in a message of its own.
    pub fn wrapped(&self) -> Wanted<'static> {
        Wanted { vars: self.wrapped, ..self.lab(true) }
    }

    /// Its lab, with or without fault tolerance.
    pub fn lab(&self, fault_tolerant: bool) -> Wanted<'static> {
        let mode = if fault_tolerant { self.mode } else { "plain" };
        let vars = if fault_tolerant { self.vars } else { &[] };
        Wanted { file: self.lab, mode, prefer: Some("s1"), vars }
    }

    /// Brings its lab up and sends its setup packets; the lab, and the traffic for it: that of a
    /// capture, if one is given and any packets will do.
    ///
    /// # Errors
    /// The lab does not come up, or setup packets cannot be sent.
    pub fn bring_up(
        &self,
        context: &Context,
        wanted: Wanted,
        flows: u32,
        captured: Option<&Played>,
    ) -> Result<(Running, Traffic)> {
        let lab = Running::up(context, wanted)?;
        let traffic = match captured.filter(|_| self.any_udp) {
            Some(played) => Traffic { setup: Vec::new(), frames: played.frames.clone() },
            None => (self.traffic)(flows, 1),
        };
        self.prepare(context, &lab, &traffic.setup)?;
        Ok((lab, traffic))
    }

    /// Sends packets twice, slowly: what was lost the first time is there after the second.
    ///
    /// # Errors
    /// They cannot be sent.
    pub fn prepare(&self, context: &Context, lab: &Running, frames: &[Vec<u8>]) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.line(context, lab, frames)?.send(2 * frames.len() as u64, SETUP_RATE)
    }

    /// A line through the switch of its lab that plays these frames.
    ///
    /// # Errors
    /// As [`Line::new`].
    pub fn line(&self, context: &Context, lab: &Running, frames: &[Vec<u8>]) -> Result<Line> {
        let line = Line::new(&context.places, lab, self.path, frames, self.counted_port)?;
        Ok(if self.waits() { line } else { line.clocked() })
    }

    /// Whether the repository has its program and lab.
    pub fn there(&self, root: &std::path::Path) -> bool {
        root.join(self.lab).exists() && root.join("systems/redplane/p4").join(self.folder).is_dir()
    }
}

fn udp(flows: u32, _seed: u64) -> Traffic {
    let frame = |flow: u32| {
        let host = Ipv4Addr::from(INSIDE + flow / FLOWS_A_HOST % 200);
        // Past 3,200 flows, hosts have more ports.
        let port =
            20_000 + (flow % FLOWS_A_HOST + flow / (200 * FLOWS_A_HOST) * FLOWS_A_HOST) as u16;
        packets::udp((host, port), (OUTSIDE, PORT), 64)
    };
    Traffic { setup: Vec::new(), frames: (0..flows).map(frame).collect() }
}

/// A packet of a client, one a flow, to the virtual address.
fn client_of_backend(flow: u32) -> Vec<u8> {
    let client = Ipv4Addr::from(u32::from(OUTSIDE) + flow / FLOWS_A_HOST % 200);
    let port = 20_000 + (flow % FLOWS_A_HOST + flow / (200 * FLOWS_A_HOST) * FLOWS_A_HOST) as u16;
    packets::udp((client, port), VIRTUAL, 64)
}

fn gateway(users: u32, _seed: u64) -> Traffic {
    let user = |n: u32| Ipv4Addr::from(USERS + n);
    let signal = |n: u32, signal, sequence| {
        packets::signalling(MANAGER, GATEWAY, signal, sequence, user(n), n + 1, STATION)
    };
    // A request with the number of the last is a repeated one, and one a little older is late:
    // neither changes anything. So the numbers jump to and fro by half their range, and each
    // signalling packet does its work however often the list is played.
    const HALF: u32 = 1 << 23;
    let mut frames = Vec::new();
    for sequence in [2, 2 + HALF] {
        for n in 0..users {
            frames.push(packets::uplink(
                STATION,
                GATEWAY,
                n + 1,
                (user(n), 1_000),
                (OUTSIDE, PORT),
                64,
            ));
            if n % DATA_A_SIGNALLING == 0 {
                frames.push(signal(n, Signal::Modify, sequence));
            }
        }
    }
    Traffic { setup: (0..users).map(|n| signal(n, Signal::Create, 1)).collect(), frames }
}

/// Requests for uniformly distributed keys, of which this share are updates.
pub fn key_value(keys: u32, seed: u64, updates: f64) -> Traffic {
    let mut random = StdRng::seed_from_u64(seed);
    let client = |n: u32| (Ipv4Addr::from(INSIDE + n % 200), 1_024 + (n / 200) as u16);
    let setup = (0..keys)
        .map(|key| packets::key_value(client(key), GATEWAY, true, u64::from(key), 0))
        .collect();
    let requests = (0..4 * keys.max(256)).map(|n| {
        let key = random.random_range(0..keys.max(1));
        packets::key_value(
            client(n),
            GATEWAY,
            random.random_bool(updates),
            u64::from(key),
            u64::from(n),
        )
    });
    Traffic { setup, frames: requests.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn flows_are_different_flows() {
        let frames: HashSet<Vec<u8>> = udp(10_000, 1).frames.into_iter().collect();
        assert_eq!(frames.len(), 10_000);
        let traffic = key_value(1_000, 1, 0.25);
        let updates =
            traffic.frames.iter().filter(|frame| packets::is_key_value_update(frame)).count();
        assert!((850..1_150).contains(&updates), "{updates} of 4000");
    }
}
