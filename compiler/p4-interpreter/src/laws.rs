//! The laws of merges, tried on values: edge values with one another, then random ones.
//!
//! Switches merge what they have in any order, some of it twice, and begin from zeros. What they
//! agree on in the end rests on these laws. To try them is no proof: a function that breaks one of
//! them for a few values only may pass.

use crate::Stop;
use num_bigint::BigInt;
use num_traits::{One, Zero};
use std::fmt::{Display, Formatter};

/// A law of a merge *m*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// *m*(a, b) = *m*(b, a)
    Commutative,
    /// *m*(*m*(a, b), c) = *m*(a, *m*(b, c)). An update merges its value into a cell, so this is
    /// also what lets updates and merges change places.
    Associative,
    /// *m*(a, 0) = a
    Identity,
    /// *m*(a, a) = a
    Idempotent,
}

impl Law {
    /// All of them.
    pub const ALL: [Law; 4] = [Law::Commutative, Law::Associative, Law::Identity, Law::Idempotent];

    /// As a message names it.
    pub fn name(self) -> &'static str {
        match self {
            Law::Commutative => "commutative",
            Law::Associative => "associative",
            Law::Identity => "identity 0",
            Law::Idempotent => "idempotent",
        }
    }

    /// What a merge that breaks it is.
    fn broken(self) -> &'static str {
        match self {
            Law::Commutative => "is not commutative",
            Law::Associative => "is not associative",
            Law::Identity => "does not have 0 as its identity",
            Law::Idempotent => "is not idempotent",
        }
    }

    /// What would go wrong.
    pub fn reason(self) -> &'static str {
        match self {
            Law::Commutative => "messages come in any order, and switches would disagree",
            Law::Associative => "values are merged in groups, and switches would disagree",
            Law::Identity => "cells begin as 0, which must change nothing",
            Law::Idempotent => "messages come again, and would count twice",
        }
    }
}

/// Values that break a law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub law: Law,
    /// The merge's name.
    pub name: String,
    /// a, then b and c, if the law has them.
    pub values: Vec<BigInt>,
    /// Both sides of its equation, as calls (nothing: a itself), and what they come to.
    pub sides: [(String, BigInt); 2],
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let [(left, is), (right, other)] = &self.sides;
        let (broken, is, other) = (self.law.broken(), shown(is), shown(other));
        match right.is_empty() {
            true => write!(f, "{} {broken}: {left} = {is}, not {other}", self.name),
            false => write!(f, "{} {broken}: {left} = {is}, but {right} = {other}", self.name),
        }
    }
}

/// Why a merge is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It breaks a law.
    #[error("{0}")]
    Broken(Box<Violation>),
    /// It makes nothing of these two values.
    #[error("{call}: {why}")]
    Stopped {
        /// The merge, and what it was called with.
        call: String,
        /// Why.
        why: Stop,
    },
}

/// Random values that each law is tried with, beside the edge values.
pub const TRIES: usize = 1500;
/// Where random values begin, if nobody says.
pub const SEED: u64 = 1;

/// A number as people compare it: small ones in decimal, large ones by their digits of 4 bits.
fn shown(number: &BigInt) -> String {
    if number.bits() > 16 { format!("{number:#x}") } else { number.to_string() }
}

/// A merge under test.
pub struct Trial<'a> {
    /// Its name.
    pub name: &'a str,
    /// The bits of its values.
    pub width: u32,
    /// What it does.
    pub merge: &'a dyn Fn(&BigInt, &BigInt) -> Result<BigInt, Stop>,
}

impl std::fmt::Debug for Trial<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trial({}, {} bits)", self.name, self.width)
    }
}

/// xorshift64*: the same values from the same seed, everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A value of so many bits. Small ones, near ones and edges are as frequent as large ones: that
    /// is where merges differ.
    fn value(&mut self, width: u32, edges: &[BigInt], before: &BigInt) -> BigInt {
        let all: BigInt = (BigInt::one() << width) - 1;
        let words = BigInt::from(self.next()) << 64u32 | BigInt::from(self.next());
        let kind = self.next() % 4;
        let value = match kind {
            0 => edges[self.next() as usize % edges.len()].clone(),
            1 => before + (words & BigInt::from(7)),
            2 => words & ((BigInt::one() << (self.next() % u64::from(width) + 1)) - 1),
            _ => words,
        };
        value & all
    }
}

/// 0, 1, powers of two and their neighbours, patterns of bits.
fn edges(width: u32) -> Vec<BigInt> {
    let all: BigInt = (BigInt::one() << width) - 1;
    let mut found = vec![BigInt::zero()];
    for bit in 0..width {
        let power = BigInt::one() << bit;
        found.extend([power.clone(), power + 1]);
    }
    found.extend([&all - 1, all.clone(), &all / 3, &all / 5, &all / 255u32]);
    found.iter_mut().for_each(|it| *it &= &all);
    found.sort();
    found.dedup();
    found
}

impl Trial<'_> {
    /// Tries one law. `seed`: of random values.
    ///
    /// # Errors
    /// The merge breaks it.
    pub fn holds(&self, law: Law, seed: u64) -> Result<(), Refusal> {
        let edges = edges(self.width);
        let zero = BigInt::zero();
        // Few edges are tried in threes, all of them in twos: small counterexamples come first.
        let few: Vec<&BigInt> = edges.iter().take(8).chain(edges.iter().rev().take(4)).collect();
        for a in &edges {
            match law {
                Law::Identity | Law::Idempotent => self.holds_for(law, [a, &zero, &zero])?,
                Law::Commutative => {
                    edges.iter().try_for_each(|b| self.holds_for(law, [a, b, &zero]))?;
                }
                Law::Associative => {}
            }
        }
        if law == Law::Associative {
            for a in &few {
                for b in &few {
                    few.iter().try_for_each(|c| self.holds_for(law, [a, b, c]))?;
                }
            }
        }
        // (Seeds that are near one another begin apart.)
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut before = zero;
        for _ in 0..TRIES {
            let [a, b, c] = [(); 3].map(|()| {
                before = random.value(self.width, &edges, &before);
                before.clone()
            });
            self.holds_for(law, [&a, &b, &c])?;
        }
        Ok(())
    }

    fn of(&self, a: &BigInt, b: &BigInt) -> Result<BigInt, Refusal> {
        (self.merge)(a, b).map_err(|why| {
            let call = format!("{}({}, {})", self.name, shown(a), shown(b));
            Refusal::Stopped { call, why }
        })
    }

    fn holds_for(&self, law: Law, [a, b, c]: [&BigInt; 3]) -> Result<(), Refusal> {
        let m = self.name;
        let [at, bt, ct] = [a, b, c].map(shown);
        let (values, sides) = match law {
            Law::Commutative => {
                let sides = [
                    (format!("{m}({at}, {bt})"), self.of(a, b)?),
                    (format!("{m}({bt}, {at})"), self.of(b, a)?),
                ];
                (vec![a, b], sides)
            }
            Law::Associative => {
                let left = self.of(&self.of(a, b)?, c)?;
                let right = self.of(a, &self.of(b, c)?)?;
                let sides = [
                    (format!("{m}({m}({at}, {bt}), {ct})"), left),
                    (format!("{m}({at}, {m}({bt}, {ct}))"), right),
                ];
                (vec![a, b, c], sides)
            }
            Law::Identity => {
                let made = self.of(a, &BigInt::zero())?;
                (vec![a], [(format!("{m}({at}, 0)"), made), (String::new(), a.clone())])
            }
            Law::Idempotent => {
                let made = self.of(a, a)?;
                (vec![a], [(format!("{m}({at}, {at})"), made), (String::new(), a.clone())])
            }
        };
        if sides[0].1 == sides[1].1 {
            return Ok(());
        }
        let values = values.into_iter().cloned().collect();
        Err(Refusal::Broken(Box::new(Violation { law, name: m.to_owned(), values, sides })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_law(merge: fn(u32, u32) -> u32) -> Vec<Law> {
        let merge = move |a: &BigInt, b: &BigInt| {
            let cell = |it: &BigInt| u32::try_from(it).expect("a value of 32 bits");
            Ok(merge(cell(a), cell(b)).into())
        };
        let trial = Trial { name: "m", width: 32, merge: &merge };
        Law::ALL.into_iter().filter(|law| trial.holds(*law, SEED).is_err()).collect()
    }

    #[test]
    fn each_law_is_told_apart() {
        use Law::{Associative, Commutative, Idempotent, Identity};
        assert_eq!(broken_law(u32::max), []);
        assert_eq!(broken_law(|a, b| a | b), []);
        assert_eq!(broken_law(u32::wrapping_add), [Idempotent]);
        assert_eq!(broken_law(u32::saturating_add), [Idempotent]);
        assert_eq!(broken_law(u32::wrapping_sub), [Commutative, Associative, Idempotent]);
        assert_eq!(broken_law(|a, b| a / 2 + b / 2), [Associative, Identity, Idempotent]);
        // The last writer: what it writes over cannot come first.
        assert_eq!(broken_law(|_, b| b), [Commutative, Identity]);
        assert_eq!(broken_law(u32::min), [Identity]);
        assert_eq!(
            broken_law(|a, b| if a == 0 {
                b
            } else if b == 0 {
                a
            } else {
                a.min(b)
            }),
            []
        );
        // Wrong for one value of a bit alone.
        assert_eq!(broken_law(|a, b| (a | b) & !(1 << 17)), [Identity, Idempotent]);
    }

    #[test]
    fn a_counterexample_names_its_values() {
        let merge = |a: &BigInt, b: &BigInt| Ok((a - b) & BigInt::from(0xff));
        let trial = Trial { name: "less", width: 8, merge: &merge };
        let found = trial.holds(Law::Commutative, SEED).expect_err("it is not commutative");
        assert_eq!(
            found.to_string(),
            "less is not commutative: less(0, 1) = 255, but less(1, 0) = 1"
        );
    }

    #[test]
    fn an_open_outcome_is_refused() {
        let merge = |_: &BigInt, b: &BigInt| match b.is_zero() {
            true => Err(Stop::Undefined("division by zero".into())),
            false => Ok(b.clone()),
        };
        let trial = Trial { name: "m", width: 8, merge: &merge };
        let found = trial.holds(Law::Identity, SEED).expect_err("open").to_string();
        assert_eq!(found, "m(0, 0): undefined: division by zero");
    }
}
