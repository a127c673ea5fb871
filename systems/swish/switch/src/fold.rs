//! Slots of lives that are over become a part of the base (systems/swish/docs/slots.md).
//!
//! No message comes or goes meanwhile, and packets change the slots of column 0 only, which is this
//! switch's own. What packets read is the sum of all slots, and stays as it is.
//!
//! The agent may end at any moment. The next one goes on, as each word that it finds says what has
//! been done: columns that are to go in are marked first; the base has its name once its cells are
//! written; what is marked for a base that is there has been counted.

use crate::eventual::EventualGroup;
use crate::mutation::{Mutation, planted};
use dataplane::{Dataplane, Error, MappedWords, Result};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use swish_protocol::base::{Base, Before};
use swish_protocol::eventual::{base_life, folding_life, folds_into, is_base};

const SLOTS: &str = "sp_eventual_slots";

/// How many words are written at the most: tests end it in the middle, as an agent may end.
#[derive(Clone, Copy, Debug)]
pub struct Steps(u64);

impl Steps {
    /// It comes to its end.
    pub const ALL: Steps = Steps(u64::MAX);

    /// So many.
    pub fn new(count: u64) -> Steps {
        Steps(count)
    }

    fn go(&mut self) -> bool {
        let goes = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        goes
    }
}

/// A group's columns.
struct Columns<'a> {
    dataplane: &'a Dataplane,
    group: &'a EventualGroup,
    words: MappedWords,
    /// Of a column, of all groups.
    stride: usize,
    /// The life of each column; 0: none.
    lives: Vec<u64>,
}

impl<'a> Columns<'a> {
    /// `None`: nothing in the group has slots.
    fn of(dataplane: &'a Dataplane, group: &'a EventualGroup) -> Result<Option<Columns<'a>>> {
        if group.columns == 0 || group.described.slotted == 0 {
            return Ok(None);
        }
        let words = dataplane.map_words_writable(SLOTS)?;
        // (There is one word more.)
        let stride = words.len().saturating_sub(1) / group.columns as usize;
        let lives = (0..group.columns).map(|at| group.life_of_column(dataplane, at));
        let lives = lives.collect::<Result<_>>()?;
        Ok(Some(Columns { dataplane, group, words, stride, lives }))
    }

    fn cells(&self) -> usize {
        self.group.described.slotted as usize
    }

    fn place(&self, column: usize, cell: usize) -> usize {
        column * self.stride + self.group.described.first_slotted as usize + cell
    }

    fn get(&self, column: usize, cell: usize) -> u64 {
        self.words.get(self.place(column, cell))
    }

    fn name(&mut self, column: usize, life: u64, steps: &mut Steps) -> Result<bool> {
        if !steps.go() {
            return Ok(false);
        }
        self.group.name_column(self.dataplane, column as u32, life)?;
        if let Some(known) = self.lives.get_mut(column) {
            *known = life;
        }
        Ok(true)
    }

    fn with(&self, wanted: impl Fn(u64) -> bool) -> Vec<usize> {
        (0..self.lives.len()).filter(|at| wanted(self.lives[*at])).collect()
    }

    fn has(&self, life: u64) -> bool {
        self.lives.contains(&life)
    }

    /// Gives back what an earlier agent had counted, or copied.
    fn settle(&mut self, steps: &mut Steps) -> Result<bool> {
        let counted = |life: u64| folds_into(life).is_some_and(|it| self.has(base_life(it)));
        let counted = self.with(counted);
        let twice =
            |at: &usize| self.lives[*at] != 0 && self.lives[..*at].contains(&self.lives[*at]);
        // (Marked columns all have one name.)
        let is_marked = |at: &usize| folds_into(self.lives[*at]).is_some();
        let copied = (0..self.lives.len()).filter(|at| twice(at) && !is_marked(at));
        let all: Vec<usize> = counted.into_iter().chain(copied).collect();
        for column in all {
            if !self.name(column, 0, steps)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Marks what goes into the base, and writes that.
    fn sum(&mut self, base: &Base, steps: &mut Steps) -> Result<bool> {
        let target = base_life(base.number);
        if self.has(target) {
            return Ok(true);
        }
        let own = folding_life(base.number);
        // (What an earlier agent marked for another base has not been counted in that one.)
        let goes_in = |life: u64| {
            is_base(life) || base.before.has(life) || folds_into(life).is_some() && life != own
        };
        for column in self.with(goes_in) {
            if !self.name(column, own, steps)? {
                return Ok(false);
            }
        }
        let sources = self.with(|life| life == own);
        if sources.is_empty() {
            return Ok(true);
        }
        let Some(into) = self.with(|life| life == 0).first().copied() else {
            return Err(Error::Value {
                what: format!("the slots of group {}", self.group.described.name),
                text: format!("{:x?}", self.lives),
                reason: "no column is left for the base: stop this switch, and start it anew with \
                         --fresh; the others have the updates that it has sent"
                    .into(),
            });
        };
        if planted(Mutation::NamedEarly) && !self.name(into, target, steps)? {
            return Ok(false);
        }
        for cell in 0..self.cells() {
            if !steps.go() {
                return Ok(false);
            }
            let sum = sources.iter().fold(0u64, |sum, it| sum.wrapping_add(self.get(*it, cell)));
            self.words.set(self.place(into, cell), sum);
        }
        if planted(Mutation::NamedEarly) { Ok(true) } else { self.name(into, target, steps) }
    }

    /// Each column is somebody's, up to the last one that is; the others are empty.
    fn close_ranks(&mut self, steps: &mut Steps) -> Result<bool> {
        loop {
            let hole = self.lives.iter().position(|life| *life == 0);
            let last = self.lives.iter().rposition(|life| *life != 0);
            let (Some(hole), Some(last)) = (hole, last) else { break };
            if last < hole {
                break;
            }
            for cell in 0..self.cells() {
                if !steps.go() {
                    return Ok(false);
                }
                self.words.set(self.place(hole, cell), self.get(last, cell));
            }
            let life = self.lives[last];
            if !self.name(hole, life, steps)? || !self.name(last, 0, steps)? {
                return Ok(false);
            }
        }
        for column in self.with(|life| life == 0) {
            for cell in 0..self.cells() {
                if self.get(column, cell) != 0 {
                    if !steps.go() {
                        return Ok(false);
                    }
                    self.words.set(self.place(column, cell), 0);
                }
            }
        }
        Ok(true)
    }
}

/// Whether there is anything to fold, or to go on with.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn is_due(dataplane: &Dataplane, group: &EventualGroup, base: &Base) -> Result<bool> {
    let Some(columns) = Columns::of(dataplane, group)? else { return Ok(false) };
    let target = base_life(base.number);
    let due = |life: u64| {
        is_base(life) && life != target || folds_into(life).is_some() || base.before.has(life)
    };
    let used = columns.lives.iter().rposition(|life| *life != 0).map_or(0, |at| at + 1);
    let gaps = columns.lives.iter().take(used).any(|life| *life == 0);
    let dirty = |at: &usize| (0..columns.cells()).any(|cell| columns.get(*at, cell) != 0);
    let some = columns.lives.iter().any(|life| due(*life));
    Ok(some || gaps || (used..columns.lives.len()).any(|at| dirty(&at)))
}

/// Folds what is over. False: it ended in the middle.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn fold(
    dataplane: &Dataplane,
    group: &EventualGroup,
    base: &Base,
    mut steps: Steps,
) -> Result<bool> {
    let Some(mut columns) = Columns::of(dataplane, group)? else { return Ok(true) };
    if planted(Mutation::Unfolded) {
        return Ok(true);
    }
    let steps = &mut steps;
    // (Twice: what is counted now goes, too.)
    let settled = planted(Mutation::CountedTwice) || columns.settle(steps)?;
    Ok(settled
        && columns.sum(base, steps)?
        && columns.settle(steps)?
        && columns.close_ranks(steps)?)
}

/// What the switch has of some lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// How many.
    pub lives: u32,
    /// A number for their slots, and the base's.
    pub digest: u64,
    /// The one with the lowest incarnation.
    pub oldest: Option<u64>,
}

/// What the switch has of these lives.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn digest(
    dataplane: &Dataplane,
    group: &EventualGroup,
    before: &Before,
) -> Result<Digest> {
    let Some(columns) = Columns::of(dataplane, group)? else { return Ok(Digest::default()) };
    let mut wanted = columns.with(|life| is_base(life) || before.has(life));
    wanted.sort_by_key(|at| columns.lives[*at]);
    let over = wanted.iter().map(|at| columns.lives[*at]).filter(|life| !is_base(*life));
    let (lives, oldest) = (over.clone().count() as u32, over.min());
    let mut hasher = SipHasher24::new();
    if lives > 0 {
        for column in wanted {
            hasher.write_u64(columns.lives[column]);
            (0..columns.cells()).for_each(|cell| hasher.write_u64(columns.get(column, cell)));
        }
    }
    Ok(Digest { lives, digest: hasher.finish(), oldest })
}
