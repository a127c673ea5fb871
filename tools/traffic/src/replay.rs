//! A capture as its shape: which conversation each packet belongs to, and how long it is. An
//! experiment plays that between hosts of its own: addresses that somebody captured lead nowhere in
//! its network.

use capture::{Error, Reader, ipv4_packet};
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;

const ETHERNET_BYTES: usize = 14;

/// One packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The conversation's number, from 0 in the order of their first packets; both directions are
    /// one.
    pub conversation: u32,
    /// The frame's length on the wire, Ethernet header included and without VLAN tags.
    pub frame_bytes: usize,
}

/// What of a capture is played.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// The packets, in the capture's order.
    #[serde(skip)]
    pub packets: Vec<Replayed>,
    /// How many conversations they belong to.
    pub conversations: u32,
    /// Frames that were read and are not TCP or UDP over IPv4, or are fragments.
    pub left_out: u64,
    /// Whether the capture has more than was asked for.
    pub more: bool,
}

/// An end of a conversation, and the other; the smaller first.
type Key = ([u8; 6], [u8; 6], u8);

/// Conversation of an IPv4 packet; none if it has no ports.
fn ipv4(packet: &[u8]) -> Option<Key> {
    let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
    let protocol = *packet.get(9)?;
    let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
    if packet[0] >> 4 != 4 || header_bytes < 20 || ![6, 17].contains(&protocol) || fragment != 0 {
        return None;
    }
    let ports = packet.get(header_bytes..header_bytes + 4)?;
    let end = |address: &[u8], port: &[u8]| -> Option<[u8; 6]> {
        [address, port].concat().try_into().ok()
    };
    let (one, other) =
        (end(packet.get(12..16)?, &ports[..2])?, end(packet.get(16..20)?, &ports[2..])?);
    Some((one.min(other), one.max(other), protocol))
}

impl Replay {
    /// Reads the first `most` packets that are TCP or UDP over IPv4 from a pcap or pcapng file; `-`
    /// is standard input. Frames of which the capture has only the headers count with the length
    /// that they had.
    ///
    /// # Errors
    /// The file cannot be read, or is no capture.
    pub fn read(path: &Path, most: usize) -> Result<Replay, Error> {
        let mut reader = Reader::open(path)?;
        let (mut replay, mut known) = (Replay::default(), HashMap::new());
        while let Some(frame) = reader.next_frame()? {
            let found = ipv4_packet(&frame).and_then(|packet| Some((ipv4(packet)?, packet)));
            let Some((key, packet)) = found else {
                replay.left_out += 1;
                continue;
            };
            if replay.packets.len() == most {
                replay.more = true;
                break;
            }
            let next = known.len() as u32;
            let conversation = *known.entry(key).or_insert(next);
            let cut = (frame.original_bytes as usize).saturating_sub(frame.bytes.len());
            let frame_bytes = ETHERNET_BYTES + packet.len() + cut;
            replay.packets.push(Replayed { conversation, frame_bytes });
        }
        replay.conversations = known.len() as u32;
        Ok(replay)
    }
}
