//! pcap and pcapng files (or streams), frame by frame, through a buffer of fixed size.

use crate::{Frame, Link};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// No block of a capture may be longer: frames have 64 KiB at the most, and their blocks little
/// more.
const BUFFER_BYTES: usize = 1 << 20;
/// A capture of `any` has one interface for each link type; more than this many come from no tool.
const MOST_INTERFACES: usize = 4096;
const NS_PER_S: u128 = 1_000_000_000;

/// Why a capture cannot be read, or not further.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{file}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Neither format.
    #[error("{file}: neither pcap nor pcapng; `tcpdump -w FILE` and Wireshark write these")]
    NotACapture {
        /// The file.
        file: PathBuf,
    },
    /// It ends in the middle of a frame, as when the capturing program was killed.
    #[error("{file}: ends in the middle of frame {frame}: the frames before it are whole")]
    CutShort {
        /// The file.
        file: PathBuf,
        /// The frame, counted from 1.
        frame: u64,
    },
    /// Frames, but none that can be used.
    #[error("{file}: none of its {frames} frames can be used: {problem}")]
    Unusable {
        /// The file.
        file: PathBuf,
        /// How many it has.
        frames: u64,
        /// Why, and what to do.
        problem: String,
    },
    /// Bytes that follow no format.
    #[error(
        "{file}: frame {frame}: {problem}; the file is damaged: capture again, or repair it with `tshark -r`"
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The frame, counted from 1.
        frame: u64,
        /// What is wrong.
        problem: String,
    },
}

/// What a frame's bytes were cut out of, and when they were captured.
struct Captured {
    time_ns: u64,
    link: Link,
    original_bytes: u32,
}

/// A pcapng interface, or the one that a pcap file has.
#[derive(Clone, Copy)]
struct Source {
    link: Link,
    ticks_per_s: u64,
    offset_s: i64,
    most_bytes: u32,
}

impl Source {
    fn time_ns(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * NS_PER_S / u128::from(self.ticks_per_s.max(1));
        let offset = i128::from(self.offset_s) * NS_PER_S as i128;
        // A time before 1970 or after 2554 is no time.
        u64::try_from((ns as i128).saturating_add(offset)).unwrap_or(0)
    }
}

/// Reads frames, one after the other.
pub struct Reader {
    file: PathBuf,
    blocks: Box<dyn PcapReaderIterator + Send>,
    sources: Vec<Source>,
    frames: u64,
    bytes: Vec<u8>,
    ended: bool,
}

impl Reader {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        if path == Path::new("-") {
            return Reader::new(path, std::io::stdin());
        }
        let file =
            File::open(path).map_err(|source| Error::Read { file: path.to_owned(), source })?;
        Reader::new(path, file)
    }

    /// Reads a stream; `name` is for messages.
    pub fn new(name: &Path, stream: impl Read + Send + 'static) -> Result<Reader, Error> {
        let file = name.to_owned();
        match create_reader(BUFFER_BYTES, stream) {
            Ok(blocks) => {
                Ok(Reader { file, blocks, sources: vec![], frames: 0, bytes: vec![], ended: false })
            }
            Err(PcapError::ReadError) => Err(Error::Read {
                file,
                source: std::io::Error::other("cannot be read; is it a directory?"),
            }),
            Err(_) => Err(Error::NotACapture { file }),
        }
    }

    /// How many frames there were so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// That none of the frames so far can be used, and why.
    pub fn unusable(&self, problem: impl Into<String>) -> Error {
        Error::Unusable { file: self.file.clone(), frames: self.frames, problem: problem.into() }
    }

    /// The next frame; none at the end. After an error there is none either.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Error> {
        while !self.ended {
            match self.step() {
                Ok(None) => {}
                Ok(Some(Captured { time_ns, link, original_bytes })) => {
                    self.frames += 1;
                    return Ok(Some(Frame { time_ns, link, bytes: &self.bytes, original_bytes }));
                }
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn damaged(&self, problem: impl Into<String>) -> Error {
        Error::Damaged { file: self.file.clone(), frame: self.frames + 1, problem: problem.into() }
    }

    /// One block, or more bytes.
    fn step(&mut self) -> Result<Option<Captured>, Error> {
        let problem = match self.blocks.next() {
            Ok((length, block)) => {
                let found = take(block, &mut self.sources, &mut self.bytes);
                self.blocks.consume(length);
                match found {
                    Ok(found) => return Ok(found),
                    Err(problem) => problem,
                }
            }
            Err(PcapError::Eof) => {
                self.ended = true;
                return Ok(None);
            }
            Err(PcapError::Incomplete(_)) => return self.refill(),
            Err(PcapError::UnexpectedEof) => {
                return Err(Error::CutShort { file: self.file.clone(), frame: self.frames + 1 });
            }
            Err(PcapError::BufferTooSmall) => "longer than any frame",
            Err(PcapError::ReadError) => {
                return Err(Error::Read {
                    file: self.file.clone(),
                    source: std::io::Error::other("reading failed"),
                });
            }
            Err(_) => "not in the format",
        };
        Err(self.damaged(problem))
    }

    fn refill(&mut self) -> Result<Option<Captured>, Error> {
        let before = self.blocks.data().len();
        if self.blocks.refill().is_err() {
            return Err(Error::Read {
                file: self.file.clone(),
                source: std::io::Error::other("reading failed"),
            });
        }
        // The parser asks for more although the buffer is full: it would ask for ever.
        if self.blocks.data().len() == before && !self.blocks.reader_exhausted() {
            return Err(self.damaged("longer than any frame"));
        }
        Ok(None)
    }
}

/// What a block is: a frame (its bytes go to `bytes`), news of an interface, or nothing of
/// interest.
fn take(
    block: PcapBlockOwned<'_>,
    sources: &mut Vec<Source>,
    bytes: &mut Vec<u8>,
) -> Result<Option<Captured>, &'static str> {
    let mut frame =
        |source: &Source, time_ns: u64, data: &[u8], captured: u32, original_bytes: u32| {
            let data = data.get(..captured as usize).ok_or("its length is more than its bytes")?;
            bytes.clear();
            bytes.extend_from_slice(data);
            Ok(Some(Captured { time_ns, link: source.link, original_bytes }))
        };
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            sources.push(Source {
                link: Link::from_number(header.network.0),
                ticks_per_s: if header.is_nanosecond_precision() {
                    1_000_000_000
                } else {
                    1_000_000
                },
                offset_s: 0,
                most_bytes: u32::MAX,
            });
            Ok(None)
        }
        PcapBlockOwned::Legacy(block) => {
            let source = sources.first().ok_or("a frame before the file's header")?;
            let ticks = u64::from(block.ts_sec) * source.ticks_per_s + u64::from(block.ts_usec);
            frame(source, source.time_ns(ticks), block.data, block.caplen, block.origlen)
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            sources.clear();
            Ok(None)
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            if sources.len() >= MOST_INTERFACES {
                return Err("more interfaces than any machine has");
            }
            sources.push(Source {
                link: Link::from_number(interface.linktype.0),
                ticks_per_s: interface.ts_resolution().ok_or("an impossible time resolution")?,
                offset_s: interface.ts_offset(),
                most_bytes: if interface.snaplen == 0 { u32::MAX } else { interface.snaplen },
            });
            Ok(None)
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(block)) => {
            let source = sources
                .get(block.if_id as usize)
                .ok_or("an interface that the file does not describe")?;
            let ticks = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
            frame(source, source.time_ns(ticks), block.data, block.caplen, block.origlen)
        }
        PcapBlockOwned::NG(Block::SimplePacket(block)) => {
            let source = sources.first().ok_or("an interface that the file does not describe")?;
            frame(source, 0, block.data, block.origlen.min(source.most_bytes), block.origlen)
        }
        // Statistics, names, secrets of TLS: not frames.
        PcapBlockOwned::NG(_) => Ok(None),
    }
}
