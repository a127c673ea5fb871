//! What went in and came out, per flow, and whether that is linearizable.
//!
//! The checked program counts packets of a flow and writes the count into the packet, so a history
//! is easy to judge exactly: in any sequential order S each input takes the next number, and inputs
//! without outputs may stand anywhere or nowhere (RedPlane Definition 3). A history is linearizable
//! if and only if no two outputs of a flow have the same number, and whenever an output precedes an
//! input, the input's number is greater, and a number n needs at least n inputs before its output.
//!
//! The simulator keeps its histories in virtual time; `lab chaos` those of a real network, also in
//! files of JSON lines ([`Timed`]).

#![forbid(unsafe_code)]

pub mod linearizable;

use linearizable::{Counter, Operation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Error, ErrorKind, Result as IoResult, Write};

/// An event at a switch's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// Packet `packet` of flow `flow` came in.
    Input {
        /// The flow.
        flow: u32,
        /// Unique over all flows.
        packet: u32,
    },
    /// It went out with this count.
    Output {
        /// The flow.
        flow: u32,
        /// As in its input.
        packet: u32,
        /// The number that the program gave it.
        count: u64,
    },
}

/// An event and when it was. On a real network an input's time is taken before the packet is sent
/// and an output's after it was received: then an output that is earlier than an input here was so
/// there, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// Nanoseconds since the recording began.
    pub ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Appends events to a file of JSON lines, such as
/// `{"ns":812,"output":{"flow":1,"packet":7,"count":3}}`.
///
/// # Errors
/// What `out` reports.
pub fn write_lines(out: &mut impl Write, events: &[Timed]) -> IoResult<()> {
    for event in events {
        serde_json::to_writer(&mut *out, event)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads a file of JSON lines.
///
/// # Errors
/// What `lines` reports, and a line that is no event, by its number.
pub fn read_lines(lines: impl BufRead) -> IoResult<Vec<Timed>> {
    let mut events = Vec::new();
    for (i, line) in lines.lines().enumerate() {
        let event = serde_json::from_str(&line?)
            .map_err(|e| Error::new(ErrorKind::InvalidData, format!("line {}: {e}", i + 1)))?;
        events.push(event);
    }
    Ok(events)
}

/// Each flow's operations, for [`linearizable::check`]. Of a packet that the network doubled the
/// first output counts.
pub fn operations(events: &[Timed]) -> BTreeMap<u32, Vec<Operation<Counter>>> {
    let mut flows: BTreeMap<u32, Vec<Operation<Counter>>> = BTreeMap::new();
    let mut places: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let inputs = events.iter().filter_map(|timed| match timed.event {
        Event::Input { flow, packet } => Some((timed.ns, flow, packet)),
        Event::Output { .. } => None,
    });
    for (ns, flow, packet) in inputs {
        let operations = flows.entry(flow).or_default();
        places.insert((flow, packet), operations.len());
        operations.push(Operation { input: Counter::Increment, invoked: ns, returned: None });
    }
    for timed in events {
        let Event::Output { flow, packet, count } = timed.event else { continue };
        let operations = flows.entry(flow).or_default();
        match places.get(&(flow, packet)).and_then(|place| operations.get_mut(*place)) {
            Some(operation) => {
                if operation.returned.is_none_or(|(ns, _)| timed.ns < ns) {
                    operation.returned = Some((timed.ns, count));
                }
            }
            // What never came in cannot be explained by any order: its input is as late as its
            // output.
            None => operations.push(Operation {
                input: Counter::Read,
                invoked: timed.ns,
                returned: Some((timed.ns, u64::MAX)),
            }),
        }
    }
    flows
}

/// Why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two packets of a flow got the same number.
    SameCount {
        /// Of which flow.
        flow: u32,
        /// The number.
        count: u64,
        /// The packets.
        packets: (u32, u32),
    },
    /// A packet that came in after `earlier` had gone out got a smaller number.
    WentBack {
        /// Of which flow.
        flow: u32,
        /// Packet and number that went out first.
        earlier: (u32, u64),
        /// Packet and number that came in later.
        later: (u32, u64),
    },
    /// More packets counted than had come in.
    TooMany {
        /// Of which flow.
        flow: u32,
        /// The number.
        count: u64,
        /// How many packets had come in when it went out.
        inputs: u64,
    },
}

/// Events in the order of (virtual) time.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// The history of events that were recorded in several places: in the order of their times,
    /// inputs first among equals.
    pub fn of(mut events: Vec<Timed>) -> Self {
        events.sort_by_key(|timed| (timed.ns, matches!(timed.event, Event::Output { .. })));
        Self { events: events.into_iter().map(|timed| timed.event).collect() }
    }

    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// How many packets went out.
    pub fn outputs(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Output { .. })).count()
    }

    /// Has this packet gone out?
    pub fn went_out(&self, number: u32) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, Event::Output { packet, .. } if *packet == number))
    }

    /// Is it per-flow linearizable?
    pub fn check(&self) -> Result<(), Violation> {
        // Per flow: inputs so far, highest count that went out with its packet.
        let mut flows: BTreeMap<u32, (u64, (u32, u64))> = BTreeMap::new();
        let mut floor_at_input: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        let mut seen: BTreeMap<(u32, u64), u32> = BTreeMap::new();
        for event in &self.events {
            match *event {
                Event::Input { flow, packet } => {
                    let state = flows.entry(flow).or_default();
                    state.0 += 1;
                    floor_at_input.insert(packet, state.1);
                }
                Event::Output { flow, packet, count } => {
                    let state = flows.entry(flow).or_default();
                    if let Some(&other) = seen.get(&(flow, count)) {
                        if other == packet {
                            continue; // the network doubled it
                        }
                        return Err(Violation::SameCount { flow, count, packets: (other, packet) });
                    }
                    seen.insert((flow, count), packet);
                    if count > state.0 {
                        return Err(Violation::TooMany { flow, count, inputs: state.0 });
                    }
                    let earlier = floor_at_input.get(&packet).copied().unwrap_or_default();
                    if count <= earlier.1 {
                        return Err(Violation::WentBack { flow, earlier, later: (packet, count) });
                    }
                    if count > state.1.1 {
                        state.1 = (packet, count);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(events: &[Event]) -> History {
        History { events: events.to_vec() }
    }
    fn input(packet: u32) -> Event {
        Event::Input { flow: 1, packet }
    }
    fn output(packet: u32, count: u64) -> Event {
        Event::Output { flow: 1, packet, count }
    }

    #[test]
    fn lines_come_back_and_are_put_in_order() {
        let timed = |ns, event| Timed { ns, event };
        let events = vec![
            timed(9, output(1, 1)),
            timed(3, input(1)),
            timed(9, input(2)),
            timed(10, output(2, 2)),
        ];
        let mut file = Vec::new();
        write_lines(&mut file, &events).expect("written");
        assert!(file.starts_with(br#"{"ns":9,"output":{"flow":1,"packet":1,"count":1}}"#));
        assert_eq!(read_lines(&file[..]).expect("read"), events);
        assert_eq!(History::of(events).events, [input(1), input(2), output(1, 1), output(2, 2)]);
        let error = read_lines(&b"{\"ns\":1,\"input\":{\"flow\":1,\"packet\":1}}\n{}\n"[..])
            .expect_err("line 2");
        assert!(error.to_string().starts_with("line 2: "), "{error}");
    }

    #[test]
    fn losses_and_overlapping_outputs_in_any_order_are_linearizable() {
        let events = [input(1), input(2), input(3), output(3, 2), output(2, 3)];
        assert_eq!(history(&events).check(), Ok(()));
    }

    #[test]
    fn a_number_given_twice_is_found() {
        let events = [input(1), output(1, 1), input(2), output(2, 1)];
        assert!(matches!(history(&events).check(), Err(Violation::SameCount { count: 1, .. })));
    }

    #[test]
    fn going_back_is_found() {
        let events = [input(1), input(2), input(3), output(3, 3), input(4), output(4, 2)];
        assert!(matches!(history(&events).check(), Err(Violation::WentBack { .. })));
    }

    #[test]
    fn counting_what_never_came_is_found() {
        assert!(matches!(
            history(&[input(1), output(1, 2)]).check(),
            Err(Violation::TooMany { .. })
        ));
    }
}
