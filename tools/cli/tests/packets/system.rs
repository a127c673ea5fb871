//! What stands between the ends: an application or nftables, and who is who there.

use super::super::common::{TestLab, json, wait_for};
use super::packet::{ICMP, ICMP6};
use super::verdict::Name;
use super::wire::Place;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is done with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum App {
    Nat,
    Firewall,
    Balancer,
    Gateway,
}

/// Something that the suite is run through.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Of `tools/lab/topologies/edge.toml`.
    pub mode: &'static str,
    pub app: App,
    /// What nftables has for it; none: it is that.
    pub reference: Option<&'static str>,
}

pub const SYSTEMS: [System; 9] = [
    System { mode: "nft_nat", app: App::Nat, reference: None },
    System { mode: "nat", app: App::Nat, reference: Some("nft_nat") },
    System { mode: "nat_local", app: App::Nat, reference: Some("nft_nat") },
    System { mode: "nft_firewall", app: App::Firewall, reference: None },
    System { mode: "firewall", app: App::Firewall, reference: Some("nft_firewall") },
    System { mode: "nft_balancer", app: App::Balancer, reference: None },
    System { mode: "load_balancer", app: App::Balancer, reference: Some("nft_balancer") },
    System { mode: "nft_router", app: App::Gateway, reference: None },
    System { mode: "serving_gateway", app: App::Gateway, reference: Some("nft_router") },
];

pub const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub const VIRTUAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Of the serving gateway: the end of the tunnels.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const MANAGER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 9);
/// Where servers listen; through the firewall inwards, and at the virtual address: 80.
pub const SERVER_PORT: u16 = 7000;

pub fn host(place: Place) -> Ipv4Addr {
    match place {
        Place::In2 => Ipv4Addr::new(10, 1, 1, 10),
        _ => Ipv4Addr::new(10, 1, 0, 10),
    }
}

pub fn host_ipv6(place: Place) -> Ipv6Addr {
    let subnet = if place == Place::In2 { 1 } else { 0 };
    Ipv6Addr::new(0x2001, 0xdb8, 1, subnet, 0, 0, 0, 0x10)
}

pub const REMOTE_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x10);

fn user(place: Place) -> Ipv4Addr {
    if place == Place::In2 { Ipv4Addr::new(100, 64, 2, 1) } else { Ipv4Addr::new(100, 64, 1, 1) }
}

fn station(place: Place) -> Ipv4Addr {
    if place == Place::In2 { Ipv4Addr::new(10, 1, 1, 22) } else { Ipv4Addr::new(10, 1, 0, 21) }
}

fn uplink(place: Place) -> u32 {
    if place == Place::In2 { 0x1002 } else { 0x1001 }
}

impl System {
    pub fn is_nftables(&self) -> bool {
        self.reference.is_none()
    }

    /// Where who begins a conversation is.
    pub fn client_place(&self) -> Place {
        if self.app == App::Balancer { Place::Router } else { Place::In1 }
    }

    pub fn client(&self, place: Place) -> IpAddr {
        IpAddr::V4(match (self.app, place) {
            (_, Place::Router) => REMOTE,
            (App::Gateway, place) => user(place),
            (_, place) => host(place),
        })
    }

    /// Whom clients address.
    pub fn service(&self) -> (IpAddr, u16) {
        match self.app {
            App::Balancer => (IpAddr::V4(VIRTUAL), 80),
            _ => (IpAddr::V4(REMOTE), SERVER_PORT),
        }
    }

    /// An inside address as the outside knows it, and a port where nobody has begun anything.
    pub fn inside_target(&self) -> (IpAddr, u16) {
        match self.app {
            App::Nat => (IpAddr::V4(EXTERNAL), 1999),
            App::Firewall => (IpAddr::V4(host(Place::In1)), 81),
            App::Balancer => (IpAddr::V4(VIRTUAL), 80),
            App::Gateway => (IpAddr::V4(user(Place::In1)), 81),
        }
    }

    /// The tunnel that a packet from `place` has to be sent in: from, to, TEID.
    pub fn tunnel(&self, place: Place, source: IpAddr) -> Option<(Ipv4Addr, Ipv4Addr, u32)> {
        let IpAddr::V4(source) = source else { return None };
        let of_user =
            self.app == App::Gateway && !self.is_nftables() && source.octets()[..2] == [100, 64];
        (of_user && place != Place::Router).then(|| (station(place), GATEWAY, uplink(place)))
    }

    /// Those that have the same names in all conversations.
    pub fn names(&self) -> Vec<Name> {
        let ipv4 = |address: Ipv4Addr, port: Option<u16>, name| Name {
            address: IpAddr::V4(address),
            port,
            name,
        };
        let mut names = vec![];
        if self.app == App::Balancer {
            names.extend(
                [Place::In1, Place::In2].map(|place| ipv4(host(place), Some(8080), "server")),
            );
            names.push(ipv4(VIRTUAL, Some(80), "service"));
        }
        if self.app == App::Nat {
            names.push(ipv4(EXTERNAL, None, "ext"));
        }
        let own = [[192, 0, 2, 2], [10, 1, 0, 1], [10, 1, 1, 1], [10, 2, 0, 1], [10, 255, 0, 1]];
        names.extend(own.map(|address| ipv4(Ipv4Addr::from(address), None, "gw")));
        names.push(ipv4(ROUTER, None, "router"));
        let own = ["2001:db8:1::1", "2001:db8:1:1::1", "2001:db8:c::2"];
        let ipv6 = |text: &str| IpAddr::V6(text.parse().expect("address"));
        names.extend(own.map(|text| Name { address: ipv6(text), port: None, name: "gw" }));
        names.push(Name { address: ipv6("2001:db8:c::1"), port: None, name: "router" });
        names
    }

    /// Makes it ready for packets: what the test cannot do without, and no more.
    pub fn prepare(&self, lab: &TestLab) {
        if self.app == App::Gateway && !self.is_nftables() {
            for place in [Place::In1, Place::In2] {
                create_session(lab, user(place), uplink(place), station(place));
            }
        }
        for node in ["in1", "in2", "router"] {
            // The ends are deaf: the suite answers for them. What it listens to, it sees before
            // this.
            for rule in [
                "add table inet deaf",
                "add chain inet deaf pre { type filter hook prerouting priority -500; policy drop; }",
                "add rule inet deaf pre icmpv6 type { 133, 134, 135, 136 } accept",
            ] {
                let words = ["nft".to_string(), rule.to_string()];
                let (good, said) =
                    lab::process::run(Some(&lab.netns(node)), &words).expect("nft starts");
                assert!(good, "{node}: {rule}: {said}");
            }
        }
    }

    /// Whether a conversation's state is kept somewhere: by its client's port.
    pub fn state(&self, lab: &TestLab) -> Vec<(u8, u16)> {
        if self.app == App::Gateway {
            return vec![];
        }
        if self.is_nftables() {
            let text = lab.must_run("gw", "conntrack -L -o extended");
            return text.lines().filter_map(tracked).collect();
        }
        if self.mode.ends_with("_local") {
            return local_state(lab);
        }
        let opened = lab::Lab::open(&lab.name).expect("lab");
        let program = match self.app {
            App::Nat => "nat",
            App::Firewall => "firewall",
            _ => "load_balancer",
        };
        let (binary, dir) = (env!("CARGO_BIN_EXE_stateplane"), opened.dir().display());
        let command = format!(
            "{binary} state list --store 10.2.1.10:5407 --secrets {dir}/fabric.secrets --manifest {dir}/{program}.json \
             --limit 1000000 --json"
        );
        let listed = json(&lab.must_run("store1", &command));
        // A NAT's records for the way back have the remote end's port there.
        let client = |key: &serde_json::Value| match self.app {
            App::Nat if key["destination"] == EXTERNAL.to_string() => None,
            App::Nat => Some("source_port"),
            App::Firewall => Some("inside_port"),
            _ => Some("client_port"),
        };
        let number =
            |value: &serde_json::Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
        let records = listed.as_array().unwrap_or_else(|| panic!("{listed}")).iter();
        let ports = records.filter_map(|record| {
            let key = &record["key"];
            Some((number(&key["protocol"])? as u8, number(&key[client(key)?])? as u16))
        });
        ports.collect()
    }
}

/// Protocol and client's port of a line of `conntrack -L -o extended`.
fn tracked(line: &str) -> Option<(u8, u16)> {
    let protocol = line.split_whitespace().nth(3)?.parse().ok()?;
    let field = if protocol == ICMP || protocol == ICMP6 { "id=" } else { "sport=" };
    let port = line.split_whitespace().find_map(|word| word.strip_prefix(field))?;
    Some((protocol, port.parse().ok()?))
}

/// The bindings in the switch's own table, by the bytes of their keys: addresses, ports, protocol.
fn local_state(lab: &TestLab) -> Vec<(u8, u16)> {
    let root = format!("/run/stateplane/{}-gw/bpf", lab.name);
    let generation = std::fs::read_dir(&root).expect("pins").flatten().map(|entry| entry.path());
    let mut maps = generation.filter(|path| path.join("maps").exists());
    let maps = maps.next().expect("a generation").join("maps");
    let pinned = std::fs::read_dir(&maps).expect("maps").flatten().map(|entry| entry.path());
    let bindings = pinned
        .into_iter()
        .find(|path| path.display().to_string().contains("bindings"))
        .expect("bindings");
    let text = lab.must_run("gw", &format!("bpftool -j map dump pinned {}", bindings.display()));
    let key = |entry: &serde_json::Value| -> Vec<u8> {
        entry["key"].as_array().expect("key").iter().map(byte).collect()
    };
    let keys = json(&text).as_array().expect("entries").iter().map(key).collect::<Vec<_>>();
    // Source, destination, source port, destination port, protocol. Not those for the way back.
    let there = keys.iter().filter(|key| key[4..8] != EXTERNAL.octets());
    there.map(|key| (key[12], u16::from_be_bytes([key[8], key[9]]))).collect()
}

fn byte(value: &serde_json::Value) -> u8 {
    let text = value.as_str().expect("a byte");
    u8::from_str_radix(text.trim_start_matches("0x"), 16).expect("a byte")
}

/// A user's tunnels, by the gateway's signalling.
fn create_session(lab: &TestLab, user: Ipv4Addr, teid: u32, station: Ipv4Addr) {
    let bind = || std::net::UdpSocket::bind((MANAGER, 2123));
    let socket = lab.netns("in1").run(bind).expect("bind");
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).expect("timeout");
    let mut request = vec![0x48, 32, 0, 28, 0, 0, 0, 0, 0, 0, teid as u8, 0];
    request.extend(user.octets());
    request.extend(teid.to_be_bytes());
    request.extend((teid + 0x1000).to_be_bytes());
    request.extend(station.octets());
    request.extend([0; 4]);
    wait_for("the gateway creates a session", || {
        socket.send_to(&request, (GATEWAY, 2123)).expect("send");
        let mut answer = [0; 64];
        socket.recv(&mut answer).is_ok_and(|length| length == 32 && answer[28] == 16)
    });
}
