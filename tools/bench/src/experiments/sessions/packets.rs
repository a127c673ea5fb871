//! The flows' packets: one sender, and which of them arrived.

use super::*;

/// A packet's flow, by its number.
pub(super) fn ports(flow: usize) -> (usize, u16) {
    (flow % SENDERS, FIRST_RECEIVER + (flow / SENDERS) as u16)
}

/// Which flows' packets came out.
pub(super) struct Arrivals {
    pub(super) seen: Vec<AtomicU64>,
    pub(super) count: AtomicUsize,
    /// By flow, the number that the program gave the last packet.
    pub(super) numbers: Vec<AtomicU16>,
    /// Packets in all, and those whose number was no higher than that of the flow's last: its count
    /// began anew (or a packet was overtaken, while flows are opened).
    pub(super) packets: AtomicU64,
    pub(super) backwards: AtomicU64,
    pub(super) stop: AtomicBool,
}

impl Arrivals {
    pub(super) fn new(flows: usize) -> Arrivals {
        let seen = (0..flows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Arrivals {
            seen,
            count: AtomicUsize::new(0),
            numbers: (0..flows).map(|_| AtomicU16::new(0)).collect(),
            packets: AtomicU64::new(0),
            backwards: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// A flow's packet came with this number.
    pub(super) fn note(&self, flow: usize, number: u16) {
        let (Some(word), Some(last)) = (self.seen.get(flow / 64), self.numbers.get(flow)) else {
            return;
        };
        self.packets.fetch_add(1, Ordering::Relaxed);
        if last.swap(number, Ordering::Relaxed) >= number {
            self.backwards.fetch_add(1, Ordering::Relaxed);
        }
        if word.fetch_or(1 << (flow % 64), Ordering::Relaxed) >> (flow % 64) & 1 == 0 {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn has(&self, flow: usize) -> bool {
        self.seen[flow / 64].load(Ordering::Relaxed) >> (flow % 64) & 1 == 1
    }

    /// Notes what comes to a packet socket, until it is told to stop: which flow it is stands in
    /// the UDP payload, its count in the IPv4 identification.
    pub(super) fn receive(&self, interface: &str) -> std::io::Result<()> {
        let socket = packet_socket(interface)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut frame = [0; 128];
        while !self.stop.load(Ordering::Relaxed) {
            let Ok(length) = socket.recv(&mut frame) else { continue };
            // IPv4 without options, UDP to one of ours, a payload of 4 bytes.
            if length < 32
                || frame[9] != 17
                || u16::from_be_bytes([frame[22], frame[23]]) < FIRST_RECEIVER
            {
                continue;
            }
            let flow = u32::from_be_bytes([frame[28], frame[29], frame[30], frame[31]]) as usize;
            self.note(flow, u16::from_be_bytes([frame[4], frame[5]]));
        }
        Ok(())
    }
}

/// A packet socket for IPv4 on one interface. A plain `recv` works on any socket.
fn packet_socket(interface: &str) -> std::io::Result<UdpSocket> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let protocol = (libc::ETH_P_IP as u16).to_be();
    let index = nix::net::if_::if_nametoindex(interface)?;
    // SAFETY: socket() takes no pointers; a descriptor that it returns belongs to nobody else.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, i32::from(protocol));
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        UdpSocket::from(OwnedFd::from_raw_fd(fd))
    };
    // SAFETY: all zeros is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a `sockaddr_ll` of the length that is given.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let _ =
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(64 << 20));
    Ok(socket)
}

pub(super) struct Sender {
    sockets: Vec<UdpSocket>,
    to: Ipv4Addr,
}

impl Sender {
    pub(super) fn open(from: Ipv4Addr, to: Ipv4Addr) -> std::io::Result<Sender> {
        let bind = |n| UdpSocket::bind(SocketAddrV4::new(from, FIRST_SENDER + n as u16));
        Ok(Sender { sockets: (0..SENDERS).map(bind).collect::<std::io::Result<_>>()?, to })
    }

    pub(super) fn send(&self, flow: usize) -> std::io::Result<()> {
        let (sender, port) = ports(flow);
        self.sockets[sender]
            .send_to(&(flow as u32).to_be_bytes(), SocketAddrV4::new(self.to, port))
            .map(drop)
    }

    /// Sends for flows in turn, evenly, for so long; how many packets.
    pub(super) fn send_evenly(
        &self,
        flows: usize,
        per_second: f64,
        time: Duration,
    ) -> std::io::Result<u64> {
        let (start, mut sent) = (Instant::now(), 0u64);
        while start.elapsed() < time {
            let due = (start.elapsed().as_secs_f64() * per_second) as u64;
            while sent < due {
                // A prime's multiples come by all flows, far from each other.
                self.send((sent as usize).wrapping_mul(7_919) % flows)?;
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(sent)
    }
}
