//! What clients asked and heard, and whether it is linearizable: by value, key by key.
//!
//! Versions are judged beside that: a compare by version names the state that a reply showed with
//! that version; what clients are shown never goes back; an order must explain the versions that
//! were heard, too, which makes it quick to find.
//!
//! A listing is one more read of each of its keys ([`listings`]).

use self::listings::{HeardPage, Listing, Wanted};
use history::linearizable::{self, Model};
use netchain_client::{Failure, Outcome, Shown};
use netchain_protocol::Operation;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

pub(crate) mod listings;

/// In the place of a version: nobody heard it.
const UNHEARD: u64 = u64::MAX;

/// States of a search for an order, for one key.
const MOST_STATES: usize = 200_000;

/// A value: its first word, which is another one in each write, and a digest of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    word: u64,
    rest: u64,
}

impl Value {
    /// Of a value's bytes.
    pub fn of(bytes: &[u8]) -> Value {
        let (word, rest) = bytes.split_at(bytes.len().min(8));
        let mut first = [0; 8];
        first[..word.len()].copy_from_slice(word);
        let mut hasher = DefaultHasher::new();
        rest.hash(&mut hasher);
        Value { word: u64::from_be_bytes(first), rest: hasher.finish() }
    }
}

/// A key's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    value: Option<Value>,
    /// That clients heard of; 0: the key was never written.
    version: u64,
}

/// What was heard of a request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// It was carried out; else its condition did not hold.
    done: bool,
    /// The key's value after it. `None`: that was not shown.
    value: Option<Option<Value>>,
    /// The key's version after it; [`UNHEARD`]: that was not shown, or nobody knows it.
    version: u64,
}

/// Nobody can tell a version that was not heard from any other.
impl PartialEq for Answer {
    fn eq(&self, other: &Answer) -> bool {
        let unheard = self.version == UNHEARD || other.version == UNHEARD;
        self.done == other.done
            && self.value == other.value
            && (unheard || self.version == other.version)
    }
}

impl Eq for Answer {}

/// A request, as far as its effect is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    operation: Operation,
    operand: u64,
    value: Option<Value>,
    /// The version that it made, if somebody heard of that.
    made: u64,
    /// What was heard of it: whether it was carried out, and whether the key's state is shown.
    heard: Option<(bool, bool)>,
    /// Tombstones are collected in this run: a key without a value may have version 0 at any time.
    collects: bool,
}

impl Request {
    fn holds(&self, state: &State) -> bool {
        match self.operation {
            Operation::Insert => state.value.is_none(),
            // (Of a listing it is what was heard: whether the key has a value.)
            Operation::List => state.value.is_some(),
            Operation::CompareVersion if state.version == UNHEARD => self.done_or_unknown(),
            Operation::CompareVersion if self.collects && state.value.is_none() => {
                let may_be = [0, state.version].contains(&self.operand);
                may_be && self.done_or_unknown()
            }
            Operation::CompareVersion => state.version == self.operand,
            Operation::CompareOwner => state.value.is_some_and(|it| it.word == self.operand),
            Operation::Delete if state.value.is_none() => false,
            Operation::Delete if self.operand == 0 => true,
            Operation::Delete if state.version == UNHEARD => self.done_or_unknown(),
            Operation::Delete => state.version == self.operand,
            _ => true,
        }
    }

    fn writes(&self, done: bool) -> bool {
        done && !matches!(self.operation, Operation::Read | Operation::List)
    }

    /// Nobody heard the state's version: it may be the operand or not.
    fn done_or_unknown(&self) -> bool {
        self.heard.is_none_or(|(done, _)| done)
    }
}

impl Model for Request {
    type State = State;
    type Output = Answer;

    fn initial() -> State {
        State { value: None, version: 0 }
    }

    fn step(self, state: &State) -> (State, Answer) {
        let done = self.holds(state);
        let empty = Value::of(&[0; 8]);
        let next = match self.operation {
            Operation::Read | Operation::List => *state,
            _ if !done => *state,
            Operation::Delete => State { value: None, version: self.made },
            Operation::Add => {
                let before = state.value.unwrap_or(empty);
                let word = before.word.wrapping_add(self.operand);
                State { value: Some(Value { word, ..before }), version: self.made }
            }
            _ => State { value: self.value, version: self.made },
        };
        let shows = self.heard.is_none_or(|(_, shows)| shows);
        // (What the head shows of a key without a value: the tombstone's version, or 0.)
        let gone = self.collects && next.value.is_none() && !self.writes(done);
        let version = if gone { UNHEARD } else { next.version };
        let answer = Answer { done, value: shows.then_some(next.value), version };
        (next, answer)
    }

    fn is_past(self, state: &State, output: &Answer) -> bool {
        // (A write comes after the version that it replaced.)
        let writes = self.writes(output.done);
        let collected = self.collects && output.version == 0;
        !collected
            && output.version != UNHEARD
            && state.version != UNHEARD
            && (output.version < state.version || writes && output.version == state.version)
    }

    fn only_reads(self) -> bool {
        matches!(self.operation, Operation::Read | Operation::List)
    }
}

/// A request and what became of it.
#[derive(Clone, Debug)]
struct Asked {
    client: usize,
    key: usize,
    request: Request,
    asked_ns: u64,
    /// When it was over, and what then was heard; `None`: it may have happened.
    answer: Option<(u64, Answer)>,
    /// It certainly was not carried out.
    was_not: bool,
    shown: Option<Shown>,
    /// What became of it, in a word.
    outcome: &'static str,
}

/// All requests of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    asked: Vec<Asked>,
    listings: Vec<Listing>,
    /// Tombstones are collected.
    collects: bool,
    /// Requests that are over, by what became of them.
    pub counts: BTreeMap<&'static str, u64>,
}

impl History {
    /// Of a run in which tombstones are collected, or not.
    pub fn new(collects: bool) -> History {
        History { collects, ..History::default() }
    }

    /// A client begins a request; its number here.
    pub fn ask(
        &mut self,
        now_ns: u64,
        client: usize,
        key: usize,
        (operation, operand, value): (Operation, u64, Option<&[u8]>),
    ) -> usize {
        let value = value.map(Value::of);
        let collects = self.collects;
        let request = Request { operation, operand, value, made: UNHEARD, heard: None, collects };
        let (answer, shown) = (None, None);
        let (asked_ns, was_not, outcome) = (now_ns, false, "under way");
        self.asked.push(Asked { client, key, request, asked_ns, answer, was_not, shown, outcome });
        self.asked.len() - 1
    }

    /// A request is over.
    pub fn over(&mut self, now_ns: u64, number: usize, result: &Result<Outcome, Failure>) {
        let asked = &mut self.asked[number];
        let mut heard = |done: bool, version: u64, shown: Option<&Shown>| {
            asked.request.heard = Some((done, shown.is_some()));
            let value = shown.map(|shown| shown.value.as_deref().map(Value::of));
            asked.answer = Some((now_ns, Answer { done, value, version }));
        };
        let what = match result {
            Ok(Outcome::Done(done)) => {
                let reads = asked.request.operation == Operation::Read;
                let own = reads || done.own == Some(done.now.version);
                let version = if own { done.now.version } else { done.own.unwrap_or(UNHEARD) };
                heard(true, version, own.then_some(&done.now));
                asked.request.made = if reads { UNHEARD } else { version };
                asked.shown = Some(done.now.clone());
                "done"
            }
            Ok(Outcome::Refused(refused)) => {
                let version = if refused.moved { UNHEARD } else { refused.now.version };
                heard(false, version, (!refused.moved).then_some(&refused.now));
                asked.shown = Some(refused.now.clone());
                "refused"
            }
            Ok(Outcome::Full) => {
                asked.was_not = true;
                "full"
            }
            Ok(Outcome::NoChain) => {
                asked.was_not = true;
                "no chain"
            }
            Ok(Outcome::TooLong(_)) => {
                asked.was_not = true;
                "too long"
            }
            Ok(Outcome::Listed(_)) => "listed",
            Ok(Outcome::Unknown) => "unknown",
            Ok(Outcome::Lost) => "lost",
            Err(_) => "failed",
        };
        asked.outcome = what;
        *self.counts.entry(what).or_default() += 1;
    }

    /// A client begins a listing of these keys; its number here.
    pub(crate) fn lists(&mut self, asked_ns: u64, wanted: Vec<Wanted>) -> usize {
        self.listings.push(Listing { asked_ns, wanted, pages: vec![], over_ns: None });
        self.listings.len() - 1
    }

    /// A page of a listing comes, or the news that there is none.
    pub(crate) fn page(&mut self, listing: usize, page: HeardPage) {
        let what = if page.incomplete { "group not listed" } else { "page" };
        *self.counts.entry(what).or_default() += 1;
        self.listings[listing].pages.push(page);
    }

    /// A listing is over: its client takes what it was told for all keys.
    pub(crate) fn listed(&mut self, listing: usize, now_ns: u64) {
        *self.counts.entry("listed").or_default() += 1;
        self.listings[listing].over_ns = Some(now_ns);
    }

    /// Groups of which the last listing said that keys are missing. None: it is not over.
    pub(crate) fn last_not_listed(&self) -> Option<Vec<u16>> {
        let listing = self.listings.last().filter(|it| it.over_ns.is_some())?;
        let incomplete = listing.pages.iter().filter(|page| page.incomplete);
        Some(incomplete.map(|page| page.group).collect())
    }

    /// What became of a request, in a word.
    pub fn outcome(&self, number: usize) -> &'static str {
        self.asked.get(number).map_or("not begun", |asked| asked.outcome)
    }

    /// What a client saw of a key, the newest last.
    pub fn seen(&self, client: usize, key: usize) -> Vec<Shown> {
        let mut seen: Vec<(u64, &Shown)> = self
            .asked
            .iter()
            .filter(|it| it.client == client && it.key == key)
            .filter_map(|it| Some((it.answer?.0, it.shown.as_ref()?)))
            .collect();
        seen.sort_by_key(|(at_ns, _)| *at_ns);
        seen.into_iter().map(|(_, shown)| shown.clone()).collect()
    }

    /// How many requests were begun.
    pub fn begun(&self) -> usize {
        self.asked.len()
    }

    /// Judges the history of each key; of how many it cannot be said in time.
    ///
    /// # Errors
    /// What is wrong: the check, and what it found.
    pub fn judge(&self, keys: usize) -> Result<u64, (&'static str, String)> {
        for listing in &self.listings {
            listing.check().map_err(|found| ("listing", found))?;
        }
        let mut undecided = 0;
        for key in 0..keys {
            let of_key: Vec<&Asked> = self.asked.iter().filter(|it| it.key == key).collect();
            self.check_versions(&of_key).map_err(|found| ("versions", found))?;
            let asked = operations_of(&of_key);
            let mut all = asked.clone();
            all.extend(self.listings.iter().filter_map(|listing| listing.says(key)));
            let Some(Err(found)) = explained(&all).or_else(|| {
                undecided += 1;
                explained(&asked)
            }) else {
                continue;
            };
            let is_listings = all.len() > asked.len() && explained(&asked) == Some(Ok(()));
            let check = if is_listings { "listing" } else { "linearizable" };
            return Err((check, format!("key {key}: {found}")));
        }
        Ok(undecided)
    }

    /// What is shown never goes back; and two states never have one version.
    fn check_versions(&self, asked: &[&Asked]) -> Result<(), String> {
        let mut shown: Vec<(u64, u64, &Shown)> = asked
            .iter()
            .filter_map(|it| Some((it.asked_ns, it.answer?.0, it.shown.as_ref()?)))
            .collect();
        shown.sort_by_key(|(_, returned_ns, _)| *returned_ns);
        let mut values: BTreeMap<u64, &Option<Vec<u8>>> = BTreeMap::new();
        // The newest version of each beginning.
        let newest: Vec<u64> = shown
            .iter()
            .scan(0, |newest, (.., shown)| {
                *newest = shown.version.max(*newest);
                Some(*newest)
            })
            .collect();
        for (asked_ns, _, later) in &shown {
            if self.collects && later.version == 0 && later.value.is_none() {
                continue;
            }
            let earlier = shown.partition_point(|(_, returned_ns, _)| returned_ns < asked_ns);
            let newest = earlier.checked_sub(1).and_then(|at| newest.get(at));
            if let Some(newest) = newest.filter(|newest| **newest > later.version) {
                return Err(format!("version {:x} is shown after {newest:x} was", later.version));
            }
            let known = values.entry(later.version).or_insert(&later.value);
            if **known != later.value {
                let version = later.version;
                return Err(format!("version {version:x} was {known:?}, then {:?}", later.value));
            }
        }
        Ok(())
    }
}

/// What is to be explained of a key's requests.
fn operations_of(of_key: &[&Asked]) -> Vec<linearizable::Operation<Request>> {
    let seen = versions_of(of_key);
    let operation = |it: &&Asked| {
        let Request { value, made, .. } = it.request;
        let known = value.and_then(|value| seen.get(&value).copied());
        let made = if made == UNHEARD { known.unwrap_or(UNHEARD) } else { made };
        let input = Request { made, ..it.request };
        linearizable::Operation { input, invoked: it.asked_ns, returned: it.answer }
    };
    of_key.iter().filter(|it| !it.was_not).map(operation).collect()
}

/// Does an order explain these? None: that cannot be said in time.
fn explained(
    all: &[linearizable::Operation<Request>],
) -> Option<Result<(), linearizable::NotLinearizable>> {
    // An order without the unanswered writes of which nobody saw anything is an order, and is found
    // sooner.
    let matters = |it: &&linearizable::Operation<Request>| {
        it.returned.is_some() || it.input.made != UNHEARD || it.input.value.is_none()
    };
    let some: Vec<_> = all.iter().filter(matters).copied().collect();
    match linearizable::check_within(&some, MOST_STATES) {
        Some(Ok(())) => Some(Ok(())),
        _ => linearizable::check_within(all, MOST_STATES),
    }
}

/// The versions with which values were shown.
fn versions_of(asked: &[&Asked]) -> BTreeMap<Value, u64> {
    let shown = asked.iter().filter_map(|it| it.shown.as_ref());
    shown.filter_map(|it| Some((Value::of(it.value.as_deref()?), it.version))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchain_client::{Done, Refused};

    fn bytes(word: u64) -> Vec<u8> {
        word.to_be_bytes().to_vec()
    }

    fn shown(version: u64, value: Option<u64>) -> Shown {
        Shown { version, value: value.map(bytes) }
    }

    fn done(version: u64, value: Option<u64>) -> Result<Outcome, Failure> {
        Ok(Outcome::Done(Done { own: Some(version), now: shown(version, value) }))
    }

    fn read(version: u64, value: Option<u64>) -> Result<Outcome, Failure> {
        Ok(Outcome::Done(Done { own: None, now: shown(version, value) }))
    }

    fn refused(version: u64, value: Option<u64>) -> Result<Outcome, Failure> {
        let now = shown(version, value);
        Ok(Outcome::Refused(Refused { now, moved: false }))
    }

    /// (operation, operand, value), asked at, over at, outcome.
    type Line = ((Operation, u64, Option<u64>), u64, u64, Option<Result<Outcome, Failure>>);

    fn judged(lines: &[Line]) -> Result<(), &'static str> {
        let mut history = History::default();
        for ((operation, operand, value), from_ns, to_ns, result) in lines {
            let value = value.map(bytes);
            let asked = (*operation, *operand, value.as_deref());
            let number = history.ask(*from_ns, 0, 0, asked);
            if let Some(result) = result {
                history.over(*to_ns, number, result);
            }
        }
        history.judge(1).map(drop).map_err(|(check, _)| check)
    }

    #[test]
    fn writes_reads_and_compares_in_order() {
        use Operation::{Add, CompareOwner, CompareVersion, Delete, Insert, Put, Read};
        let lines = [
            ((Insert, 0, Some(7)), 1, 2, Some(done(1, Some(7)))),
            ((CompareVersion, 1, Some(8)), 3, 4, Some(done(2, Some(8)))),
            ((CompareVersion, 1, Some(9)), 5, 6, Some(refused(2, Some(8)))),
            ((CompareOwner, 8, Some(20)), 7, 8, Some(done(3, Some(20)))),
            ((Add, 5, None), 9, 10, Some(done(4, Some(25)))),
            ((Delete, 0, None), 11, 12, Some(done(5, None))),
            ((Read, 0, None), 13, 14, Some(read(5, None))),
            ((Put, 0, Some(1)), 15, 16, Some(done(6, Some(1)))),
        ];
        assert_eq!(judged(&lines), Ok(()));
    }

    /// The first schedule of the notes: a refusal shows what the chain then loses.
    #[test]
    fn what_a_refusal_shows_counts() {
        use Operation::{CompareVersion, Put, Read};
        let lines = [
            ((Put, 0, Some(1)), 1, 2, Some(done(4, Some(1)))),
            ((CompareVersion, 4, Some(2)), 3, 0, None),
            ((CompareVersion, 4, Some(3)), 5, 6, Some(refused(5, Some(2)))),
            ((Read, 0, None), 7, 8, Some(read(4, Some(1)))),
        ];
        assert_eq!(judged(&lines), Err("versions"));
        let hidden = ((Read, 0, None), 7, 8, Some(read(6, Some(1))));
        assert_eq!(judged(&[&lines[..3], &[hidden]].concat()), Err("linearizable"));
    }

    #[test]
    fn two_winners_of_one_version_are_found() {
        use Operation::{CompareVersion, Put};
        let lines = [
            ((Put, 0, Some(1)), 1, 2, Some(done(4, Some(1)))),
            ((CompareVersion, 4, Some(2)), 3, 4, Some(done(5, Some(2)))),
            ((CompareVersion, 4, Some(3)), 5, 6, Some(done(6, Some(3)))),
        ];
        assert_eq!(judged(&lines), Err("linearizable"));
    }

    #[test]
    fn a_version_that_stands_for_two_values_is_found() {
        use Operation::{Put, Read};
        let lines = [
            ((Put, 0, Some(1)), 1, 4, Some(done(4, Some(1)))),
            ((Put, 0, Some(2)), 2, 5, Some(done(4, Some(2)))),
            ((Read, 0, None), 6, 7, Some(read(4, Some(2)))),
        ];
        assert_eq!(judged(&lines), Err("versions"));
    }
}
