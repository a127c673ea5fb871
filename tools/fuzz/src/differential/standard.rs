//! Fields of standard_metadata that the target sets itself: programs write them, and read what
//! became of them.

use super::statement::Body;
use super::types::{Named, Ty};
use rand::Rng;
use rand::rngs::StdRng;

/// (field, bits, whether the parser may write it, too)
const FIELDS: [(&str, u32, bool); 11] = [
    ("checksum_error", 1, true),
    ("packet_length", 32, true),
    ("instance_type", 32, true),
    ("enq_timestamp", 32, true),
    ("enq_qdepth", 19, true),
    ("deq_timedelta", 32, true),
    ("deq_qdepth", 19, true),
    ("egress_global_timestamp", 48, true),
    ("ingress_global_timestamp", 48, true),
    ("priority", 3, true),
    // What a parser leaves there is what egress_spec says, later.
    ("egress_port", 9, false),
];

/// Errors that programs compare with, and now and then write.
pub(super) const ERRORS: [&str; 5] =
    ["NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "ParserTimeout"];

/// A field that a program writes: its place in [`FIELDS`].
pub(super) type Written = usize;

/// Some of the fields.
pub(super) fn draw(random: &mut StdRng) -> Vec<Written> {
    let count = random.random_range(1..4);
    (0..count).map(|_| random.random_range(0..FIELDS.len())).collect()
}

/// These fields, to be read.
pub(super) fn named(written: &[Written]) -> impl Iterator<Item = Named> + '_ {
    written
        .iter()
        .map(|at| Named { path: format!("sm.{}", FIELDS[*at].0), ty: Ty::bits(FIELDS[*at].1) })
}

impl Body<'_> {
    /// One of the program's fields is written, the parser's error, or standard_metadata as a whole.
    pub fn standard_metadata(&mut self, in_parser: bool) {
        if self.standard.is_empty() || (!in_parser && !self.in_control) {
            return self.assignment();
        }
        let (name, width, by_parser) =
            FIELDS[self.standard[self.random.random_range(0..self.standard.len())]];
        match self.random.random_range(0..8) {
            0 | 1 => {
                let error = ERRORS[self.random.random_range(0..ERRORS.len())];
                self.line(format!("sm.parser_error = error.{error};"));
            }
            2 if !in_parser => {
                self.locals += 1;
                let local = format!("v{}", self.locals);
                self.line(format!("standard_metadata_t {local} = sm;"));
                self.statements(1, 1);
                self.line(format!("sm = {local};"));
            }
            _ if in_parser && !by_parser => {}
            _ => {
                let value = self.expression(Ty::bits(width), 2);
                self.line(format!("sm.{name} = {value};"));
            }
        }
    }
}
