//! Tuple space search: how a ternary table's entries and masks are kept, safely under the data
//! path.
//!
//! The data path goes through the masks in order, looks each masked key up, and may stop at the
//! first mask that is not in use or whose `max_priority` is not above what it has found. Masks
//! never move: an entry's key holds its mask's index. So `max_priority` is kept as the highest
//! priority of this mask **or any later one**: it falls along the array, and stopping early is
//! right, wherever a new mask was put.

use crate::error::{Error, Result};
use crate::layout;
use crate::sys::{self, Update};
use crate::table::{lookup, write_value};
use libbpf_rs::{MapCore, MapHandle};

pub(crate) struct Ternary<'a> {
    pub table: &'a str,
    /// `{ u32 mask_index, u32 zero, masked key }` → `{ u32 priority, u32 zero, value }`
    pub entries: &'a MapHandle,
    /// Array of `{ mask, u32 max_priority, u32 in_use }`
    pub masks: &'a MapHandle,
    pub max_masks: u32,
    pub key_bytes: usize,
}

/// Key and value of an entry start after two words.
const PREFIX: usize = 8;

#[derive(Clone, PartialEq, Eq)]
struct Mask {
    bytes: Vec<u8>,
    max_priority: u32,
    in_use: bool,
}

/// Key struct, mask struct, priority, value.
pub(crate) type RawEntry = (Vec<u8>, Vec<u8>, u32, Vec<u8>);

impl Ternary<'_> {
    fn fail<T>(&self, reason: impl Into<String>) -> Result<T> {
        Err(Error::Table { table: self.table.to_owned(), reason: reason.into() })
    }

    /// `max_priority` follows the mask struct, aligned as a u32.
    fn priority_offset(&self) -> usize {
        self.key_bytes.next_multiple_of(4)
    }

    fn read_masks(&self) -> Result<Vec<Mask>> {
        let offset = self.priority_offset();
        let mut masks = Vec::new();
        for index in 0..self.max_masks {
            let raw = lookup(self.masks, &index.to_ne_bytes(), self.table)?.unwrap_or_default();
            masks.push(Mask {
                bytes: raw.get(..self.key_bytes).unwrap_or_default().to_vec(),
                max_priority: layout::u32_at(&raw, offset),
                in_use: layout::u32_at(&raw, offset + 4) != 0,
            });
        }
        Ok(masks)
    }

    fn write_mask(&self, index: usize, mask: &Mask) -> Result<()> {
        let mut raw = vec![0u8; self.masks.value_size() as usize];
        let offset = self.priority_offset();
        if raw.len() < offset + 8 || mask.bytes.len() > offset {
            return self
                .fail("the object's masks do not fit its manifest; compile the program again");
        }
        raw[..mask.bytes.len()].copy_from_slice(&mask.bytes);
        layout::put(&mut raw, offset as u32, 4, u128::from(mask.max_priority));
        layout::put(&mut raw, offset as u32 + 4, 4, u128::from(mask.in_use));
        sys::map_update(self.masks, &(index as u32).to_ne_bytes(), &raw, Update::Any)
            .map_err(|error| Error::kernel(format!("masks of table {}", self.table), error))
    }

    fn entry_key(&self, mask_index: usize, key: &[u8]) -> Vec<u8> {
        let mut raw = vec![0u8; (self.entries.key_size() as usize).max(PREFIX + key.len())];
        layout::put(&mut raw, 0, 4, mask_index as u128);
        raw[PREFIX..PREFIX + key.len()].copy_from_slice(key);
        raw
    }

    /// The highest priority among the entries of each mask; none: no entries.
    fn priorities(&self, masks: usize) -> Result<Vec<Option<u32>>> {
        let mut highest = vec![None; masks];
        for key in self.entries.keys() {
            if let Some(value) = lookup(self.entries, &key, self.table)?
                && let Some(place) = highest.get_mut(layout::u32_at(&key, 0) as usize)
            {
                *place = (*place).max(Some(layout::u32_at(&value, 0)));
            }
        }
        Ok(highest)
    }

    /// Writes an entry.
    pub fn write(
        &self,
        key: &[u8],
        mask: &[u8],
        priority: u32,
        value: Vec<u8>,
        update: Update,
        counter: Option<u32>,
    ) -> Result<()> {
        let mut masks = self.read_masks()?;
        let known = masks.iter().position(|known| known.in_use && known.bytes == mask);
        if known.is_none() && update == Update::Replace {
            return self.fail("there is no such entry");
        }
        // Taken before anything changes, so that a refused write changes nothing.
        let index = match known {
            Some(index) => {
                let present =
                    lookup(self.entries, &self.entry_key(index, key), self.table)?.is_some();
                match update {
                    Update::Create if present => {
                        return self.fail("there is an entry with this match already");
                    }
                    Update::Replace if !present => return self.fail("there is no such entry"),
                    _ => index,
                }
            }
            None => self.new_mask(&mut masks, mask)?,
        };
        // The bound rises before the entry is there, from the front, so that it never fails to fall
        // along the array.
        for (position, known) in masks.iter_mut().enumerate().take(index + 1) {
            if known.in_use && known.max_priority < priority {
                known.max_priority = priority;
                self.write_mask(position, known)?;
            }
        }
        let mut raw = vec![0u8; PREFIX];
        layout::put(&mut raw, 0, 4, u128::from(priority));
        raw.extend(value);
        let counter = counter.map(|offset| offset as usize + PREFIX);
        if let Err(error) =
            write_value(self.entries, &self.entry_key(index, key), raw, update, counter)
        {
            return match error.raw_os_error() {
                Some(libc::E2BIG | libc::ENOSPC) => self
                    .fail(format!("it is full: it holds {} entries", self.entries.max_entries())),
                _ => Err(Error::kernel(format!("table {}", self.table), error)),
            };
        }
        if !masks[index].in_use {
            masks[index].in_use = true;
            masks[index].max_priority = priority;
            self.write_mask(index, &masks[index])?;
        }
        Ok(())
    }

    /// A place for a new mask. At the end of those in use it is written but not yet in use; in the
    /// place of one without entries it is in use at once.
    fn new_mask(&self, masks: &mut [Mask], bytes: &[u8]) -> Result<usize> {
        if let Some(index) = masks.iter().position(|mask| !mask.in_use) {
            masks[index] = Mask { bytes: bytes.to_vec(), max_priority: 0, in_use: false };
            self.write_mask(index, &masks[index])?;
            return Ok(index);
        }
        let Some(index) = self.priorities(masks.len())?.iter().position(Option::is_none) else {
            return self.fail(format!(
                "its entries have {} different masks already, the most that it can have",
                self.max_masks
            ));
        };
        masks[index].bytes = bytes.to_vec();
        self.write_mask(index, &masks[index])?;
        // A packet that read half of the old mask must be through before an entry is there that it
        // could hit.
        crate::wait_for_packets()?;
        Ok(index)
    }

    /// Deletes an entry.
    pub fn delete(&self, key: &[u8], mask: &[u8]) -> Result<()> {
        let masks = self.read_masks()?;
        let Some(index) = masks.iter().position(|known| known.in_use && known.bytes == mask) else {
            return self.fail("there is no such entry");
        };
        let raw = self.entry_key(index, key);
        let Some(value) = lookup(self.entries, &raw, self.table)? else {
            return self.fail("there is no such entry");
        };
        self.entries
            .delete(&raw)
            .map_err(|error| Error::libbpf(format!("table {}", self.table), error))?;
        if layout::u32_at(&value, 0) == masks[index].max_priority {
            self.tighten(masks)?;
        }
        Ok(())
    }

    /// Lowers the bounds to what the entries need, and drops masks without entries from the end.
    fn tighten(&self, mut masks: Vec<Mask>) -> Result<()> {
        let highest = self.priorities(masks.len())?;
        let mut bound: Option<u32> = None;
        for index in (0..masks.len()).rev().filter(|index| masks[*index].in_use).collect::<Vec<_>>()
        {
            let before = masks[index].clone();
            bound = bound.max(highest[index]);
            masks[index].in_use = bound.is_some();
            masks[index].max_priority = bound.unwrap_or(0);
            if masks[index] != before {
                self.write_mask(index, &masks[index])?;
            }
        }
        Ok(())
    }

    /// All entries.
    pub fn list(&self) -> Result<Vec<RawEntry>> {
        let masks = self.read_masks()?;
        let mut found = Vec::new();
        for raw in self.entries.keys() {
            let (Some(value), Some(mask)) = (
                lookup(self.entries, &raw, self.table)?,
                masks.get(layout::u32_at(&raw, 0) as usize),
            ) else {
                continue;
            };
            let key = raw.get(PREFIX..PREFIX + self.key_bytes).unwrap_or_default().to_vec();
            let value_after = value.get(PREFIX..).unwrap_or_default().to_vec();
            found.push((key, mask.bytes.clone(), layout::u32_at(&value, 0), value_after));
        }
        Ok(found)
    }
}
