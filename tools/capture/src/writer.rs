//! Frames into a pcap file with nanoseconds, as tcpdump and Wireshark read it.

use std::io::{Result, Write};

/// Says: pcap, nanoseconds, in this byte order (little-endian is written).
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MOST_FRAME_BYTES: u32 = 262_144;
const LINK_ETHERNET: u32 = 1;
const NS_PER_S: u64 = 1_000_000_000;

/// Writes Ethernet frames.
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(mut out: W) -> Result<Writer<W>> {
        out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        out.write_all(&[2, 0, 4, 0])?; // version 2.4
        for word in [0, 0, MOST_FRAME_BYTES, LINK_ETHERNET] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Writer { out })
    }

    /// Adds a frame that was captured at `time_ns` (since 1970; the format ends in 2106).
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> Result<()> {
        let seconds = u32::try_from(time_ns / NS_PER_S).unwrap_or(u32::MAX);
        let length = frame.len() as u32;
        for word in [seconds, (time_ns % NS_PER_S) as u32, length, length] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(frame)
    }

    /// Gives back what it writes to, flushed.
    pub fn finish(mut self) -> Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
