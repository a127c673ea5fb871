//! Answers to status requests: JSON in the place of the packet.

use crate::MAX_PACKET_BYTES;
use serde::Serialize;

/// An answer as a message carries it. While it is too long, `shorten` leaves something out of it, more with each step (from 0 on); `false`: nothing is left to leave out.
pub fn json_that_fits<T: Serialize>(mut answer: T, mut shorten: impl FnMut(&mut T, usize) -> bool) -> Vec<u8> {
    let mut step = 0;
    loop {
        let json = serde_json::to_vec(&answer).unwrap_or_default();
        if json.len() <= MAX_PACKET_BYTES || !shorten(&mut answer, step) {
            return json;
        }
        step += 1;
    }
}
