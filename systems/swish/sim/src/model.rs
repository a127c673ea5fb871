//! What all switches together were told, and what a packet of a window must read of it.
//!
//! A window *w* reads the merge of all updates of rotations below *w*: each once, none of a later
//! one (SwiSh §6.3; systems/swish/README.md, "Rotation at the last ready"). Of a variable with a
//! period, only those of the newest period that has a rotation below *w*.

use p4_interpreter::Evaluator;
use std::collections::BTreeMap;
use std::fmt;
use swish_protocol::objects::{Merge, period_begins};

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which check says so.
    pub check: &'static str,
    /// What it saw.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.detail)
    }
}

/// What a check finds.
pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// The check `check` fails.
pub(crate) fn violated<T>(check: &'static str, detail: impl Into<String>) -> Checked<T> {
    Err(Violation { check, detail: detail.into() })
}

/// One update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) object: usize,
    pub(crate) index: u32,
    pub(crate) by: u32,
}

/// How cells merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merging {
    pub(crate) kind: Merge,
    /// With [`Merge::Own`]. (A run's switches are loaded once: this is never given back.)
    pub(crate) own: Option<&'static Evaluator>,
}

impl From<Merge> for Merging {
    fn from(kind: Merge) -> Merging {
        Merging { kind, own: None }
    }
}

impl Merging {
    /// Two cells as one. (A function that makes nothing of them was refused by the compiler.)
    pub(crate) fn of(self, one: u32, other: u32) -> u32 {
        let own = || self.own.and_then(|it| it.of_cells(one, other).ok());
        self.kind.of(one, other).or_else(own).unwrap_or_default()
    }
}

/// How cells of an object merge, how many it has, and its period.
pub(crate) type Variable = (Merging, u32, u32);

/// A group's variables, as one switch with all updates would have them.
pub(crate) struct Model {
    objects: Vec<Variable>,
    /// By rotation.
    updates: BTreeMap<u64, Vec<Update>>,
    /// By window, of each object; the last one is that of the newest window of any switch.
    values: BTreeMap<u64, Vec<Vec<u32>>>,
}

impl Model {
    /// Empty variables, which begin in this window.
    pub(crate) fn new(objects: &[Variable], window: u64) -> Model {
        let empty = objects.iter().map(|(_, cells, _)| vec![0; *cells as usize]).collect();
        Model {
            objects: objects.to_vec(),
            updates: BTreeMap::new(),
            values: BTreeMap::from([(window, empty)]),
        }
    }

    /// The newest window that a switch is in.
    pub(crate) fn newest(&self) -> u64 {
        self.values.last_key_value().map_or(0, |(window, _)| *window)
    }

    /// A packet's update takes effect in this rotation.
    pub(crate) fn update(&mut self, rotation: u64, update: Update) -> Checked {
        if self.newest() > rotation {
            let (newest, at) = (self.newest(), update.index);
            return violated(
                "late",
                format!("an update of rotation {rotation} (cell {at}), and one is in {newest}"),
            );
        }
        self.updates.entry(rotation).or_default().push(update);
        Ok(())
    }

    /// A switch is in this window.
    pub(crate) fn enter(&mut self, window: u64) {
        while self.newest() < window {
            let Some((&newest, values)) = self.values.last_key_value() else { return };
            let mut next = values.clone();
            for ((.., period), cells) in self.objects.iter().zip(&mut next) {
                if *period != 0 && period_begins(*period, newest) == newest {
                    cells.fill(0);
                }
            }
            for Update { object, index, by } in self.updates.get(&newest).into_iter().flatten() {
                let cell = &mut next[*object][*index as usize];
                *cell = self.objects[*object].0.of(*cell, *by);
            }
            self.values.insert(newest + 1, next);
        }
        // (A packet that is under way may be one window behind; a switch may be one, too.)
        self.values = self.values.split_off(&window.saturating_sub(4));
    }

    /// What a packet of this window must read.
    pub(crate) fn value(&self, window: u64, object: usize, index: u32) -> Option<u32> {
        self.values.get(&window)?.get(object)?.get(index as usize).copied()
    }

    /// Updates so far that a packet of this window does not see.
    pub(crate) fn unseen(&self, window: u64) -> usize {
        self.updates.range(window..).map(|(_, updates)| updates.len()).sum()
    }

    /// The last rotation with an update.
    pub(crate) fn last_rotation(&self) -> u64 {
        self.updates.last_key_value().map_or(0, |(rotation, _)| *rotation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_sees_the_rotations_below_it() {
        let mut model = Model::new(&[(Merge::Sum.into(), 4, 0), (Merge::Max.into(), 4, 2)], 1);
        let update = |object, by| Update { object, index: 2, by };
        model.update(1, update(0, 5)).expect("in time");
        model.update(2, update(0, 7)).expect("in time");
        model.update(1, update(1, 9)).expect("in time");
        assert_eq!((model.value(1, 0, 2), model.unseen(1)), (Some(0), 3));
        model.enter(2);
        assert_eq!((model.value(2, 0, 2), model.value(2, 1, 2)), (Some(5), Some(9)));
        assert_eq!((model.unseen(2), model.value(3, 0, 2)), (1, None));
        assert_eq!(model.update(1, update(0, 1)).unwrap_err().check, "late");
        model.enter(3);
        // (The maxima began anew with the rotation 2.)
        assert_eq!((model.value(3, 0, 2), model.value(3, 1, 2)), (Some(12), Some(0)));
    }
}
