//! Round-trip times through one switch of a lab, packet by packet.
//!
//! Packets go out by a packet socket on the router before the switch and come back from an XDP
//! program on the router behind it (tools/bench/setups/probe.c); another notes when they are back.
//! So what is timed is: send system call, link, switch, link, reflection, link, switch, link; no
//! host's network stack, and no process that has to wake up. One packet is under way at a time.

use crate::apps::PORT;
use crate::build::Places;
use crate::contention::{Stretch, taken_percent};
use crate::kernel::{self, CObject};
use crate::labs::Running;
use crate::packets;
use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, MapHandle};
use nix::net::if_::if_nametoindex;
use nix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// SLOTS of tools/bench/setups/probe.c.
const PROBE_SLOTS: usize = 131_072;
const MAGIC: u32 = 0x7072_6f62;
/// Bytes of magic, number and time.
pub const STAMP_BYTES: usize = 16;
/// A packet that is not back after so long is lost.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// Most are back within this; giving the CPU away at once would cost a time slice on a busy
/// machine.
const SPIN_FIRST: Duration = Duration::from_micros(200);
/// So many lost in a row are no loss: something is broken.
const LOST_IN_A_ROW: usize = 25;

/// Where probes go in and come back.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    /// The router on the near side of the switch.
    pub near: &'a str,
    /// The switch.
    pub switch: &'a str,
    /// The router on its far side.
    pub far: &'a str,
}

/// Where the stamp is in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Offset of the stamp in frames as they are sent.
    pub sent: usize,
    /// As they reach the reflector.
    pub reflected: usize,
    /// As they come back.
    pub collected: usize,
}

impl Shape {
    /// UDP over IPv4 without options: the payload.
    pub const UDP: Shape = Shape { sent: 42, reflected: 42, collected: 42 };
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Round trips in microseconds, in the order of sending; a lost packet has none.
    pub us: Vec<Option<f64>>,
    /// Share of the time, in percent, in which other processes had the CPU.
    pub taken_percent: f64,
}

impl Times {
    /// Those that came back, in order of length.
    pub fn sorted(&self) -> Vec<f64> {
        let mut sorted: Vec<f64> = self.us.iter().flatten().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// How many did not.
    pub fn lost(&self) -> usize {
        self.us.iter().filter(|t| t.is_none()).count()
    }
}

/// The array `times`, mapped into this process.
struct Slots {
    at: *const AtomicU64,
    _map: MapHandle,
}

// SAFETY: the memory is shared with the kernel and only accessed atomically.
unsafe impl Send for Slots {}

impl Slots {
    fn map(map: MapHandle) -> Result<Slots> {
        // SAFETY: a new shared mapping of a map made with BPF_F_MMAPABLE, of its own length, owned
        // by the value returned.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PROBE_SLOTS * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("mapping the probes' times");
        }
        Ok(Slots { at: at.cast(), _map: map })
    }

    fn slot(&self, number: u32) -> &AtomicU64 {
        // SAFETY: the index is below PROBE_SLOTS, the length of the mapping, which lives as long as
        // self.
        unsafe { &*self.at.add(number as usize & (PROBE_SLOTS - 1)) }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: the very mapping made in `map`; nothing refers to it any more.
        unsafe { libc::munmap(self.at.cast_mut().cast(), PROBE_SLOTS * 8) };
    }
}

/// Probes of one lab's switch, ready to go.
pub struct Probe {
    slots: Slots,
    socket: OwnedFd,
    ifindex: u32,
    near_mac: [u8; 6],
    switch_mac: [u8; 6],
    shape: Shape,
    next: u32,
    programs: (CObject, CObject),
    _links: (Link, Link),
    _pass: Option<(CObject, Link, u32)>,
}

/// The Ethernet address of a node's interface.
pub fn mac_of(lab: &Running, node: &str, interface: &str) -> Result<[u8; 6]> {
    let text = lab.run(node, &["ip", "-json", "link", "show", "dev", interface])?;
    let links: serde_json::Value = serde_json::from_str(&text)?;
    let address = links[0]["address"].as_str().unwrap_or_default();
    let bytes: Vec<u8> =
        address.split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes.try_into().ok().with_context(|| {
        format!("{node}: interface {interface} has no Ethernet address: {address:?}")
    })
}

fn monotonic_ns() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// A packet socket for sending on one interface.
fn packet_socket() -> std::io::Result<OwnedFd> {
    // Protocol 0: it receives nothing.
    // SAFETY: a plain system call; the descriptor is checked and then owned.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a program of an object of tools/bench/setups/probe.c to a router's interface towards a
/// switch.
///
/// # Errors
/// The interface is missing, or has a program.
pub fn attach(
    object: &std::path::Path,
    lab: &Running,
    node: &str,
    switch: &str,
    program: &str,
) -> Result<(CObject, Link, u32)> {
    let mut object = CObject::load(object, &[])?;
    let (object_ref, program) = (&mut object, program.to_owned());
    let (link, ifindex) = lab
        .netns(node)?
        .run(move || {
            let ifindex = if_nametoindex(switch)?;
            let link = object_ref
                .attach(&program, ifindex)
                .map_err(|e| std::io::Error::other(format!("{e:#}")))?;
            Ok((link, ifindex))
        })
        .with_context(|| format!("probe on {node}"))?;
    Ok((object, link, ifindex))
}

impl Probe {
    /// Attaches the programs on both sides of a switch.
    ///
    /// # Errors
    /// A node or interface is missing, or a program cannot be attached.
    pub fn new(places: &Places, lab: &Running, path: Path, shape: Shape) -> Result<Probe> {
        let offsets = [
            format!("REFLECT_OFFSET={}", shape.reflected),
            format!("COLLECT_OFFSET={}", shape.collected),
        ];
        let object = places.compile_c_as("probe", "probe", &offsets)?;
        // A veth that has no program leaves what an XDP program sends back in its queue until
        // something else comes.
        let far_of_switch =
            lab.run(path.switch, &["ip", "-json", "link", "show", "dev", path.far])?;
        let pass = match far_of_switch.contains("\"xdp\"") {
            true => None,
            false => Some(attach(&object, lab, path.switch, path.far, "pass")?),
        };
        let (far_object, far_link, _) = attach(&object, lab, path.far, path.switch, "reflect")?;
        let (near_object, near_link, ifindex) =
            attach(&object, lab, path.near, path.switch, "collect")?;
        let slots = Slots::map(near_object.map("times")?)?;
        let socket = lab.netns(path.near)?.run(packet_socket).context("packet socket")?;
        Ok(Probe {
            slots,
            socket,
            ifindex,
            near_mac: mac_of(lab, path.near, path.switch)?,
            switch_mac: mac_of(lab, path.switch, path.near)?,
            shape,
            next: 0,
            programs: (far_object, near_object),
            _links: (far_link, near_link),
            _pass: pass,
        })
    }

    /// Frames that were reflected so far, and how many of them had a source of the NAT's pool.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn reflected(&self) -> Result<(u64, u64)> {
        let map = self.programs.0.map("reflected")?;
        Ok((kernel::sum_percpu(&map, 0)?, kernel::sum_percpu(&map, 8)?))
    }

    /// Sends a frame (its Ethernet addresses and stamp are filled in) and waits until it is back:
    /// microseconds, or nothing if it is lost.
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn send(&mut self, frame: &mut [u8]) -> Result<Option<f64>> {
        if frame.len() < self.shape.sent + STAMP_BYTES {
            bail!("a frame of {} bytes has no room for a stamp", frame.len());
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        frame[..6].copy_from_slice(&self.switch_mac);
        frame[6..12].copy_from_slice(&self.near_mac);
        let stamp = &mut frame[self.shape.sent..self.shape.sent + STAMP_BYTES];
        stamp[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        stamp[4..8].copy_from_slice(&number.to_ne_bytes());
        let slot = self.slots.slot(number);
        slot.store(0, Ordering::Relaxed);
        stamp[8..].copy_from_slice(&monotonic_ns()?.to_ne_bytes());
        self.transmit(frame)?;
        let start = Instant::now();
        loop {
            match slot.load(Ordering::Relaxed) {
                0 if start.elapsed() > LOST_AFTER => return Ok(None),
                0 if start.elapsed() < SPIN_FIRST => std::hint::spin_loop(),
                // The kernel may have left the packet to a thread of its own on this CPU.
                0 => std::thread::yield_now(),
                ns => return Ok(Some(ns as f64 / 1e3)),
            }
        }
    }

    fn transmit(&self, frame: &[u8]) -> Result<()> {
        let to = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0x0800u16.to_be(),
            sll_ifindex: self.ifindex as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        };
        // SAFETY: both pointers point to live memory of the lengths given.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if sent < 0 {
            return Err(std::io::Error::last_os_error()).context("sending a probe");
        }
        Ok(())
    }

    /// Sends frames one after another.
    ///
    /// # Errors
    /// As [`Probe::send`].
    pub fn send_all(&mut self, frames: &mut [Vec<u8>]) -> Result<Times> {
        kernel::pin_to_cpu(0)?;
        let stretch = Stretch::begin()?;
        let mut us = Vec::with_capacity(frames.len());
        let mut lost_in_a_row = 0;
        for frame in frames {
            let time = self.send(frame)?;
            lost_in_a_row = if time.is_none() { lost_in_a_row + 1 } else { 0 };
            if lost_in_a_row == LOST_IN_A_ROW {
                bail!("{LOST_IN_A_ROW} packets in a row did not come back");
            }
            if lab::interrupt::requested() {
                bail!("interrupted");
            }
            us.push(time);
        }
        let (wall, cpu) = stretch.end()?;
        Ok(Times { us, taken_percent: taken_percent(wall, cpu) })
    }
}

/// Frames of a seeded trace: UDP from `inside` hosts to one server, 64 to 1500 bytes, `flows` flows
/// of sizes after Zipf, beginning all along.
///
/// # Errors
/// The numbers make no trace.
pub fn trace(
    packets: u64,
    flows: u32,
    seed: u64,
    inside: traffic::Subnet,
    server: std::net::Ipv4Addr,
) -> Result<Vec<Vec<u8>>> {
    let profile = traffic::Profile {
        seed,
        flows,
        packets,
        tcp_share: 0.0,
        inside,
        outside: traffic::Subnet { network: server, length: 32 },
        ..traffic::Profile::default()
    };
    let frames = traffic::Trace::new(profile)?.map(|packet| {
        let mut frame = packet.frame;
        // The stamp comes later, and differs: no checksum (RFC 768 allows that over IPv4).
        frame[40..42].fill(0);
        frame
    });
    Ok(frames.collect())
}

/// Frames of a capture's shape: UDP from `inside` hosts to one server, a flow for each
/// conversation, as long as the captured ones (at most 1500 bytes, at least 64).
///
/// # Errors
/// The file is no capture, or has nothing that can be played.
pub fn replayed(
    path: &std::path::Path,
    most: usize,
    inside: traffic::Subnet,
    server: std::net::Ipv4Addr,
) -> Result<(Vec<Vec<u8>>, traffic::Replay)> {
    const BYTES: std::ops::RangeInclusive<usize> = 64..=1_500;
    const FIRST_PORT: u16 = 1_024;
    let replay = traffic::Replay::read(path, most)?;
    if replay.packets.is_empty() {
        bail!(
            "{}: none of its {} frames is TCP or UDP over IPv4; give a capture that has some (Ethernet, raw IP, or as `tcpdump -i any` writes)",
            path.display(),
            replay.left_out
        );
    }
    let frame = |packet: &traffic::Replayed| {
        let host = inside.host(packet.conversation);
        let port = FIRST_PORT + (packet.conversation / inside.hosts()) as u16;
        packets::udp(
            (host, port),
            (server, PORT),
            packet.frame_bytes.clamp(*BYTES.start(), *BYTES.end()),
        )
    };
    Ok((replay.packets.iter().map(frame).collect(), replay))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_capture_is_played_between_the_labs_hosts() {
        let inside = traffic::Subnet { network: [10, 1, 0, 0].into(), length: 24 };
        let profile =
            traffic::Profile { flows: 300, packets: 2_000, ..traffic::Profile::default() };
        let file = tempfile::NamedTempFile::new().expect("file");
        let mut writer = capture::Writer::new(file.reopen().expect("file")).expect("pcap");
        let captured: Vec<traffic::Packet> = traffic::Trace::new(profile).expect("trace").collect();
        captured
            .iter()
            .try_for_each(|packet| writer.write(packet.time_ns, &packet.frame))
            .expect("pcap");
        writer.finish().expect("pcap");
        let (frames, replay) =
            replayed(file.path(), 100_000, inside, [198, 51, 100, 10].into()).expect("frames");
        assert!(frames.iter().map(Vec::len).eq(captured.iter().map(|packet| packet.frame.len())));
        let flows: HashSet<&[u8]> = frames.iter().map(|frame| &frame[26..38]).collect();
        assert_eq!((flows.len(), replay.conversations), (300, 300));
        assert!(
            flows.iter().all(|flow| flow[..3] == [10, 1, 0] && flow[4..8] == [198, 51, 100, 10])
        );
        // Two packets are of one flow exactly if they were of one conversation.
        assert!((1..frames.len()).all(|n| {
            (frames[n][26..38] == frames[n - 1][26..38])
                == (captured[n].flow == captured[n - 1].flow)
        }));
        let empty = tempfile::NamedTempFile::new().expect("file");
        capture::Writer::new(empty.reopen().expect("file"))
            .and_then(capture::Writer::finish)
            .expect("pcap");
        let refused = replayed(empty.path(), 1, inside, [198, 51, 100, 10].into())
            .expect_err("nothing to play");
        assert!(refused.to_string().contains("none of its 0 frames"), "{refused}");
    }
}
