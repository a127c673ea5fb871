//! Headers as a whole, those of variable length among them: copied, and in lists of hashes and
//! checksums.

use super::statement::Body;
use super::types::{HeaderType, Ty};
use rand::Rng;
use rand::rngs::StdRng;

impl HeaderType {
    /// Bits of all fields but the varbit one.
    fn fixed_bits(&self) -> u32 {
        self.fields.iter().map(|(_, ty)| ty.width()).sum::<u32>() + self.wide.unwrap_or(0)
    }

    /// The most bits that it can have.
    pub fn most_bits(&self) -> u32 {
        self.fixed_bits() + self.varbit.unwrap_or(0)
    }
}

/// Of these headers one that fits a list of so many bits; its path, and its bits at most.
pub(super) fn drawn(
    headers: &[(String, usize)],
    types: &[HeaderType],
    room: u32,
    random: &mut StdRng,
) -> Option<(String, u32)> {
    let fitting: Vec<&(String, usize)> =
        headers.iter().filter(|(_, kind)| types[*kind].most_bits() <= room).collect();
    let at = random.random_range(0..fitting.len().max(1));
    fitting.get(at).map(|(path, kind)| (path.clone(), types[*kind].most_bits()))
}

impl Body<'_> {
    /// A header for the list of a hash, if one fits.
    pub fn listed_header(&mut self, room: u32) -> Option<String> {
        let varbit = !self.varbits.is_empty() && self.random.random_bool(0.6);
        let headers = if varbit { &self.varbits } else { &self.headers };
        drawn(headers, self.header_types, room, self.random).map(|(path, _)| path)
    }

    fn varbit(&mut self) -> String {
        self.varbits[self.random.random_range(0..self.varbits.len())].0.clone()
    }

    /// A header with a varbit field: its validity, and copies of all or a part of it.
    pub fn variable_length(&mut self) {
        if self.varbits.is_empty() {
            return self.assignment();
        }
        let (target, source) = (self.varbit(), self.varbit());
        // The packet's own headers stay as they are where the layout is to stay.
        let kind = if self.keeps_layout { 7 } else { self.random.random_range(0..12) };
        match kind {
            0..3 => self.line(format!("{target} = {source};")),
            3 => self.line(format!("{target}.v = {source}.v;")),
            4 => self.line(format!("{target}.setInvalid();")),
            5 => self.line(format!("{target}.setValid();")),
            6 => self.line(format!("{target} = {{#}};")),
            _ => self.varbit_local(&source),
        }
    }

    /// A local copy, which then goes into a hash, or back.
    fn varbit_local(&mut self, source: &str) {
        let kind = self.varbits[0].1;
        self.locals += 1;
        let name = format!("v{}", self.locals);
        self.line(format!("{} {name} = {source};", self.header_types[kind].name));
        if !self.keeps_layout && self.random.random_bool(0.3) {
            let condition = self.expression(Ty::Bool, 1);
            self.line(format!("if ({condition}) {{ {source}.setInvalid(); }}"));
        }
        self.varbits.push((name, kind));
    }
}
