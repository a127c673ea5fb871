//! A switch that begins to join a group has no slots of it, and no verdicts from before.
//!
//! It may have been in the group's chain, and may have decided writes that were lost on their way
//! to the others: a copy of the key is then older than what the switch has, and its window tells a
//! client of a write that is not there. So the slots of a group go when the switch leaves its
//! chain, and for certain before it joins. The windows go before it joins a first chain. (A window
//! is all groups' together; one that is in use stays.)

use crate::windows::{Windows, used};
use dataplane::{Dataplane, Error, MappedWords, Result};
use libbpf_rs::{MapCore, MapFlags};
use manifest::StateObject;
use netchain_protocol::control::{Part, Role};
use netchain_protocol::layouts::SlotMark;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Bytes in front of a slot's key.
pub(crate) const SLOT_HEAD: usize = 8;
/// Where a slot's generation lies: behind its lock.
pub(crate) const GENERATION_AT: usize = 4;

/// The slots of an object, by their groups.
pub struct Slots {
    pub(crate) dataplane: Arc<Dataplane>,
    pub(crate) object: StateObject,
    pub(crate) notes: MappedWords,
}

impl Slots {
    /// # Errors
    /// The kernel refuses.
    pub fn new(dataplane: Arc<Dataplane>, object: StateObject) -> Result<Slots> {
        let notes = dataplane.map_words(&format!("{}_marks", object.map))?;
        Ok(Slots { dataplane, object, notes })
    }

    /// Frees all slots of these groups; how many. No packet may use them meanwhile.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn empty(&self, groups: &BTreeSet<u16>) -> Result<u32> {
        let mut freed = 0;
        for number in 0..used(&self.dataplane, &self.object)? {
            let mark = SlotMark::from_word(self.notes.get(number as usize));
            if mark.used != 0 && groups.contains(&mark.part) {
                self.free(number)?;
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// As the data plane does it: the key's number, the slot, the note, then the number is free.
    fn free(&self, number: u32) -> Result<()> {
        let (name, own) = (&self.object.map, number.to_ne_bytes());
        let Some(slots) = &self.object.slots_map else { return Ok(()) };
        let failed = |error| Error::libbpf(format!("free {slots}[{number}]"), error);
        let slot = self.dataplane.read_array(slots, number)?;
        let key = slot.get(SLOT_HEAD..self.object.value.offset() as usize).unwrap_or_default();
        if let Some(numbers) = self.dataplane.map(name)
            && numbers.lookup(key, MapFlags::ANY).map_err(failed)?.as_deref() == Some(&own[..])
        {
            numbers.delete(key).map_err(failed)?;
        }
        let mut empty = vec![0; slot.len()];
        let head = SLOT_HEAD.min(slot.len());
        empty[..head].copy_from_slice(&slot[..head]);
        // A free slot's generation is odd.
        if let Some(low) = empty.get_mut(GENERATION_AT) {
            *low |= 1;
        }
        self.dataplane.write_array(slots, number, &empty)?;
        self.dataplane.write_array(&format!("{name}_marks"), number, &[0; 8])?;
        if let Some(free) = self.dataplane.map(&format!("{name}_free")) {
            free.update(&[], &own, MapFlags::ANY).map_err(failed)?;
        }
        Ok(())
    }
}

/// What must be emptied for which decision.
pub(crate) struct Empties {
    dataplane: Arc<Dataplane>,
    pub(crate) slots: Vec<Slots>,
    windows: Arc<Vec<Windows>>,
    /// The view of each group in which the switch is a member, as the program's table has it.
    members: Mutex<BTreeMap<u16, u32>>,
}

/// The groups that a switch begins to join with these roles.
fn begun(members: &BTreeMap<u16, u32>, roles: &[Role]) -> BTreeSet<u16> {
    let begins = |(group, role): &(u16, &Role)| {
        let joins = matches!(role.part, Part::Member { joining: true, .. });
        joins && members.get(group) != Some(&role.view)
    };
    (0..).zip(roles).filter(begins).map(|(group, _)| group).collect()
}

impl Empties {
    /// `members`: the groups in which the switch is a member, and their views.
    pub fn new(
        dataplane: Arc<Dataplane>,
        slots: Vec<Slots>,
        windows: Arc<Vec<Windows>>,
        members: BTreeMap<u16, u32>,
    ) -> Empties {
        Empties { dataplane, slots, windows, members: Mutex::new(members) }
    }

    /// The view in which the switch is a member of a group. None: a decision is being taken.
    pub(crate) fn view_now(&self, group: u16) -> Option<Option<u32>> {
        match self.members.try_lock() {
            Ok(members) => Some(members.get(&group).copied()),
            Err(TryLockError::Poisoned(poisoned)) => {
                Some(poisoned.into_inner().get(&group).copied())
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Before the program gets these roles: empties what joins. `pause`: gives the program these
    /// roles in their stead first, and waits for all packets.
    ///
    /// # Errors
    /// The kernel refuses, or `pause` does.
    pub fn before<E: From<Error>>(
        &self,
        roles: &[Role],
        pause: impl FnOnce(&[Role]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = begun(&members, roles);
        if begun.is_empty() {
            return Ok(());
        }
        if begun.iter().any(|group| members.contains_key(group)) {
            // It missed the decision in between.
            let mut paused = roles.to_vec();
            for group in &begun {
                if let Some(role) = paused.get_mut(usize::from(*group)) {
                    role.part = Part::Paused;
                }
            }
            pause(&paused)?;
            members.retain(|group, _| !begun.contains(group));
        }
        if members.is_empty() {
            self.windows.iter().try_for_each(|it| it.clear(&self.dataplane))?;
        }
        self.empty(&begun)?;
        Ok(())
    }

    /// After the program got these roles: frees the slots of groups that the switch has left.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn after(&self, roles: &[Role]) -> Result<()> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |wanted: fn(&Part) -> bool| {
            let found = (0..).zip(roles).filter(move |(_, role)| wanted(&role.part));
            found.map(|(group, role)| (group, role.view))
        };
        *members = of(|part| matches!(part, Part::Member { .. })).collect();
        drop(members);
        let left = of(|part| matches!(part, Part::None | Part::Lost));
        self.empty(&left.map(|(group, _)| group).collect())
    }

    fn empty(&self, groups: &BTreeSet<u16>) -> Result<()> {
        for slots in &self.slots {
            // (It goes over all slots.)
            let freed = dataplane::among_others(|| slots.empty(groups))?;
            if freed > 0 {
                tracing::info!(freed, "slots of groups that this switch is not in any more");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(view: u32, part: Part) -> Role {
        let (session, floor, next, copies_to) = (1, 0, None, None);
        let (head_since, chain) = (1, vec![]);
        Role { view, head_since, session, floor, part, next, copies_to, chain }
    }

    fn member(joining: bool) -> Part {
        Part::Member { head: false, reader: false, tail: false, joining, collecting: false }
    }

    #[test]
    fn a_member_begins_to_join_once_in_each_view() {
        let members = BTreeMap::from([(0, 4), (1, 4), (3, 4)]);
        let roles = [
            role(4, member(true)),
            role(5, member(true)),
            role(5, member(true)),
            role(5, member(false)),
            role(5, Part::Paused),
        ];
        assert_eq!(begun(&members, &roles), BTreeSet::from([1, 2]));
    }
}
