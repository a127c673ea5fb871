//! The chart of a run: what its messages say, in a few words.

use crate::frames::payload;
use crate::scenario::Machine;
use netchain_protocol::message::{AGAIN, MOVED, REPLY, STAMPED};
use netchain_protocol::{Message, Operation, Status};

/// The picture of a run.
pub type Chart = simnet::Chart<Machine>;

/// A chart with a column for each machine.
pub(crate) fn new(switches: usize, clients: usize) -> Chart {
    let switches = (0..switches).map(Machine::Switch);
    let clients = (0..clients).map(Machine::Client);
    let all = clients.chain(switches).chain([Machine::Controller]);
    Chart::new(all.map(|machine| (machine, machine.to_string())).collect())
}

/// A version, as session and number.
pub(crate) fn version(version: u64) -> String {
    format!("{}.{}", version >> 48, version & 0xffff_ffff_ffff)
}

/// What a frame says; `None`: what a chart leaves out (probes).
pub(crate) fn describe(frame: &[u8]) -> Option<String> {
    let Ok(message) = Message::decode(payload(frame)) else { return Some("?".to_owned()) };
    if message.operation == Operation::Probe {
        return None;
    }
    let is = |flag: u16, text: &'static str| if message.flags & flag != 0 { text } else { "" };
    let status = match message.status {
        Status::Request => String::new(),
        status => format!(" {status:?}"),
    };
    let value = match &message.value {
        Some(bytes) => {
            let word = bytes.first_chunk::<8>().map_or(0, |word| u64::from_be_bytes(*word));
            format!(" ={word}")
        }
        None => String::new(),
    };
    Some(format!(
        "{:?} k{} #{}{status} view {} v{}{value}{}{}{}{}",
        message.operation,
        message.key.0[1],
        message.number,
        message.view,
        version(message.version),
        is(REPLY, " reply"),
        is(STAMPED, " stamped"),
        is(MOVED, " moved"),
        is(AGAIN, " again"),
    ))
}
