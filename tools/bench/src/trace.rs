//! What is played where an experiment plays a trace: a seeded one, or the capture that was given.

use crate::experiments::Context;
use crate::probe;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Who the flows' hosts are, and where they send.
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 0);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

/// What is played.
pub struct Played {
    /// In its order.
    pub frames: Vec<Vec<u8>>,
    /// What is to be said of a capture, and the same as data.
    pub capture: Option<(String, Value)>,
}

/// Which of the frames are each flow's, by their numbers. The frames are UDP over IPv4 without
/// options or tags, as all are that are played.
pub fn numbers_by_flow<'a>(frames: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<Vec<usize>> {
    let mut by_flow: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (number, frame) in frames.into_iter().enumerate() {
        by_flow.entry(frame.get(26..38).unwrap_or_default()).or_default().push(number);
    }
    by_flow.into_values().collect()
}

/// The capture that was given, if one was: at most so many packets of it.
///
/// # Errors
/// As [`play`].
pub fn captured(context: &Context, packets: u32) -> Result<Option<Played>> {
    context.pcap.as_ref().map(|_| play(context, packets, 0)).transpose()
}

/// So many packets of the seeded trace, of so many flows; or the capture's that was given, at most
/// as many.
///
/// # Errors
/// The capture cannot be read, or has nothing that can be played.
pub fn play(context: &Context, packets: u32, flows: u32) -> Result<Played> {
    let inside = ::traffic::Subnet { network: INSIDE, length: 24 };
    let Some(path) = &context.pcap else {
        let frames = probe::trace(u64::from(packets), flows, 1, inside, SERVER)?;
        return Ok(Played { frames, capture: None });
    };
    let (frames, replay) = probe::replayed(path, packets as usize, inside, SERVER)?;
    let lengths = || frames.iter().map(Vec::len);
    let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
    let note = format!(
        "Traffic: {}{} packets of {}, in its order: {} conversations, {least} to {most} bytes{}.",
        if replay.more { "the first " } else { "the " },
        frames.len(),
        path.display(),
        replay.conversations,
        match replay.left_out {
            0 => String::new(),
            count => format!("; {count} frames that are not TCP or UDP over IPv4 left out"),
        }
    );
    let described = json!({
        "file": path, "packets": frames.len(), "conversations": replay.conversations, "left_out": replay.left_out,
        "more": replay.more, "least_bytes": least, "most_bytes": most,
    });
    Ok(Played { frames, capture: Some((note, described)) })
}
