//! How many slots of an object have a key: `stateplane status` and the controller are told.

use crate::windows::used;
use dataplane::{Dataplane, MappedWords, Result};
use manifest::StateObject;
use netchain_protocol::layouts::SlotMark;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The slots of an object, as they are counted.
pub(crate) struct Fill {
    dataplane: Arc<Dataplane>,
    pub(crate) object: StateObject,
    notes: MappedWords,
    /// Slots with a key, when they were counted last.
    counted: AtomicU32,
}

impl Fill {
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn new(dataplane: Arc<Dataplane>, object: StateObject) -> Result<Fill> {
        let notes = dataplane.map_words(&format!("{}_marks", object.map))?;
        let fill = Fill { dataplane, object, notes, counted: AtomicU32::default() };
        fill.count();
        Ok(fill)
    }

    /// Goes over the notes: two million take some milliseconds.
    pub(crate) fn count(&self) -> u32 {
        let Ok(end) = used(&self.dataplane, &self.object) else { return self.slots() };
        let has_key = |at: &usize| SlotMark::from_word(self.notes.get(*at)).used != 0;
        let count = (0..end as usize).filter(has_key).count() as u32;
        self.counted.store(count, Ordering::Relaxed);
        count
    }

    /// Slots with a key, when they were counted last.
    pub(crate) fn slots(&self) -> u32 {
        self.counted.load(Ordering::Relaxed)
    }

    /// The same of all slots, in percent.
    pub(crate) fn percent(&self) -> u8 {
        let capacity = u64::from(self.object.capacity.max(1));
        (u64::from(self.slots()) * 100 / capacity).min(100) as u8
    }
}
