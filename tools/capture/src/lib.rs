//! Frames from captures: pcap and pcapng files, and interfaces as they carry them; and frames into
//! pcap files.
//!
//! This crate owns formats of captures and link layers. It knows no protocol above UDP. Files are
//! hostile input: any bytes give frames or an error, in bounded memory.

mod datagram;
mod file;
mod live;
mod writer;

pub use datagram::{Datagram, datagram, ethernet_into, ipv4_packet};
pub use file::{Error, Reader};
pub use live::{Interface, Seen, Statistics, stamps_frames};
pub use writer::Writer;

/// What a frame's first bytes are (the registry of link types:
/// <https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet: LINKTYPE_ETHERNET, 1.
    Ethernet,
    /// "Cooked" by Linux, as `tcpdump -i any` writes: LINKTYPE_LINUX_SLL, 113.
    LinuxCooked,
    /// The same, second version: LINKTYPE_LINUX_SLL2, 276.
    LinuxCooked2,
    /// IPv4 or IPv6 with nothing before it: LINKTYPE_RAW, 101.
    RawIp,
    /// Another one, by its number.
    Other(i32),
}

impl Link {
    /// By its number in files.
    pub fn from_number(number: i32) -> Link {
        match number {
            1 => Link::Ethernet,
            113 => Link::LinuxCooked,
            276 => Link::LinuxCooked2,
            101 => Link::RawIp,
            other => Link::Other(other),
        }
    }

    /// Its number in files.
    pub fn number(self) -> i32 {
        match self {
            Link::Ethernet => 1,
            Link::LinuxCooked => 113,
            Link::LinuxCooked2 => 276,
            Link::RawIp => 101,
            Link::Other(other) => other,
        }
    }
}

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When, in ns since 1970.
    pub time_ns: u64,
    /// What it begins with.
    pub link: Link,
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// Its length on the wire, in bytes: more than `bytes` has if the capture cut it.
    pub original_bytes: u32,
}
