//! Messages as the fabric carries them: raw sockets that send any, listeners that send each again,
//! and numbered datagrams whose arrivals are counted.

use super::PORT;
use crate::common::{INSIDE, OUTSIDE, STORES, TestLab};
use state_protocol::{Kind, MessageType, kind};
use std::collections::{BTreeMap, HashSet};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::BatchType;

/// A message as the fabric carried it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message5407 {
    pub source: SocketAddrV4,
    pub destination: SocketAddrV4,
    pub payload: Vec<u8>,
}

impl Message5407 {
    /// Its type, unless it is one of the stores' among themselves.
    pub fn message_type(&self) -> Option<MessageType> {
        match kind(&self.payload) {
            Ok(Kind::Message(message_type)) => Some(message_type),
            _ => None,
        }
    }

    /// What it is of batches, if it is.
    pub fn batch_type(&self) -> Option<BatchType> {
        match kind(&self.payload) {
            Ok(Kind::Batch(batch_type)) => Some(batch_type),
            _ => None,
        }
    }

    /// Whether controllers, servers and switches use it among themselves.
    pub fn is_control(&self) -> bool {
        matches!(kind(&self.payload), Ok(Kind::Control(_)))
    }

    pub fn is_request(&self) -> bool {
        self.message_type().is_some_and(MessageType::is_request)
    }

    pub fn is_reply(&self) -> bool {
        self.message_type().is_some_and(|it| !it.is_request())
    }
}

/// A raw socket of a host: it writes whatever source address it likes.
pub struct Raw(OwnedFd);

impl Raw {
    pub fn open(lab: &TestLab, host: &str) -> Raw {
        let socket = lab.netns(host).run(|| {
            // SAFETY: socket() takes no pointers; a descriptor that it returns belongs to nobody
            // else.
            let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW) };
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            // SAFETY: as above.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        });
        Raw(socket.expect("raw socket"))
    }

    pub fn send(&self, message: &Message5407) {
        self.send_with(message, &[]);
    }

    /// With IPv4 options: whole words.
    pub fn send_with(&self, message: &Message5407, options: &[u8]) {
        let udp_bytes = 8 + message.payload.len();
        let mut packet = vec![0x45 + (options.len() / 4) as u8, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet[2..4].copy_from_slice(&((20 + options.len() + udp_bytes) as u16).to_be_bytes());
        packet.extend(message.source.ip().octets());
        packet.extend(message.destination.ip().octets());
        packet.extend(options);
        packet.extend(message.source.port().to_be_bytes());
        packet.extend(message.destination.port().to_be_bytes());
        packet.extend((udp_bytes as u16).to_be_bytes());
        packet.extend([0, 0]); // no UDP checksum; the kernel makes the header's
        packet.extend(&message.payload);
        // SAFETY: all zeros is a valid `sockaddr_in`.
        let mut to: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        to.sin_family = libc::AF_INET as u16;
        to.sin_addr.s_addr = u32::from(*message.destination.ip()).to_be();
        // SAFETY: the pointers are to live values of the lengths beside them.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_in>() as libc::socklen_t,
            )
        };
        assert_eq!(sent, packet.len() as isize, "{}", std::io::Error::last_os_error());
    }

    /// Sends them no faster than the lab's links carry them.
    pub fn send_all(&self, messages: &[Message5407]) {
        for batch in messages.chunks(16) {
            batch.iter().for_each(|message| self.send(message));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Listens on the links of the stores, and sends each message again as soon as it sees it.
pub struct Wire {
    pub stop: Arc<AtomicBool>,
    pub threads: Vec<JoinHandle<()>>,
    pub seen: Arc<Mutex<HashSet<Message5407>>>,
}

impl Wire {
    pub fn start(lab: &TestLab) -> Wire {
        Wire::start_from(lab, "inside")
    }

    /// What is sent again comes from `host`.
    pub fn start_from(lab: &TestLab, host: &str) -> Wire {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(HashSet::new())));
        let listen = |(store, _): (&str, &str)| {
            let mut interface = lab
                .netns("tor")
                .run(|| capture::Interface::open(store, [PORT, PORT + 1]))
                .expect("packet socket");
            let (stop, seen, raw) = (Arc::clone(&stop), Arc::clone(&seen), Raw::open(lab, host));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let Some(frame) =
                        interface.next_frame(Duration::from_millis(20)).expect("frame")
                    else {
                        continue;
                    };
                    let Some(datagram) = capture::datagram(&frame) else { continue };
                    let message = Message5407 {
                        source: datagram.source,
                        destination: datagram.destination,
                        payload: datagram.payload.to_vec(),
                    };
                    // Not what was sent again, and not each message on both of its links.
                    if seen.lock().expect("seen").insert(message.clone()) {
                        raw.send(&message);
                    }
                }
            })
        };
        let threads = STORES.into_iter().map(listen).collect();
        Wire { stop, threads, seen }
    }

    pub fn finish(self) -> Vec<Message5407> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("the listener ends"));
        self.seen.lock().expect("seen").iter().cloned().collect()
    }
}

/// Numbered datagrams over `FLOWS` flows to `outside`, which notes which come, and how often.
pub struct Numbered {
    pub sockets: Vec<UdpSocket>,
    pub next: u32,
    pub arrived: Arc<Mutex<BTreeMap<u32, u32>>>,
}

pub const FLOWS: usize = 10;

impl Numbered {
    pub fn open(lab: &TestLab) -> Numbered {
        let receiver = lab.netns("outside").run(|| UdpSocket::bind((OUTSIDE, 9100))).expect("bind");
        let arrived = Arc::new(Mutex::new(BTreeMap::new()));
        let noted = Arc::clone(&arrived);
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok(length) = receiver.recv(&mut buffer) {
                let number =
                    buffer[..length].try_into().map(u32::from_be_bytes).expect("a number of ours");
                *noted.lock().expect("arrived").entry(number).or_insert(0) += 1;
            }
        });
        let open = || (0..FLOWS).map(|_| UdpSocket::bind((INSIDE, 0))).collect();
        let sockets: std::io::Result<Vec<UdpSocket>> = lab.netns("inside").run(open);
        Numbered { sockets: sockets.expect("bind"), next: 0, arrived }
    }

    /// Sends `count` datagrams to each flow; returns how many of them came through, once all had
    /// the time.
    pub fn send(&mut self, count: usize) -> usize {
        let first = self.next;
        for _ in 0..count {
            for socket in &self.sockets {
                socket.send_to(&self.next.to_be_bytes(), (OUTSIDE, 9100)).expect("send");
                self.next += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let total = count * self.sockets.len();
        let came = || self.arrived.lock().expect("arrived").range(first..).count();
        let deadline = Instant::now() + Duration::from_secs(2);
        while came() < total && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        came()
    }

    /// A switch knows copies of replies by their tags (systems/redplane/docs/state-protocol.md,
    /// "Replays"), and here are far fewer than it remembers.
    pub fn none_came_twice(&self) {
        let arrived = self.arrived.lock().expect("arrived");
        let twice: Vec<_> = arrived.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "of {}: number and times: {twice:?}", arrived.len());
    }
}
