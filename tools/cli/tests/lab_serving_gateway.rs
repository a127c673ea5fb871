//! The serving gateway for real: users behind two base stations, 5 % signalling among their
//! packets, and a switch that dies and returns. Needs root. Waits for timers.

mod common;

use common::{OUTSIDE, TestLab, one_at_a_time, skip, udp_echo, wait_for};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const GATEWAY: &str = "10.99.0.1";
const MANAGER: &str = "10.1.0.9";
const STATIONS: [&str; 2] = ["10.1.0.21", "10.1.0.22"];
const USERS: usize = 40;
const CREATE: u8 = 32;
const MODIFY: u8 = 34;
const DELETE: u8 = 36;
const ACCEPTED: u8 = 16;

/// The radio side: base stations and the mobility manager, and what they know of each user.
struct Radio {
    manager: UdpSocket,
    stations: [UdpSocket; 2],
    sequence: u32,
    users: Vec<User>,
}

#[derive(Clone, Copy)]
struct User {
    address: Ipv4Addr,
    uplink_teid: u32,
    downlink_teid: u32,
    station: usize,
}

fn socket(lab: &TestLab, address: &str, port: u16) -> UdpSocket {
    let socket = lab.netns("inside").run(|| UdpSocket::bind((address, port))).expect("bind");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("timeout");
    socket
}

/// One's complement sum of an IPv4 header.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// A user's UDP packet, without a UDP checksum.
fn user_packet(from: Ipv4Addr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let SocketAddr::V4(to) = to else { panic!("{to}") };
    let length = 28 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.ip().octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(4000u16.to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend((length - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

impl Radio {
    fn new(lab: &TestLab) -> Radio {
        let user = |number: usize| User {
            address: Ipv4Addr::new(100, 64, 1, number as u8 + 1),
            uplink_teid: 0x1000 + number as u32,
            downlink_teid: 0x2000 + number as u32,
            station: number % 2,
        };
        Radio {
            manager: socket(lab, MANAGER, 2123),
            stations: STATIONS.map(|address| socket(lab, address, 2152)),
            sequence: 1,
            users: (0..USERS).map(user).collect(),
        }
    }

    /// Sends a request until its response comes; the cause.
    fn signal(&mut self, kind: u8, user: User) -> u8 {
        self.sequence = (self.sequence + 1) & 0xff_ffff;
        let sequence = self.sequence.to_be_bytes();
        let station: Ipv4Addr = STATIONS[user.station].parse().expect("address");
        let mut request =
            vec![0x48, kind, 0, 28, 0, 0, 0, 0, sequence[1], sequence[2], sequence[3], 0];
        request.extend(user.address.octets());
        request.extend(user.uplink_teid.to_be_bytes());
        request.extend(user.downlink_teid.to_be_bytes());
        request.extend(station.octets());
        request.extend([0; 4]);
        for _ in 0..100 {
            // While a route is away, sending fails; the next try follows.
            let _ = self.manager.send_to(&request, (GATEWAY, 2123));
            let mut buffer = [0; 64];
            while let Ok(length) = self.manager.recv(&mut buffer) {
                if length == 32 && buffer[1] == kind + 1 && buffer[8..11] == request[8..11] {
                    return buffer[28];
                }
            }
        }
        panic!("no response to {kind} within 10 s");
    }

    /// Another base station and another tunnel; from the response on, the old one is no more.
    fn hand_over(&mut self, number: usize) {
        let mut user = self.users[number];
        user.station = 1 - user.station;
        user.downlink_teid += 0x1_0000;
        assert_eq!(self.signal(MODIFY, user), ACCEPTED);
        self.users[number] = user;
    }

    /// A packet of the user to the network and its echo back, each in its tunnel; whether the echo
    /// came within 100 ms.
    fn echo(&self, number: usize, server: SocketAddr, payload: &[u8]) -> bool {
        let user = self.users[number];
        let inner = user_packet(user.address, server, payload);
        let mut packet = vec![0x30, 255];
        packet.extend((inner.len() as u16).to_be_bytes());
        packet.extend(user.uplink_teid.to_be_bytes());
        packet.extend(&inner);
        let station = &self.stations[user.station];
        if station.send_to(&packet, (GATEWAY, 2152)).is_err() {
            return false;
        }
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = station.recv_from(&mut buffer) {
            let packet = &buffer[..length];
            assert_eq!(from.ip().to_string(), GATEWAY);
            let teid = u32::from_be_bytes(packet[4..8].try_into().expect("four bytes"));
            let to = Ipv4Addr::from(<[u8; 4]>::try_from(&packet[24..28]).expect("four bytes"));
            let known = self.users.iter().find(|user| user.address == to).expect("a user");
            // Never in a tunnel that a response said to be no more.
            assert_eq!(
                (teid, STATIONS[known.station]),
                (known.downlink_teid, local(station).as_str()),
                "of {to}"
            );
            assert_eq!(checksum(&packet[8..28]), 0, "the user's IPv4 header");
            if to == user.address && &packet[36..] == payload {
                return true;
            }
        }
        false
    }
}

fn local(socket: &UdpSocket) -> String {
    socket.local_addr().expect("address").ip().to_string()
}

#[test]
fn sessions_outlive_their_switch_with_five_percent_signalling() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("gateway", "serving_gateway.toml", &[]);
    let server = udp_echo(&lab, 7000);
    assert_eq!(server.ip().to_string(), OUTSIDE);
    let mut radio = Radio::new(&lab);
    for number in 0..USERS {
        let user = radio.users[number];
        assert_eq!(radio.signal(CREATE, user), ACCEPTED);
    }
    assert!(
        (0..USERS).all(|number| radio.echo(number, server, b"first")),
        "every user's packets pass"
    );

    // One packet of twenty is signalling; s1 dies on the way and comes back.
    let (mut sent, mut lost, mut handovers, mut longest) = (0, 0, 0, Duration::ZERO);
    let mut mix = |radio: &mut Radio, packets: usize| {
        let mut last = Instant::now();
        for _ in 0..packets {
            sent += 1;
            let number = sent * 7 % USERS;
            if sent % 20 == 0 {
                radio.hand_over(number);
                handovers += 1;
            } else if !radio.echo(number, server, &(sent as u64).to_be_bytes()) {
                lost += 1;
                continue;
            }
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    };
    mix(&mut radio, 2000);
    let through = |switch: &str| (lab.counter(switch, "uplink"), lab.counter(switch, "downlink"));
    assert!(
        through("s1").0 > 1000 && through("s1").1 > 1000,
        "s1 is preferred: {:?}",
        through("s1")
    );
    lab.fail("s1");
    mix(&mut radio, 2000);
    assert!(through("s2").0 > 1000 && through("s2").1 > 1000, "s2 stands in: {:?}", through("s2"));
    assert!(
        (0..USERS).all(|number| radio.echo(number, server, b"s1 is dead")),
        "every user goes on"
    );
    lab.restore("s1");
    let before = through("s1").0;
    wait_for("s1 is preferred again", || {
        mix(&mut radio, 20);
        lab.counter("s1", "uplink") > before + 100
    });
    println!(
        "{sent} packets, {handovers} of them handovers, {lost} lost, longest silence {longest:?}"
    );
    assert!(handovers * 20 >= sent - 20 && lost * 10 < sent, "{lost} of {sent} lost");
    assert_eq!(lab.equal_stores(), USERS as u64);

    // Deleted: nothing passes any more.
    for number in 0..USERS {
        let user = radio.users[number];
        assert_eq!(radio.signal(DELETE, user), ACCEPTED);
    }
    let unknown =
        |lab: &TestLab| lab.counter("s1", "unknown_user") + lab.counter("s2", "unknown_user");
    let before = unknown(&lab);
    assert!(!radio.echo(0, server, b"late"));
    wait_for("the gateway counts it", || unknown(&lab) > before);
    lab.down();
}
