//! Frames into a pcap file with nanoseconds, as tcpdump and Wireshark read it.

use pcap_parser::{LegacyPcapBlock, Linktype, PcapHeader, ToVec};
use std::io::{Error, Result, Write};

/// Says: pcap, nanoseconds, in this byte order (little-endian is written).
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MOST_FRAME_BYTES: u32 = 262_144;
const NS_PER_S: u64 = 1_000_000_000;

/// Writes Ethernet frames.
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(mut out: W) -> Result<Writer<W>> {
        let header = PcapHeader {
            magic_number: MAGIC_NANOSECONDS,
            snaplen: MOST_FRAME_BYTES,
            network: Linktype::ETHERNET,
            ..PcapHeader::new()
        };
        out.write_all(&header.to_vec_raw().map_err(Error::other)?)?;
        Ok(Writer { out })
    }

    /// Adds a frame that was captured at `time_ns` (since 1970; the format ends in 2106).
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> Result<()> {
        let length = frame.len() as u32;
        let block = LegacyPcapBlock {
            ts_sec: u32::try_from(time_ns / NS_PER_S).unwrap_or(u32::MAX),
            // The magic says that these are nanoseconds.
            ts_usec: (time_ns % NS_PER_S) as u32,
            caplen: length,
            origlen: length,
            data: frame,
        };
        self.out.write_all(&block.to_vec_raw().map_err(Error::other)?)
    }

    /// Gives back what it writes to, flushed.
    pub fn finish(mut self) -> Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
