//! What XDP cannot send is sent by the kernel, and fragments that come before their first are held.
//! Needs root. Waits for timers.

mod common;

use common::{INSIDE, OUTSIDE, TestLab, one_at_a_time, skip, wait_for};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const INSIDE6: &str = "2001:db8:1::10";
const OUTSIDE6: &str = "2001:db8:2::10";
const SIDE: &str = "192.0.2.10";
/// What a datagram takes at the most that is not lost.
const ARRIVES: Duration = Duration::from_secs(5);

/// A socket of a node.
fn bound(lab: &TestLab, node: &str, address: &str, port: u16) -> UdpSocket {
    let socket = lab.netns(node).run(|| UdpSocket::bind((address, port))).expect("bind");
    socket.set_read_timeout(Some(ARRIVES)).expect("timeout");
    socket
}

/// Lets a socket's packets be fragmented on their way.
fn may_fragment(socket: &UdpSocket) {
    let option = libc::IP_PMTUDISC_DONT;
    // SAFETY: the descriptor is open, and the value is an integer that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            (&raw const option).cast(),
            size_of_val(&option) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "IP_MTU_DISCOVER");
}

/// Sends, and waits for it to arrive.
fn arrives(from: &UdpSocket, to: &UdpSocket, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    from.send_to(&sent, to.local_addr().expect("address")).expect("send");
    let mut buffer = vec![0; 65_536];
    let (length, _) = to.recv_from(&mut buffer).unwrap_or_else(|e| panic!("{bytes} bytes: {e}"));
    assert_eq!(buffer[..length], sent, "{bytes} bytes");
}

/// A count of the gateway, from the metrics.
fn count(lab: &TestLab, metric: &str, name: &str) -> u64 {
    let text = lab.metrics("s1");
    let line =
        text.lines().find(|line| line.starts_with(metric) && line.contains(&format!("\"{name}\"")));
    let line = line.unwrap_or_else(|| panic!("no {metric} {name} in {text}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("number")
}

fn agent(lab: &TestLab, name: &str) -> u64 {
    count(lab, "stateplane_gateway_agent_total", name)
}

/// An IPv4 packet of `inside` with a UDP payload's part; offset in bytes. The kernel seals it.
fn fragment(
    source: &str,
    identification: u16,
    offset: usize,
    more: bool,
    payload: &[u8],
) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv4Addr>().expect("address").octets();
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend(identification.to_be_bytes());
    packet.extend((u16::from(more) << 13 | (offset / 8) as u16).to_be_bytes());
    packet.extend([64, 17, 0, 0]);
    packet.extend(address(source));
    packet.extend(address(OUTSIDE));
    packet.extend(payload);
    packet
}

/// Sends packets with headers of their own.
struct Raw(OwnedFd);

impl Raw {
    fn new(lab: &TestLab) -> Raw {
        let open = || {
            let flags = SockFlag::empty();
            Ok(socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw)?)
        };
        Raw(lab.netns("inside").run(open).expect("raw socket"))
    }

    fn send(&self, packet: &[u8]) {
        let to = SockaddrIn::from(SocketAddrV4::new(OUTSIDE.parse().expect("address"), 0));
        sendto(self.0.as_raw_fd(), packet, &to, MsgFlags::empty()).expect("send");
    }
}

/// A UDP datagram without checksum.
fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let words = [4_000, port, length, 0].map(u16::to_be_bytes).concat();
    [&words, payload].concat()
}

#[test]
fn the_kernel_sends_what_xdp_cannot() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let lab = TestLab::up("slow-path", "slow_path.toml", &[]);
    let (inside, outside) =
        (bound(&lab, "inside", INSIDE, 0), bound(&lab, "outside", OUTSIDE, 9000));
    let (inside6, outside6) =
        (bound(&lab, "inside", INSIDE6, 0), bound(&lab, "outside", OUTSIDE6, 9000));
    may_fragment(&inside);

    // 1. Nobody knows the hosts' MACs: the kernel holds the first packet until it does.
    for (from, to) in [(&inside, &outside), (&inside6, &outside6)] {
        lab.must_run("s1", "ip neigh flush all");
        let before = agent(&lab, "sent");
        arrives(from, to, 10);
        assert!(agent(&lab, "sent") > before, "by the kernel");
        wait_for("XDP sends to it now", || {
            let before = agent(&lab, "sent");
            arrives(from, to, 10);
            agent(&lab, "sent") == before
        });
    }

    // 2. Longer than the interface's MTU, and than the route's.
    arrives(&inside, &outside, 1_472);
    assert_eq!(agent(&lab, "fragmented"), 1, "cut for the interface");
    lab.must_run("s1", "ip route replace 198.51.100.0/24 dev outside mtu lock 1000");
    let before = agent(&lab, "sent");
    arrives(&inside, &outside, 1_200);
    assert_eq!(agent(&lab, "sent"), before + 1, "cut by the kernel for the route");
    arrives(&inside, &outside, 1_472);
    assert_eq!(agent(&lab, "fragmented"), 2, "cut for both");
    lab.must_run("s1", "ip route replace 198.51.100.0/24 dev outside");

    // 3. DF: the host is told.
    let (_, said) = lab.run("inside", &format!("ping -M do -c1 -W2 -s 1440 {OUTSIDE}"));
    assert!(said.contains("10.1.0.1") && said.contains("mtu = 1400"), "{said}");

    // 4. An interface that is no port.
    let side = bound(&lab, "side", SIDE, 9000);
    arrives(&inside, &side, 100);
    // Where the kernel forwards nothing, the agent does not either.
    lab.must_run("s1", "sysctl -q net.ipv4.conf.inside.forwarding=0");
    let before = agent(&lab, "sent");
    for _ in 0..5 {
        inside.send_to(b"not forwarded", outside.local_addr().expect("address")).expect("send");
    }
    lab.must_run("s1", "sysctl -q net.ipv4.conf.inside.forwarding=1");
    arrives(&inside, &outside, 100);
    assert_eq!(agent(&lab, "sent"), before, "the agent forwards what the kernel must not");

    // 5. A source that the route to it does not allow.
    let raw = Raw::new(&lab);
    raw.send(&fragment("192.0.2.77", 1, 0, false, &udp(9000, b"spoofed")));
    wait_for("it is refused", || count(&lab, "stateplane_drops_total", "reverse_path") == 1);
    // What the program remembers of sources goes with each change of routes.
    lab.must_run("s1", "ip route add 192.0.2.77/32 via 10.1.0.10");
    wait_for("it is taken", || {
        raw.send(&fragment("192.0.2.77", 1, 0, false, &udp(9000, b"allowed")));
        outside.set_read_timeout(Some(Duration::from_millis(50))).expect("timeout");
        outside.recv_from(&mut [0; 64]).is_ok()
    });
    outside.set_read_timeout(Some(ARRIVES)).expect("timeout");

    // 6. Without an agent XDP goes on; what only the kernel can send is lost, and not sent late.
    lab.kill_daemon("s1", "switch");
    arrives(&inside, &outside, 100);
    inside.send_to(b"lost", side.local_addr().expect("address")).expect("send");
    lab.restart_daemon("s1", "switch");
    wait_for("it is dropped", || agent(&lab, "stale") == 1);
    arrives(&inside, &side, 100);
    lab.down();
}

#[test]
fn fragments_before_their_first_are_held() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let limits = "ingress=[fragments]\nheld = 3\nheld_ms = 1500";
    let lab = TestLab::up("fragments", "slow_path.toml", &["--set", limits]);
    let outside = bound(&lab, "outside", OUTSIDE, 9000);
    arrives(&bound(&lab, "inside", INSIDE, 0), &outside, 10);
    let raw = Raw::new(&lab);
    let payload: Vec<u8> = (0..1_200u32).map(|it| it as u8).collect();
    let datagram = udp(9000, &payload);
    let part = |identification, number: usize| {
        let (from, to) = (number * 400, ((number + 1) * 400).min(datagram.len()));
        let more = to < datagram.len();
        fragment(INSIDE, identification, from, more, &datagram[from..to])
    };
    let whole = |identification: u16, order: &[usize]| {
        for number in order {
            raw.send(&part(identification, *number));
        }
        let mut buffer = [0; 2_048];
        let (length, _) =
            outside.recv_from(&mut buffer).unwrap_or_else(|e| panic!("{order:?}: {e}"));
        assert_eq!(buffer[..length], payload, "{order:?}");
    };
    whole(1, &[0, 1, 2, 3]);
    assert_eq!(agent(&lab, "fragments_released"), 0);
    whole(2, &[3, 2, 1, 0]);
    assert_eq!(agent(&lab, "fragments_released"), 3);
    whole(3, &[0, 3, 1, 2]);
    assert_eq!(agent(&lab, "fragments_released"), 3);

    // No more than may be, and not for ever.
    for number in [1, 2, 3, 1] {
        raw.send(&part(4, number));
    }
    wait_for("one is refused", || agent(&lab, "fragments_not_held") == 1);
    wait_for("the others are dropped", || agent(&lab, "fragments_expired") == 3);
    assert!(lab.metrics("s1").contains("stateplane_gateway_fragments_held 0\n"));
    raw.send(&part(4, 0));
    whole(5, &[1, 0, 2, 3]);
    lab.down();
}
