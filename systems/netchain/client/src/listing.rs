//! All keys that begin with a prefix: group by group, page by page. Without sockets.
//!
//! It is no snapshot. A key that has a value from the begin of the listing to its end is told once;
//! one that is made or deleted meanwhile is told or not.

#[cfg(feature = "tokio")]
use crate::AsyncClient;
use crate::{Client, Failed, Key, Outcome, Request};
use netchain_protocol::{Ring, message::Wrong};
use std::collections::{HashSet, VecDeque};

/// Why keys are missing from a listing.
#[derive(Debug, thiserror::Error)]
pub enum ListFailed {
    /// The client cannot ask: the listing is over.
    #[error(transparent)]
    Client(#[from] Failed),
    /// The group's keys are missing; other groups' keys follow.
    #[error("group {0}: no switch answers for it")]
    NoChain(u16),
    /// The group's keys are gone; other groups' keys follow.
    #[error("group {0}: all its switches were lost, and its keys with them")]
    Lost(u16),
}

/// A listing under way.
///
/// [`Listing::request`] says what to ask next, [`Listing::take`] takes the outcome,
/// [`Listing::key`] has the keys.
#[derive(Clone, Debug)]
pub struct Listing {
    prefix: Key,
    mask: [u8; 16],
    group: u16,
    /// The first group that is not asked any more.
    end: u32,
    /// The group's view in which the cursor means something; 0: it is at the begin.
    view: u32,
    cursor: u32,
    /// Keys of this group: what comes again is not told again.
    told: HashSet<Key>,
    ready: VecDeque<Key>,
    requests: u64,
}

impl Listing {
    /// Of a cluster's keys, those that begin with a prefix.
    ///
    /// # Errors
    /// The prefix has more than 16 bytes.
    pub fn new(ring: &Ring, prefix: &[u8]) -> Result<Listing, Wrong> {
        let (mut key, mut mask) = ([0; 16], [0; 16]);
        let bytes = prefix.len();
        key.get_mut(..bytes).ok_or(Wrong::LongName(bytes))?.copy_from_slice(prefix);
        mask[..bytes].fill(255);
        let key = Key(key);
        // (A whole key is in one group.)
        let whole = (bytes == key.0.len()).then(|| ring.group_of(&key));
        let (group, end) = match whole {
            Some(group) => (group, u32::from(group) + 1),
            None => (0, u32::from(ring.groups())),
        };
        Ok(Listing {
            prefix: key,
            mask,
            group,
            end,
            view: 0,
            cursor: 0,
            told: HashSet::new(),
            ready: VecDeque::new(),
            requests: 0,
        })
    }

    /// The same, one listing for each group: they can be asked beside each other.
    pub fn by_group(&self) -> impl Iterator<Item = Listing> + use<> {
        let begin = Listing { told: HashSet::new(), ready: VecDeque::new(), ..self.clone() };
        (u32::from(self.group)..self.end).filter_map(move |group| {
            let (from, end) = (u16::try_from(group).ok()?, group + 1);
            Some(Listing { group: from, end, view: 0, cursor: 0, requests: 0, ..begin.clone() })
        })
    }

    /// A key that has come.
    pub fn key(&mut self) -> Option<Key> {
        self.ready.pop_front()
    }

    /// What to ask next. None: all groups are through.
    pub fn request(&mut self) -> Option<Request> {
        if u32::from(self.group) >= self.end {
            return None;
        }
        self.requests += 1;
        Some(Request::list(self.group, &self.prefix, &self.mask, self.cursor))
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Groups that are through, and how many there are.
    pub fn groups(&self) -> (u32, u32) {
        (self.group.into(), self.end)
    }

    /// The outcome of the last request.
    ///
    /// # Errors
    /// The group's keys, or some of them, are missing. The next request is about the next group.
    pub fn take(&mut self, outcome: Outcome) -> Result<(), ListFailed> {
        let group = self.group;
        match outcome {
            Outcome::Listed(page) => {
                if page.view != self.view && self.cursor != 0 {
                    // Another member has other slots.
                    (self.view, self.cursor) = (0, 0);
                    return Ok(());
                }
                self.view = page.view;
                let told = &mut self.told;
                self.ready.extend(page.keys.into_iter().filter(|key| told.insert(*key)));
                match page.next {
                    Some(next) => self.cursor = next,
                    None => self.go_on(),
                }
                Ok(())
            }
            Outcome::Lost => {
                self.go_on();
                Err(ListFailed::Lost(group))
            }
            _ => {
                self.go_on();
                Err(ListFailed::NoChain(group))
            }
        }
    }

    /// The client cannot ask any more.
    pub fn stop(&mut self) {
        self.end = 0;
    }

    /// Takes the outcome of the last request, or stops: the client cannot ask.
    fn take_answer<E: Into<ListFailed>>(
        &mut self,
        answer: Result<Outcome, E>,
    ) -> Result<(), ListFailed> {
        match answer {
            Ok(outcome) => self.take(outcome),
            Err(failed) => {
                self.stop();
                Err(failed.into())
            }
        }
    }

    fn go_on(&mut self) {
        (self.view, self.cursor) = (0, 0);
        self.told.clear();
        match self.group.checked_add(1) {
            Some(group) => self.group = group,
            None => self.stop(),
        }
    }
}

/// Keys of a listing by a [`Client`]: [`Client::list`].
pub struct Keys<'a> {
    client: &'a mut Client,
    listing: Listing,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(client: &'a mut Client, listing: Listing) -> Keys<'a> {
        Keys { client, listing }
    }

    /// How far it is.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }
}

impl Iterator for Keys<'_> {
    type Item = Result<Key, ListFailed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(key) = self.listing.key() {
                return Some(Ok(key));
            }
            let request = self.listing.request()?;
            let answer = self.client.ask(request);
            if let Err(failed) = self.listing.take_answer(answer) {
                return Some(Err(failed));
            }
        }
    }
}

/// Keys of a listing by an [`AsyncClient`]: [`AsyncClient::list`].
#[cfg(feature = "tokio")]
pub struct AsyncKeys {
    client: AsyncClient,
    listing: Listing,
}

#[cfg(feature = "tokio")]
impl AsyncKeys {
    pub(crate) fn new(client: AsyncClient, listing: Listing) -> AsyncKeys {
        AsyncKeys { client, listing }
    }

    /// How far it is.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The next key; None: there are no more. A future that is dropped loses no key.
    pub async fn next(&mut self) -> Option<Result<Key, ListFailed>> {
        loop {
            if let Some(key) = self.listing.key() {
                return Some(Ok(key));
            }
            let request = self.listing.request()?;
            let answer = self.client.ask(request).await;
            if let Err(failed) = self.listing.take_answer(answer) {
                return Some(Err(failed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Page;
    use netchain_protocol::{Founding, Member};

    fn ring() -> Ring {
        let member = |last| Member { address: [10, 9, 0, last].into(), rack: String::new() };
        let founding = Founding {
            cluster: "0123456789abcdef".into(),
            groups: 2,
            virtual_nodes: 4,
            failures: 0,
            member: vec![member(1), member(2)],
        };
        Ring::found(founding).unwrap()
    }

    fn page(view: u32, keys: &[&str], next: Option<u32>) -> Outcome {
        let keys = keys.iter().map(|name| Key::from_name(name).unwrap()).collect();
        Outcome::Listed(Page { view, keys, next })
    }

    /// Asks until the listing is over; the cursors by group, and the keys.
    fn run(listing: &mut Listing, outcomes: Vec<Outcome>) -> (Vec<(u16, u64)>, Vec<Key>, usize) {
        let (mut asked, mut keys, mut failures) = (vec![], vec![], 0);
        for outcome in outcomes {
            let request = listing.request().unwrap();
            asked.push((request.group.unwrap(), request.operand));
            failures += usize::from(listing.take(outcome).is_err());
            keys.extend(std::iter::from_fn(|| listing.key()));
        }
        assert_eq!(listing.request(), None);
        (asked, keys, failures)
    }

    #[test]
    fn pages_follow_each_other_and_groups_too() {
        let mut listing = Listing::new(&ring(), b"").unwrap();
        let outcomes = vec![
            page(4, &["a"], Some(9)),
            page(4, &[], Some(90)),
            page(4, &["b"], None),
            page(7, &["c"], None),
        ];
        let (asked, keys, failures) = run(&mut listing, outcomes);
        assert_eq!(asked, [(0, 0), (0, 9), (0, 90), (1, 0)]);
        assert_eq!(keys, ["a", "b", "c"].map(|name| Key::from_name(name).unwrap()));
        assert_eq!((failures, listing.requests()), (0, 4));
    }

    #[test]
    fn a_group_begins_again_in_another_view_and_keys_are_told_once() {
        let mut listing = Listing::new(&ring(), b"").unwrap();
        let outcomes = vec![
            page(4, &["a", "b"], Some(9)),
            page(5, &["x"], Some(20)), // what was skipped would be missing
            page(5, &["b", "x"], Some(3)),
            page(5, &["a", "x"], None),
            Outcome::Lost,
        ];
        let (asked, keys, failures) = run(&mut listing, outcomes);
        assert_eq!(asked, [(0, 0), (0, 9), (0, 0), (0, 3), (1, 0)]);
        assert_eq!(keys, ["a", "b", "x"].map(|name| Key::from_name(name).unwrap()));
        assert_eq!(failures, 1);
    }

    #[test]
    fn each_group_can_be_listed_by_itself() {
        let mut parts: Vec<Listing> = Listing::new(&ring(), b"").unwrap().by_group().collect();
        assert_eq!(parts.len(), 2);
        for (group, part) in parts.iter_mut().enumerate() {
            let (asked, keys, _) = run(part, vec![page(4, &["a"], Some(9)), page(4, &["b"], None)]);
            assert_eq!(asked, [(group as u16, 0), (group as u16, 9)]);
            assert_eq!(keys.len(), 2);
        }
        let whole = Listing::new(&ring(), &[b'k'; 16]).unwrap();
        assert_eq!(whole.by_group().map(|it| it.group).collect::<Vec<_>>(), [whole.group]);
    }

    #[test]
    fn a_whole_key_is_looked_for_in_its_group() {
        let (ring, key) = (ring(), [b'k'; 16]);
        let request = Listing::new(&ring, &key).unwrap().request().unwrap();
        assert_eq!(request.group, Some(ring.group_of(&Key(key))));
        assert!(Listing::new(&ring, &[0; 17]).is_err());
    }
}
