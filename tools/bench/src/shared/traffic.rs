//! What the hosts send and get: raw frames, each with its number. The ledger is theirs, not the
//! switches'.

use crate::shared::SWITCHES;
use crate::shared::network::Network;
use crate::shared::plan::{Plan, Planned};
use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::time::{ClockId, clock_gettime};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Before each packet's number.
const MAGIC: u32 = 0x5357_4453;
/// From the frame's begin: behind Ethernet, IPv4 and UDP.
const NUMBER_AT: usize = 42;
const FRAME_BYTES: usize = 64;
/// Of the hosts behind port 0, and behind port 1: switches forward by port alone.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 5], [2, 0, 0, 0, 0, 6]];
/// What is still on its way arrives within this.
const ARRIVES: Duration = Duration::from_millis(200);

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When (CLOCK_MONOTONIC), just before it was sent.
    pub at_ns: u64,
    /// Number of the source.
    pub source: usize,
    /// To whom.
    pub destination: u32,
    /// Whether it came out behind the switch.
    pub arrived: bool,
}

/// All packets of each switch, in the order in which they were sent.
pub type Ledger = [Vec<Sent>; SWITCHES];

/// What others see while packets are sent.
#[derive(Default)]
pub struct Live {
    /// Packets so far.
    pub sent: AtomicU64,
    /// Of these, those that came out.
    pub arrived: AtomicU64,
}

/// Nanoseconds of CLOCK_MONOTONIC, which switches stamp packets with, too.
///
/// # Errors
/// The kernel refuses.
pub fn monotonic_ns() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// A socket that sends frames to an interface of the calling thread's namespace, and gets none.
fn sender(interface: &str) -> Result<UdpSocket> {
    let index = nix::net::if_::if_nametoindex(interface)
        .with_context(|| format!("interface {interface}"))?;
    let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeros is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a `sockaddr_ll` of the length that is given.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), bytes) };
    ensure!(result == 0, "bind to {interface}: {}", std::io::Error::last_os_error());
    // (Plain sends and reads work on any socket.)
    Ok(UdpSocket::from(fd))
}

fn frame(source: u32, destination: u32, number: u32) -> Result<Vec<u8>> {
    let builder = etherparse::PacketBuilder::ethernet2(MACS[0], MACS[1])
        .ipv4(source.to_be_bytes(), destination.to_be_bytes(), 64)
        .udp(1000, 9);
    let mut payload = [0; FRAME_BYTES - NUMBER_AT];
    payload[..4].copy_from_slice(&MAGIC.to_be_bytes());
    payload[4..8].copy_from_slice(&number.to_be_bytes());
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    builder.write(&mut frame, &payload)?;
    Ok(frame)
}

/// The number in a packet that begins with its IPv4 header.
fn number_of(packet: &[u8]) -> Option<usize> {
    let at = NUMBER_AT - 14;
    let word = |at: usize| Some(u32::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    (word(at)? == MAGIC).then(|| word(at + 4)).flatten().map(|it| it as usize)
}

fn send(
    socket: &UdpSocket,
    plan: &Plan,
    packets: &[Planned],
    begin_ns: u64,
    live: &Live,
) -> Result<Vec<Sent>> {
    let mut sent = Vec::with_capacity(packets.len());
    for (number, packet) in (0u32..).zip(packets) {
        let Planned { at, source, destination } = *packet;
        let bytes = frame(plan.sources[source].address, destination, number)?;
        let due = begin_ns + at.as_nanos() as u64;
        let now = monotonic_ns()?;
        if now < due {
            thread::sleep(Duration::from_nanos(due - now));
        }
        ensure!(!lab::interrupt::requested(), "interrupted");
        let at_ns = monotonic_ns()?;
        socket.send(&bytes).context("sending a frame")?;
        live.sent.fetch_add(1, Ordering::Relaxed);
        sent.push(Sent { at_ns, source, destination, arrived: false });
    }
    Ok(sent)
}

/// Which of so many packets arrive, until `over` and nothing comes any more.
fn receive(socket: &UdpSocket, count: usize, over: &AtomicBool, live: &Live) -> Result<Vec<bool>> {
    let (mut arrived, mut packet) = (vec![false; count], [0; 2048]);
    loop {
        match socket.recv(&mut packet) {
            Ok(length) => {
                let number = number_of(&packet[..length]);
                if let Some(place) = number.and_then(|number| arrived.get_mut(number)) {
                    *place = true;
                    live.arrived.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if over.load(Ordering::Acquire) {
                    return Ok(arrived);
                }
            }
            Err(error) => return Err(error).context("receiving"),
        }
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a host's thread panicked"))?
}

/// Sends all packets of the plan.
///
/// # Errors
/// A socket cannot be made or used, or somebody asked this process to stop.
pub fn run(network: &Network, plan: &Plan, live: &Live) -> Result<Ledger> {
    let (mut senders, mut sinks) = (vec![], vec![]);
    for switch in 0..SWITCHES {
        let interface = format!("s{}", switch + 1);
        senders.push(network.netns('a', switch)?.inside(|| sender(&interface))??);
        sinks.push(network.netns('v', switch)?.run(lab::raw::all_packets)?);
    }
    let over = AtomicBool::new(false);
    let begin_ns = monotonic_ns()? + 20_000_000;
    thread::scope(|scope| {
        let lanes = || plan.packets.iter();
        let over = &over;
        let sinks: Vec<_> = (sinks.iter().zip(lanes()))
            .map(|(socket, lane)| scope.spawn(move || receive(socket, lane.len(), over, live)))
            .collect();
        let senders: Vec<_> = (senders.iter().zip(lanes()))
            .map(|(socket, lane)| scope.spawn(move || send(socket, plan, lane, begin_ns, live)))
            .collect();
        let sent: Vec<Result<Vec<Sent>>> = senders.into_iter().map(joined).collect();
        thread::sleep(ARRIVES);
        over.store(true, Ordering::Release);
        let arrived: Vec<Result<Vec<bool>>> = sinks.into_iter().map(joined).collect();
        let mut ledger = Ledger::default();
        for ((lane, sent), arrived) in ledger.iter_mut().zip(sent).zip(arrived) {
            *lane = sent?;
            for (packet, arrived) in lane.iter_mut().zip(arrived?) {
                packet.arrived = arrived;
            }
        }
        Ok(ledger)
    })
}

#[cfg(test)]
mod tests {
    use super::{FRAME_BYTES, frame, number_of};

    #[test]
    fn a_frame_tells_its_number() {
        let bytes = frame(1, 2, 77).expect("a frame");
        assert_eq!((bytes.len(), number_of(&bytes[14..])), (FRAME_BYTES, Some(77)));
        assert_eq!(number_of(&bytes[10..]), None);
        assert_eq!(number_of(&bytes[14..40]), None);
    }
}
