//! Packets from a profile or from a capture, behind one door.

use crate::profile::{Fault, Profile};
use crate::trace::Trace;
use capture::{Error, Link, Reader};
use std::path::Path;

/// Where an experiment's packets come from.
pub enum Source {
    /// Made up.
    Synthetic(Box<Trace>),
    /// Captured: its Ethernet frames; those that the capture cut, or of other links, are left out.
    Capture(Box<Reader>),
}

impl Source {
    /// From a profile.
    pub fn synthetic(profile: Profile) -> Result<Source, Fault> {
        Ok(Source::Synthetic(Box::new(Trace::new(profile)?)))
    }

    /// From a pcap or pcapng file; `-` is standard input.
    pub fn capture(path: &Path) -> Result<Source, Error> {
        Ok(Source::Capture(Box::new(Reader::open(path)?)))
    }

    /// The next packet's frame goes to `frame`; its time in ns since 1970, or none at the end.
    pub fn next_into(&mut self, frame: &mut Vec<u8>) -> Result<Option<u64>, Error> {
        match self {
            Source::Synthetic(trace) => Ok(trace.next().map(|packet| {
                *frame = packet.frame;
                packet.time_ns
            })),
            Source::Capture(reader) => {
                while let Some(found) = reader.next_frame()? {
                    if found.link == Link::Ethernet && found.bytes.len() == found.original_bytes as usize {
                        frame.clear();
                        frame.extend_from_slice(found.bytes);
                        return Ok(Some(found.time_ns));
                    }
                }
                Ok(None)
            }
        }
    }
}
