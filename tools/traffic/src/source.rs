//! Packets from a profile or from a capture, behind one door.

use crate::profile::{Fault, Profile};
use crate::trace::Trace;
use capture::{Error, Reader, ethernet_into};
use std::path::Path;

/// Where an experiment's packets come from.
pub enum Source {
    /// Made up.
    Synthetic(Box<Trace>),
    /// Captured.
    Capture(Box<Captured>),
}

/// A capture's frames, as Ethernet carries them; those that the capture cut, or of unknown links,
/// are left out, unless all are.
pub struct Captured {
    reader: Reader,
    found: bool,
    /// Why the last one was left out.
    left_out: Option<String>,
}

impl Captured {
    fn next_into(&mut self, frame: &mut Vec<u8>) -> Result<Option<u64>, Error> {
        while let Some(read) = self.reader.next_frame()? {
            if read.bytes.len() != read.original_bytes as usize {
                self.left_out =
                    Some("the capture cut them; capture them whole (`tcpdump -s 0`)".to_owned());
            } else if ethernet_into(&read, frame) {
                self.found = true;
                return Ok(Some(read.time_ns));
            } else {
                let number = read.link.number();
                self.left_out = Some(format!(
                    "they are of link type {number} (see https://www.tcpdump.org/linktypes.html); Ethernet, raw IP and what `tcpdump -i any` writes are read"
                ));
            }
        }
        match self.left_out.take().filter(|_| !self.found) {
            Some(problem) => Err(self.reader.unusable(problem)),
            None => Ok(None),
        }
    }
}

impl Source {
    /// From a profile.
    pub fn synthetic(profile: Profile) -> Result<Source, Fault> {
        Ok(Source::Synthetic(Box::new(Trace::new(profile)?)))
    }

    /// From a pcap or pcapng file; `-` is standard input.
    pub fn capture(path: &Path) -> Result<Source, Error> {
        let reader = Reader::open(path)?;
        Ok(Source::Capture(Box::new(Captured { reader, found: false, left_out: None })))
    }

    /// The next packet's frame goes to `frame`; its time in ns since 1970, or none at the end.
    pub fn next_into(&mut self, frame: &mut Vec<u8>) -> Result<Option<u64>, Error> {
        match self {
            Source::Synthetic(trace) => Ok(trace.next().map(|packet| {
                *frame = packet.frame;
                packet.time_ns
            })),
            Source::Capture(captured) => captured.next_into(frame),
        }
    }
}
