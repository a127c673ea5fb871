//! Traffic of several tenants, and the packet log beside a switch from which its sketches are
//! computed again.

use crate::common::{INSIDE, TestLab};
use state_protocol::{Message, MessageType, SnapshotPart};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use traffic::{Profile, Subnet, Trace};

pub const ROWS: usize = 3;
pub const COLUMNS: usize = 64;
pub const SLOTS: usize = ROWS * COLUMNS;
pub type Sketch = [u32; SLOTS];

/// Source, destination, source port, destination port, protocol: as in packets.
pub type Flow = [u8; 13];

/// CRC-32 of IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// The flow's slot in each row, as heavy_hitter.p4 has it.
pub fn places(flow: &Flow) -> [usize; ROWS] {
    let hash = crc32(flow) as usize;
    [hash & 63, COLUMNS + (hash >> 10 & 63), 2 * COLUMNS + (hash >> 20 & 63)]
}

pub fn count(sketch: &mut Sketch, flow: &Flow) {
    places(flow).into_iter().for_each(|place| sketch[place] += 1);
}

pub fn estimate(sketch: &Sketch, flow: &Flow) -> u32 {
    places(flow).into_iter().map(|place| sketch[place]).min().unwrap_or(0)
}

/// How many packets a sketch has counted: the sum of each row, which must be the same.
pub fn packets(sketch: &Sketch) -> u32 {
    let sums: Vec<u32> = sketch.chunks(COLUMNS).map(|row| row.iter().sum()).collect();
    assert!(
        sums.iter().all(|sum| *sum == sums[0]),
        "a packet is in one row and not in another: {sums:?}"
    );
    sums[0]
}

/// Something that a log has, in the order in which it left the switch (or was on its way to it).
pub enum Logged {
    Packet {
        tenant: u8,
        flow: Flow,
        dscp: u8,
    },
    /// A `SNAPSHOT` from the switch.
    Snapshot {
        tenant: u8,
        epoch: u32,
        seq: u64,
        window: u32,
        sketch: Box<Sketch>,
    },
    /// A `SNAPSHOT_ACK` that says that all of it is stored.
    Acknowledged {
        tenant: u8,
        seq: u64,
    },
    /// A `SNAPSHOT_STATE` to the switch: what it goes on from.
    State {
        tenant: u8,
        epoch: u32,
        seq: u64,
        window: u32,
        sketch: Box<Sketch>,
    },
}

impl Logged {
    pub fn tenant(&self) -> u8 {
        match self {
            Logged::Packet { tenant, .. }
            | Logged::Snapshot { tenant, .. }
            | Logged::Acknowledged { tenant, .. }
            | Logged::State { tenant, .. } => *tenant,
        }
    }
}

fn logged(frame: &capture::Frame<'_>) -> Option<Logged> {
    let ip = frame.bytes.get(14..)?;
    if ip.get(..1)? == [0x45] && ip.get(12..14)? == [10, 20] && ip[9] == 17 {
        let mut flow = [0; 13];
        flow[..8].copy_from_slice(ip.get(12..20)?);
        flow[8..12].copy_from_slice(ip.get(20..24)?);
        flow[12] = ip[9];
        return Some(Logged::Packet { tenant: ip[14], flow, dscp: ip[1] >> 2 });
    }
    let datagram = capture::datagram(frame)?;
    let message = Message::decode(datagram.payload).ok()?;
    // With HEAVY_HITTER_PER_SWITCH the switch's number follows.
    let tenant = u8::try_from(u16::from_be_bytes(message.key.get(..2)?.try_into().ok()?)).ok()?;
    let (epoch, seq) = (message.epoch, message.seq);
    // With windows there is one slot more, the window's number; without, the window is 0.
    let decoded = || {
        let part = [SLOTS, SLOTS + 1]
            .iter()
            .find_map(|slots| SnapshotPart::decode_message(&message, *slots, 4))?;
        let mut slots = part
            .slots
            .chunks_exact(4)
            .map(|slot| slot.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
        let mut sketch = [0; SLOTS];
        sketch.iter_mut().zip(&mut slots).for_each(|(to, slot)| *to = slot);
        Some((slots.next().unwrap_or(0), Box::new(sketch)))
    };
    match message.message_type {
        MessageType::Snapshot => decoded().map(|(window, sketch)| Logged::Snapshot {
            tenant,
            epoch,
            seq,
            window,
            sketch,
        }),
        MessageType::SnapshotState => {
            decoded().map(|(window, sketch)| Logged::State { tenant, epoch, seq, window, sketch })
        }
        MessageType::SnapshotAck => {
            (message.value == 1u64.to_be_bytes()).then_some(Logged::Acknowledged { tenant, seq })
        }
        _ => None,
    }
}

/// What `tor` sees on its link to a switch: all that the switch lets out to the inside, and its
/// talk with the stores.
pub struct PacketLog {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Logged>>>,
    thread: JoinHandle<u32>,
}

impl PacketLog {
    pub fn start(lab: &TestLab, switch: &str) -> PacketLog {
        let open = || capture::Interface::open_all(switch);
        let mut interface = lab.netns("tor").run(open).expect("packet socket");
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(vec![])));
        let (stopped, noted) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            let mut lost = 0;
            while !stopped.load(Ordering::Relaxed) {
                // An error is the link's, which goes down with the switch and comes back.
                if let Ok(Some(frame)) = interface.next_frame(Duration::from_millis(20)) {
                    noted.lock().expect("log").extend(logged(&frame));
                }
                lost += interface.statistics().lost;
            }
            lost
        });
        PacketLog { stop, seen, thread }
    }

    /// Looks at what is there so far.
    pub fn with<T>(&self, look: impl FnOnce(&[Logged]) -> T) -> T {
        look(&self.seen.lock().expect("log"))
    }

    pub fn packets_of(&self, tenant: u8) -> usize {
        self.with(|log| {
            log.iter()
                .filter(|it| matches!(it, Logged::Packet { tenant: t, .. } if *t == tenant))
                .count()
        })
    }

    /// The sketch of all of a tenant's packets.
    pub fn sketch_of(&self, tenant: u8) -> Sketch {
        let mut sketch = [0; SLOTS];
        self.with(|log| {
            for it in log {
                if let Logged::Packet { tenant: of, flow, .. } = it
                    && *of == tenant
                {
                    count(&mut sketch, flow);
                }
            }
        });
        sketch
    }

    pub fn snapshots_of(&self, tenant: u8) -> usize {
        self.with(|log| {
            log.iter()
                .filter(|it| matches!(it, Logged::Snapshot { tenant: t, .. } if *t == tenant))
                .count()
        })
    }

    /// The newest snapshot of a tenant.
    pub fn newest(&self, tenant: u8) -> Option<Sketch> {
        self.newest_in_window(tenant).map(|(_, sketch)| sketch)
    }

    /// The same, and its window.
    pub fn newest_in_window(&self, tenant: u8) -> Option<(u32, Sketch)> {
        self.with(|log| {
            log.iter().rev().find_map(|it| match it {
                Logged::Snapshot { tenant: t, window, sketch, .. } if *t == tenant => {
                    Some((*window, **sketch))
                }
                _ => None,
            })
        })
    }

    /// The whole log, by tenant.
    pub fn finish(self) -> BTreeMap<u8, Vec<Logged>> {
        self.stop.store(true, Ordering::Relaxed);
        assert_eq!(self.thread.join().expect("the listener ends"), 0, "frames that the log lacks");
        let mut by_tenant: BTreeMap<u8, Vec<Logged>> = BTreeMap::new();
        for it in std::mem::take(&mut *self.seen.lock().expect("log")) {
            by_tenant.entry(it.tenant()).or_default().push(it);
        }
        by_tenant
    }
}

/// Sends frames from `outside` to `core`.
pub struct Injector {
    socket: OwnedFd,
    macs: ([u8; 6], [u8; 6]),
}

impl Injector {
    pub fn open(lab: &TestLab) -> Injector {
        let mac = |node: &str, interface: &str| -> [u8; 6] {
            let text = lab.must_run(node, &format!("ip -br link show dev {interface}"));
            let address = text.split_whitespace().nth(2).unwrap_or_else(|| panic!("{text}"));
            let bytes: Vec<u8> = address
                .split(':')
                .map(|byte| u8::from_str_radix(byte, 16).expect("MAC address"))
                .collect();
            bytes.try_into().expect("six bytes")
        };
        let macs = (mac("core", "outside"), mac("outside", "core"));
        let open = || {
            // SAFETY: socket() takes no pointers; a descriptor that it returns belongs to nobody
            // else.
            let socket = unsafe {
                let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
                if fd < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                OwnedFd::from_raw_fd(fd)
            };
            // SAFETY: all zeros is a valid `sockaddr_ll`.
            let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_ifindex = nix::net::if_::if_nametoindex("core")? as i32;
            let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            // SAFETY: `to` is a `sockaddr_ll` of the length that is given.
            if unsafe { libc::bind(socket.as_raw_fd(), (&raw const to).cast(), bytes) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(socket)
        };
        Injector { socket: lab.netns("outside").run(open).expect("packet socket"), macs }
    }

    /// Packets of a tenant from a seed: flows' sizes follow Zipf's law.
    pub fn trace(&self, seed: u64, tenant: u8, packets: u64) -> Trace {
        let profile = Profile {
            seed: seed ^ u64::from(tenant),
            flows: 150,
            packets,
            new_flows_per_s: 1_000.0,
            tcp_share: 0.0,
            inside: Subnet { network: Ipv4Addr::new(10, 20, tenant, 0), length: 24 },
            outside: Subnet { network: INSIDE.parse().expect("address"), length: 32 },
            destination_mac: self.macs.0,
            source_mac: self.macs.1,
            ..Profile::default()
        };
        Trace::new(profile).expect("a trace")
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: `frame` has as many bytes as is said.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }
}

/// Sends traces, mixed by their times, at a steady rate of its own until it is stopped (or they
/// end).
pub struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Load {
    pub fn start(injector: Injector, traces: Vec<Trace>, packets_per_s: f64) -> Load {
        let mut mixed: Vec<traffic::Packet> = traces.into_iter().flatten().collect();
        mixed.sort_by_key(|packet| packet.time_ns);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let gap = Duration::from_secs_f64(1.0 / packets_per_s);
            let mut due = Instant::now();
            let mut sent = 0;
            for packet in mixed {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                injector.send(&packet.frame);
                sent += 1;
                // Whoever was late does not hurry: a burst would overrun the links' queues.
                due = (due + gap).max(Instant::now() - 16 * gap);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            sent
        });
        Load { stop, thread }
    }

    /// How many packets were sent.
    pub fn finish(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sender ends")
    }
}

/// A seed that is printed, or the one to be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    seed
}
