//! Expressions of a wanted type.

use super::standard::ERRORS;
use super::statement::Body;
use super::types::{MAX_WIDTH, Ty, convert, literal};
use rand::Rng;

impl Body<'_> {
    /// An expression of this type, in parentheses where it needs them, of at most so many levels.
    pub fn expression(&mut self, ty: Ty, depth: u32) -> String {
        if depth == 0 || self.random.random_bool(0.15) {
            return self.leaf(ty);
        }
        match ty {
            Ty::Bool => self.condition(depth),
            Ty::Bits { width, signed } => self.number(width, signed, depth),
        }
    }

    fn leaf(&mut self, ty: Ty) -> String {
        if !self.wides.is_empty() && self.random.random_bool(0.1) {
            return self.wide_slice(ty);
        }
        if self.readable.is_empty() || self.random.random_bool(0.25) {
            return literal(ty, self.random);
        }
        let same: Vec<usize> =
            (0..self.readable.len()).filter(|index| self.readable[*index].ty == ty).collect();
        let index = if !same.is_empty() && self.random.random_bool(0.4) {
            same[self.random.random_range(0..same.len())]
        } else {
            self.random.random_range(0..self.readable.len())
        };
        let found = &self.readable[index];
        convert(&found.path, found.ty, ty)
    }

    /// Some bits of a value that is wider than what the target computes with.
    fn wide_slice(&mut self, ty: Ty) -> String {
        let (path, whole) = self.wides[self.random.random_range(0..self.wides.len())].clone();
        let low = self.random.random_range(0..=whole - ty.width());
        convert(&format!("{path}[{}:{low}]", low + ty.width() - 1), Ty::bits(ty.width()), ty)
    }

    fn number(&mut self, width: u32, signed: bool, depth: u32) -> String {
        let ty = Ty::Bits { width, signed };
        let next = depth - 1;
        match self.random.random_range(0..22) {
            0..7 => {
                let operators = ["+", "-", "*", "&", "|", "^", "|+|", "|-|"];
                // The target saturates int<W> up to 64 bits.
                let most = if signed && width > 64 { 6 } else { operators.len() };
                let operator = operators[self.random.random_range(0..most)];
                format!("({} {operator} {})", self.expression(ty, next), self.expression(ty, next))
            }
            7 | 8 => {
                let operator = if self.random.random() { "-" } else { "~" };
                // An unsigned complement only: int<W> has one too, but not every width of it is
                // worth the text.
                format!("({operator}{})", self.expression(ty, next))
            }
            9..12 => self.shift(ty, next),
            12 | 13 if width > 1 && !signed => {
                let high = self.random.random_range(1..width);
                let (a, b) = (Ty::bits(high), Ty::bits(width - high));
                format!("({} ++ {})", self.expression(a, next), self.expression(b, next))
            }
            14 | 15 if !signed => self.slice(width, next),
            16 if !signed => {
                let operator = if self.random.random() { "/" } else { "%" };
                // By a constant only (P4-16 §8.6), and on more than 64 bits the target has powers
                // of two only.
                let divisor = match width {
                    0..=64 => super::types::number(width, self.random).max(1),
                    _ => 1 << self.random.random_range(0..width),
                };
                let divisor = format!("{width}w{divisor}");
                format!("({} {operator} {divisor})", self.expression(ty, next))
            }
            17 | 18 => {
                let condition = self.expression(Ty::Bool, next);
                format!(
                    "({condition} ? {} : {})",
                    self.expression(ty, next),
                    self.expression(ty, next)
                )
            }
            19 | 20 => {
                let from = super::types::scalar(self.random);
                let inner = self.expression(from, next);
                convert(&inner, from, ty)
            }
            _ => self.element(ty).unwrap_or_else(|| self.leaf(ty)),
        }
    }

    fn shift(&mut self, ty: Ty, next: u32) -> String {
        let operator = if self.random.random() { "<<" } else { ">>" };
        let amount = if self.random.random() {
            let most = ty.width() + 2;
            format!("8w{}", self.random.random_range(0..most))
        } else {
            let width = if self.random.random_bool(0.9) {
                self.random.random_range(1..=8)
            } else {
                super::types::width(self.random)
            };
            self.expression(Ty::bits(width), next)
        };
        format!("({} {operator} {amount})", self.expression(ty, next))
    }

    fn slice(&mut self, width: u32, next: u32) -> String {
        let from = self.random.random_range(width..=(width + 40).min(MAX_WIDTH));
        let low = self.random.random_range(0..=from - width);
        let signed = from > 1 && self.random.random_bool(0.2);
        let inner = self.expression(Ty::Bits { width: from, signed }, next);
        format!("({inner})[{}:{low}]", low + width - 1)
    }

    /// An element of a stack by an index that is not known before, maybe out of bounds.
    pub fn element(&mut self, ty: Ty) -> Option<String> {
        let (stack, header) = self.stacks.first().cloned()?;
        let fields = &self.header_types[header].fields;
        let (name, from) = fields[self.random.random_range(0..fields.len())].clone();
        let index = self.index()?;
        Some(convert(&format!("{stack}[{index}].{name}"), from, ty))
    }

    /// An index that the compiler cannot know.
    pub fn index(&mut self) -> Option<String> {
        let at = self.random.random_range(0..self.readable.len().max(1));
        let named = self.readable.get(at)?.clone();
        let width = if self.random.random_bool(0.1) {
            self.random.random_range(4..=100)
        } else {
            self.random.random_range(1..4)
        };
        Some(convert(&named.path, named.ty, Ty::bits(width)))
    }

    fn condition(&mut self, depth: u32) -> String {
        let next = depth - 1;
        match self.random.random_range(0..12) {
            0 => format!("(!{})", self.expression(Ty::Bool, next)),
            1 | 2 => {
                let operator = if self.random.random() { "&&" } else { "||" };
                format!(
                    "({} {operator} {})",
                    self.expression(Ty::Bool, next),
                    self.expression(Ty::Bool, next)
                )
            }
            3 | 4 if !self.headers.is_empty() => {
                let header = &self.headers[self.random.random_range(0..self.headers.len())];
                format!("{}.isValid()", header.0)
            }
            5 if self.headers.len() > 1 => {
                let (a, kind) =
                    self.headers[self.random.random_range(0..self.headers.len())].clone();
                let same: Vec<String> = self
                    .headers
                    .iter()
                    .filter(|header| header.1 == kind)
                    .map(|header| header.0.clone())
                    .collect();
                let b = &same[self.random.random_range(0..same.len())];
                format!("({a} == {b})")
            }
            6 if self.in_control => {
                let error = ERRORS[self.random.random_range(0..ERRORS.len())];
                format!(
                    "(sm.parser_error {} error.{error})",
                    if self.random.random() { "==" } else { "!=" }
                )
            }
            7 if self.random.random() => self.same(next),
            7 => format!(
                "({} == {})",
                self.expression(Ty::Bool, next),
                self.expression(Ty::Bool, next)
            ),
            _ => {
                let ty = match super::types::scalar(self.random) {
                    Ty::Bool => Ty::bits(5),
                    other => other,
                };
                let operators = ["==", "!=", "<", "<=", ">", ">="];
                let operator = operators[self.random.random_range(0..operators.len())];
                format!("({} {operator} {})", self.expression(ty, next), self.expression(ty, next))
            }
        }
    }

    /// Structs or wide values that are compared as a whole.
    fn same(&mut self, next: u32) -> String {
        let operator = if self.random.random() { "==" } else { "!=" };
        if self.random.random()
            && let Some((a, kind)) = self.pick_record()
        {
            let same: Vec<String> = self
                .records
                .iter()
                .filter(|other| other.1 == kind)
                .map(|other| other.0.clone())
                .collect();
            return format!("({a} {operator} {})", same[self.random.random_range(0..same.len())]);
        }
        if self.wides.is_empty() {
            return self.expression(Ty::Bool, next);
        }
        let (a, width) = self.wides[self.random.random_range(0..self.wides.len())].clone();
        let same: Vec<String> = self
            .wides
            .iter()
            .filter(|other| other.1 == width)
            .map(|other| other.0.clone())
            .collect();
        format!("({a} {operator} {})", same[self.random.random_range(0..same.len())])
    }
}
