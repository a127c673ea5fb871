//! Counters and sketches in a loaded object, as operators read them: with SDW all cells of one
//! window, with EWO what packets read now.

use crate::group::Group;
use crate::keyed::is_keyed;
use crate::maps::Maps;
use dataplane::Dataplane;
use manifest::StateObject;
use swish_protocol::layouts::CELLS;
use swish_protocol::objects::{Eventual, SYSTEM, SharedSettings};
use switch_agent::{Error, Result};

/// Cells with EWO.
const EVENTUAL_CELLS: &str = "sp_eventual_cells";
/// Words of one.
const EVENTUAL_WORDS: usize = 2;
/// Windows in which all cells are read, until one is long enough.
const TRIES: u32 = 100;

/// A counter or sketch of a loaded object.
pub(crate) struct Cells<'a> {
    described: &'a StateObject,
    settings: SharedSettings,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    /// With SDW: the window.
    pub window: Option<u64>,
    /// By index.
    pub cells: Vec<u32>,
}

impl<'a> Cells<'a> {
    /// All of a program.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn all(dataplane: &'a Dataplane) -> Result<Vec<Cells<'a>>> {
        let all = &dataplane.manifest().state_objects;
        let own = all.iter().filter(|it| it.system == SYSTEM && !is_keyed(it));
        own.map(|described| {
            Ok(Cells { described, settings: crate::group::settings_of(described)? })
        })
        .collect()
    }

    pub fn name(&self) -> &str {
        &self.described.name
    }

    pub fn kind(&self) -> &str {
        &self.described.kind
    }

    pub fn size(&self) -> u32 {
        self.described.capacity
    }

    /// All cells as packets read them.
    ///
    /// # Errors
    /// The group has not begun, its windows are too short, or the kernel refuses.
    pub fn read(&self, dataplane: &Dataplane) -> Result<Values> {
        match self.settings.eventual {
            Some(lies) => self.eventual(dataplane, lies),
            None => self.of_window(dataplane),
        }
    }

    fn of_window(&self, dataplane: &Dataplane) -> Result<Values> {
        let groups = Group::all(dataplane.manifest())?;
        let number = self.settings.group_number;
        let Some(group) = groups.into_iter().find(|it| it.described.number == number) else {
            return self.refuse("the program has no such group");
        };
        let first = (self.settings.first_block - group.described.first) as usize;
        let maps = Maps::of(dataplane, &group)?;
        for _ in 0..TRIES {
            let (window, _) = maps.word();
            if window == 0 {
                return self.refuse(&format!(
                    "its group {} has not begun here; `stateplane shared status` says why",
                    self.settings.group
                ));
            }
            let blocks = (first..).take(self.size().div_ceil(CELLS) as usize);
            let mut cells: Vec<u32> =
                blocks.flat_map(|block| maps.read_by_packets(block, window)).collect();
            cells.truncate(self.size() as usize);
            // (From the next window on, merges write over what packets of this one read.)
            if maps.word().0 == window {
                return Ok(Values { window: Some(window), cells });
            }
        }
        self.refuse("its windows are too short to read all cells in one; make `period_us` longer")
    }

    fn eventual(&self, dataplane: &Dataplane, lies: Eventual) -> Result<Values> {
        let words = dataplane.map_words(EVENTUAL_CELLS)?;
        let first = lies.first_cell as usize;
        let size = self.size() as usize;
        let value = |cell: usize| words.get((first + cell) * EVENTUAL_WORDS) as u32;
        let cell = |at: usize| match lies.lanes {
            // What was added, less what was subtracted.
            2 => value(at).wrapping_sub(value(size + at)),
            _ => value(at),
        };
        Ok(Values { window: None, cells: (0..size).map(cell).collect() })
    }

    /// An error about this object.
    ///
    /// # Errors
    /// Always.
    pub fn refuse<T>(&self, reason: &str) -> Result<T> {
        Err(Error::Other(format!("{} {}: {reason}", self.kind(), self.name())))
    }
}
