//! Listings, as clients heard them, and what they say of each key.
//!
//! A listing says of a key one bit: whether it had a value at some moment. Of a key that was told,
//! the moment is between its page's request and reply; of another one, between the first request
//! and the last reply of its group. So it is one more read in the key's history.

use super::{Answer, Request, UNHEARD};
use history::linearizable::Operation;
use netchain_protocol::{Key, Operation as Asks};

/// A key that a listing tells, if it has a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: Key,
    /// Its number in the history.
    pub(crate) number: usize,
    pub(crate) group: u16,
}

/// What a client heard of one page.
#[derive(Clone, Debug)]
pub(crate) struct HeardPage {
    pub(crate) group: u16,
    pub(crate) asked_ns: u64,
    pub(crate) heard_ns: u64,
    /// The keys that it was told.
    pub(crate) told: Vec<Key>,
    /// It was told that keys of the group are missing.
    pub(crate) incomplete: bool,
}

/// A listing.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) asked_ns: u64,
    pub(super) wanted: Vec<Wanted>,
    pub(super) pages: Vec<HeardPage>,
    /// When its client was told that there are no more keys.
    pub(super) over_ns: Option<u64>,
}

impl Listing {
    /// Each key that was told is wanted, is on a page of its group, and was told once.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut told: Vec<&Key> = vec![];
        for page in &self.pages {
            for key in &page.told {
                let wanted = self.wanted.iter().find(|it| it.key == *key);
                let what = match wanted {
                    None => "is told, but not wanted",
                    Some(wanted) if wanted.group != page.group => "is told, of another group",
                    Some(_) if told.contains(&key) => "is told twice",
                    Some(_) => {
                        told.push(key);
                        continue;
                    }
                };
                let number = key.0[1];
                return Err(format!("key {number} {what}; a page of group {}", page.group));
            }
        }
        Ok(())
    }

    /// What it says of a key. None: nothing.
    pub(super) fn says(&self, number: usize) -> Option<Operation<Request>> {
        let wanted = self.wanted.iter().find(|it| it.number == number)?;
        if let Some(page) = self.pages.iter().find(|page| page.told.contains(&wanted.key)) {
            return Some(had_value(true, page.asked_ns, page.heard_ns));
        }
        let over_ns = self.over_ns?;
        let pages = || self.pages.iter().filter(|page| page.group == wanted.group);
        if pages().any(|page| page.incomplete) {
            return None;
        }
        // (A group that was never asked: the client still says that these are all keys.)
        let from_ns = pages().map(|page| page.asked_ns).min().unwrap_or(self.asked_ns);
        let until_ns = pages().map(|page| page.heard_ns).max().unwrap_or(over_ns);
        Some(had_value(false, from_ns, until_ns))
    }
}

/// At some moment in this time the key had a value, or had none.
fn had_value(done: bool, from_ns: u64, until_ns: u64) -> Operation<Request> {
    let heard = Some((done, false));
    let (operation, value, made, collects) = (Asks::List, None, UNHEARD, false);
    let input = Request { operation, operand: 0, value, made, heard, collects };
    let answer = Answer { done, value: None, version: UNHEARD };
    Operation { input, invoked: from_ns, returned: Some((until_ns, answer)) }
}

#[cfg(test)]
mod tests {
    use super::super::History;
    use super::*;
    use netchain_client::{Done, Outcome, Shown};

    /// Two keys of group 0, and one of group 1.
    fn wanted() -> Vec<Wanted> {
        let one = |(number, group)| Wanted { key: Key([number as u8; 16]), number, group };
        [(0, 0), (1, 0), (2, 1)].map(one).into()
    }

    /// A write that is carried out in this time, or one whose outcome is unknown.
    fn writes(history: &mut History, key: usize, operation: Asks, ns: (u64, Option<u64>)) {
        let bytes = [ns.0 as u8; 8];
        let value = (operation == Asks::Put).then_some(&bytes[..]);
        let number = history.ask(ns.0, 0, key, (operation, 0, value));
        if let Some(over_ns) = ns.1 {
            let now = Shown { version: ns.0, value: value.map(<[u8]>::to_vec) };
            let done = Done { own: Some(ns.0), now };
            history.over(over_ns, number, &Ok(Outcome::Done(done)));
        }
    }

    fn page(group: u16, asked_ns: u64, told: &[u8]) -> HeardPage {
        let told = told.iter().map(|number| Key([*number; 16])).collect();
        HeardPage { group, asked_ns, heard_ns: asked_ns + 5, told, incomplete: false }
    }

    /// Key 0 has a value from 1 to 2 on, key 2 from 3 to 4 on; key 1 may have one from 5 on.
    fn judged(pages: Vec<HeardPage>, over: bool) -> Result<(), &'static str> {
        let mut history = History::default();
        writes(&mut history, 0, Asks::Put, (1, Some(2)));
        writes(&mut history, 2, Asks::Put, (3, Some(4)));
        writes(&mut history, 1, Asks::Put, (5, None));
        let listing = history.lists(10, wanted());
        pages.into_iter().for_each(|page| history.page(listing, page));
        if over {
            history.listed(listing, 100);
        }
        history.judge(3).map(drop).map_err(|(check, _)| check)
    }

    #[test]
    fn all_keys_are_told_once_and_an_unknown_one_or_not() {
        let second = page(1, 30, &[2]);
        for first in [&[0][..], &[0, 1], &[1, 0]] {
            assert_eq!(judged(vec![page(0, 20, first), second.clone()], true), Ok(()));
        }
        assert_eq!(judged(vec![page(0, 20, &[0]), page(0, 25, &[1]), second], true), Ok(()));
    }

    #[test]
    fn what_is_missing_is_found_and_what_was_said_to_be_missing_is_not() {
        let (first, second) = (page(0, 20, &[0]), page(1, 30, &[2]));
        assert_eq!(judged(vec![page(0, 20, &[1]), second.clone()], true), Err("listing"));
        assert_eq!(judged(vec![first.clone(), page(1, 30, &[])], true), Err("listing"));
        assert_eq!(judged(vec![first.clone()], true), Err("listing"), "a group is left out");
        assert_eq!(judged(vec![first.clone()], false), Ok(()), "it goes on");
        let incomplete = HeardPage { incomplete: true, ..page(1, 30, &[]) };
        assert_eq!(judged(vec![first, incomplete], true), Ok(()));
    }

    #[test]
    fn what_is_told_too_much_is_found() {
        let second = page(1, 30, &[2]);
        for first in [&[0, 0][..], &[0, 9], &[0, 2]] {
            assert_eq!(judged(vec![page(0, 20, first), second.clone()], true), Err("listing"));
        }
    }

    /// Key 0 is deleted from 40 to 50.
    #[test]
    fn a_key_is_told_by_a_page_that_overlaps_its_life() {
        for (asked_ns, told, good) in [
            (20, true, true),
            (42, true, true),
            (42, false, true),
            (51, true, false),
            (20, false, false),
        ] {
            let mut history = History::default();
            writes(&mut history, 0, Asks::Put, (1, Some(2)));
            writes(&mut history, 0, Asks::Delete, (40, Some(50)));
            let listing = history.lists(10, wanted());
            let told: &[u8] = if told { &[0] } else { &[] };
            history.page(listing, page(0, asked_ns, told));
            history.listed(listing, 100);
            let expected = if good { Ok(0) } else { Err("listing") };
            let judged = history.judge(1).map_err(|(check, _)| check);
            assert_eq!(judged, expected, "{asked_ns} {told:?}");
        }
    }
}
