//! The ends of the links that the suite sends on and listens at.

use super::super::common::TestLab;
use capture::Interface;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A place where frames are sent or seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    In1,
    In2,
    Router,
    /// What the switch's own kernel gets from the link to in1.
    Kernel,
}

pub const ENDS: [Place; 3] = [Place::In1, Place::In2, Place::Router];

impl Place {
    pub fn node(self) -> &'static str {
        match self {
            Place::In1 => "in1",
            Place::In2 => "in2",
            Place::Router => "router",
            Place::Kernel => "gw",
        }
    }

    fn interface(self) -> &'static str {
        if self == Place::Kernel { "in1" } else { "gw" }
    }
}

pub type Mac = [u8; 6];

/// A frame that came, from its Ethernet header on.
#[derive(Clone, Debug)]
pub struct Seen {
    pub place: Place,
    pub frame: Vec<u8>,
}

/// One end of a link.
struct End {
    place: Place,
    socket: OwnedFd,
    mac: Mutex<Mac>,
    /// The switch's at the other end.
    far: Mac,
}

/// All ends, and what has come to them.
pub struct Wires {
    ends: Vec<End>,
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn mac(lab: &TestLab, node: &str, interface: &str) -> Mac {
    let text = lab.must_run(node, &format!("ip -br link show dev {interface}"));
    let address = text.split_whitespace().nth(2).unwrap_or_else(|| panic!("{text}"));
    let bytes: Vec<u8> =
        address.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("MAC address")).collect();
    bytes.try_into().expect("six bytes")
}

/// A packet socket that sends on an interface and receives nothing.
fn sender(lab: &TestLab, node: &str, interface: &str) -> OwnedFd {
    let open = || {
        // SAFETY: socket() takes no pointers; a descriptor that it returns belongs to nobody else.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: all zeros is a valid `sockaddr_ll`.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = nix::net::if_::if_nametoindex(interface)? as i32;
        let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `to` is a `sockaddr_ll` of the length that is given.
        if unsafe { libc::bind(socket.as_raw_fd(), (&raw const to).cast(), bytes) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(socket)
    };
    lab.netns(node).run(open).expect("packet socket")
}

impl Wires {
    pub fn open(lab: &TestLab) -> Wires {
        let seen = Arc::new(Mutex::new(vec![]));
        let stop = Arc::new(AtomicBool::new(false));
        let listen = |place: Place| {
            let open = || Interface::open_all(place.interface());
            let mut interface = lab.netns(place.node()).run(open).expect("packet socket");
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(Some((frame, at))) = interface.next_seen(Duration::from_millis(20))
                        && !at.outgoing
                    {
                        let frame = Seen { place, frame: frame.bytes.to_vec() };
                        seen.lock().unwrap_or_else(PoisonError::into_inner).push(frame);
                    }
                }
            })
        };
        let threads = [Place::In1, Place::In2, Place::Router, Place::Kernel].map(listen).into();
        let end = |place: Place| End {
            place,
            socket: sender(lab, place.node(), place.interface()),
            mac: Mutex::new(mac(lab, place.node(), place.interface())),
            far: mac(lab, "gw", place.node()),
        };
        Wires { ends: ENDS.map(end).into(), seen, stop, threads }
    }

    fn end(&self, place: Place) -> &End {
        self.ends.iter().find(|end| end.place == place).expect("an end")
    }

    /// The MAC addresses of an end, and of the switch's port opposite.
    pub fn macs(&self, place: Place) -> (Mac, Mac) {
        let end = self.end(place);
        (*end.mac.lock().unwrap_or_else(PoisonError::into_inner), end.far)
    }

    /// An end has another address from now on.
    pub fn moved(&self, place: Place, mac: Mac) {
        *self.end(place).mac.lock().unwrap_or_else(PoisonError::into_inner) = mac;
    }

    pub fn send(&self, from: Place, frame: &[u8]) {
        // SAFETY: `frame` has as many bytes as is said.
        let sent = unsafe {
            libc::send(self.end(from).socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0)
        };
        assert_eq!(sent, frame.len() as isize, "{from:?}: {}", std::io::Error::last_os_error());
    }

    /// What has come since frame number `from`.
    pub fn since(&self, from: usize) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[from..].to_vec()
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
