//! What SwiSh's objects mean on a switch that shares with nobody, for the interpreters: updates are
//! read from the next window on, with EWO from the next packet on.

use crate::tables::Table;
use num_traits::ToPrimitive;
use p4_interpreter::Stop;
use p4_interpreter::object::{Answer, Call, Datum, Declaration, Merging, Object, ObjectKinds};
use std::collections::BTreeMap;
use swish_protocol::TEST_PERIOD_US;
use swish_protocol::objects::{
    COUNTER, Consistency, Merge, REGISTER, SET, SKETCH, TABLE, period_begins,
};

/// What objects draw from (`Object::supply`).
pub mod supply {
    /// How long a window is, in microseconds.
    pub const PERIOD_US: &str = "period_us";
    /// What a table or set has from the beginning: the numbers of a key's fields, then the value's.
    pub const ENTRY: &str = "entry";
}

/// SwiSh's kinds of objects.
pub struct Meaning;

impl ObjectKinds for Meaning {
    fn extern_types(&self) -> &'static [&'static str] {
        &[COUNTER, SKETCH, TABLE, REGISTER, SET]
    }

    fn declare(&self, declaration: &Declaration<'_>) -> Result<Box<dyn Object>, Stop> {
        if [TABLE, REGISTER, SET].contains(&declaration.kind) {
            return Ok(Box::new(Table::declare(declaration)?));
        }
        let number = |at: usize| declaration.arguments.get(at).and_then(Option::as_ref);
        let size = number(0).and_then(ToPrimitive::to_u32);
        let size =
            size.ok_or_else(|| Stop::Broken(format!("a {} without a size", declaration.kind)))?;
        let at = |at: usize| number(at).and_then(|it| it.to_usize());
        let is_counter = declaration.kind == COUNTER;
        let (kind, consistency, period) =
            if is_counter { (Some(0), at(1), 3) } else { (at(1), at(2), 4) };
        let merge = kind.and_then(|at| Merge::ALL.get(at)).copied().unwrap_or(Merge::Sum);
        let consistency = consistency.and_then(|at| Consistency::ALL.get(at)).copied();
        let is_eventual = consistency == Some(Consistency::Ewo);
        let period = number(period).and_then(ToPrimitive::to_u32).unwrap_or(0);
        Ok(Box::new(Variable { size, merge, is_eventual, period, ..Variable::default() }))
    }
}

/// A variable's cells. (The bound of updates is the configuration's: here is none.)
#[derive(Clone)]
struct Variable {
    size: u32,
    merge: Merge,
    /// Without windows.
    is_eventual: bool,
    /// Windows after which it begins anew; 0: it never does.
    period: u32,
    /// What packets read, and what was updated in this window.
    values: BTreeMap<u32, u32>,
    updates: BTreeMap<u32, u32>,
    /// Of the packet that is under way.
    noted: Vec<(u32, u32)>,
    period_us: u64,
    now_us: u64,
}

impl Default for Variable {
    fn default() -> Variable {
        Variable {
            size: 0,
            merge: Merge::Sum,
            is_eventual: false,
            period: 0,
            values: BTreeMap::new(),
            updates: BTreeMap::new(),
            noted: vec![],
            period_us: TEST_PERIOD_US,
            now_us: 0,
        }
    }
}

impl Variable {
    /// One cell is merged with a value.
    fn merged(&self, cell: u32, by: u32, own: &mut Merging<'_>) -> Result<u32, Stop> {
        match self.merge.of(cell, by) {
            Some(made) => Ok(made),
            None => {
                let made = own(&cell.into(), &by.into())?;
                made.to_u32().ok_or_else(|| Stop::Broken(format!("{made} is no cell")))
            }
        }
    }

    fn settle(&mut self, own: &mut Merging<'_>) -> Result<(), Stop> {
        for (index, by) in std::mem::take(&mut self.noted) {
            let cell = self.updates.get(&index).copied().unwrap_or_default();
            let made = self.merged(cell, by, own)?;
            self.updates.insert(index, made);
        }
        Ok(())
    }

    /// From one window to a later one.
    fn turn(&mut self, before: u64, own: &mut Merging<'_>) -> Result<(), Stop> {
        let begins = |rotation: u64| period_begins(self.period, rotation);
        // What was updated in the window before is of this rotation; packets read the newest
        // period that has a rotation below their window.
        let (read, updated, reads) =
            (begins(before - 1), begins(before), begins(self.window() - 1));
        if read < updated {
            self.values.clear();
        }
        for (index, by) in std::mem::take(&mut self.updates) {
            let cell = self.values.get(&index).copied().unwrap_or_default();
            let made = self.merged(cell, by, own)?;
            self.values.insert(index, made);
        }
        if updated < reads {
            self.values.clear();
        }
        Ok(())
    }

    /// Windows begin at multiples of the period.
    fn window(&self) -> u64 {
        self.now_us / self.period_us + 1
    }
}

fn number(datum: &Datum) -> Result<u64, Stop> {
    match datum {
        Datum::Number(number) => Ok(number.to_u64().unwrap_or_default()),
        _ => Err(Stop::Undefined("an argument that was never written".into())),
    }
}

impl Object for Variable {
    fn begin_packet_merging(
        &mut self,
        _: &[u8],
        now_us: u64,
        own: &mut Merging<'_>,
    ) -> Result<(), Stop> {
        self.settle(own)?;
        let before = self.window();
        self.now_us = now_us;
        if self.is_eventual || self.window() > before {
            self.turn(before, own)?;
        }
        Ok(())
    }

    fn call(&mut self, call: Call<'_>) -> Result<Answer, Stop> {
        let numbers: Vec<u64> = call.arguments.iter().map(number).collect::<Result<_, _>>()?;
        let answer = |value: u64| Ok(Answer::Value(Datum::Number(value.into())));
        match (call.method, &numbers[..]) {
            ("add" | "update", [index, by]) => {
                if *index < self.size.into() {
                    self.noted.push((*index as u32, *by as u32));
                }
                answer(0)
            }
            ("sub", [index, by]) => {
                if *index < self.size.into() {
                    self.noted.push((*index as u32, (*by as u32).wrapping_neg()));
                }
                answer(0)
            }
            ("get", [index]) => {
                let index = u32::try_from(*index).unwrap_or(u32::MAX);
                answer(self.values.get(&index).copied().unwrap_or_default().into())
            }
            ("window", []) => answer(self.window()),
            ("age", []) => answer((self.now_us % self.period_us).min(u32::MAX.into())),
            (other, _) => Err(Stop::Unsupported(format!("{other} of a shared variable"))),
        }
    }

    fn abandon_packet(&mut self) {
        self.noted.clear();
    }

    fn supply(&mut self, what: &str, numbers: &[u64]) -> Result<(), Stop> {
        match (what, numbers) {
            (supply::PERIOD_US, [period_us]) if *period_us > 0 => {
                self.period_us = *period_us;
                Ok(())
            }
            _ => Err(Stop::Unsupported(format!("{what} for a shared variable"))),
        }
    }

    fn copied(&self) -> Box<dyn Object> {
        Box::new(self.clone())
    }
}
