//! Is a history linearizable? The algorithm of Wing and Gong (Testing and verifying concurrent
//! objects, 1993) as Lowe made it fast (Testing for linearizability, 2017): a search for an order
//! of the operations that the sequential object could have had, depth first, that remembers which
//! (set of operations, state) led nowhere. Objects that share nothing are judged one by one by the
//! caller: a history is linearizable if and only if each object's part is (Herlihy and Wing's
//! locality; "P-compositionality" with Horn and Kroening, Faster linearizability checking via
//! P-compositionality, 2015). For us a flow is an object.
//!
//! Operations without an output may have taken effect at any time after their input, or never
//! (RedPlane, Definitions 2 to 4).

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

/// A sequential object, as far as its operations are concerned. `Self` is an operation's input.
pub trait Model: Copy + Eq {
    /// The object's state.
    type State: Clone + Eq + Hash + fmt::Debug;
    /// What an operation gives back.
    type Output: Copy + Eq + fmt::Debug;

    /// The state at the beginning.
    fn initial() -> Self::State;

    /// The operation, done in this state: the next state and the output.
    fn step(self, state: &Self::State) -> (Self::State, Self::Output);

    /// Can it give this output neither in this state nor in any that may follow? With it the search
    /// sees early that a choice was wrong; `false` is always right.
    fn is_past(self, state: &Self::State, output: &Self::Output) -> bool;

    /// Does it leave every state as it is? Without an output such an operation says nothing.
    fn only_reads(self) -> bool;
}

/// A counter: counter.p4, and whatever numbers its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Adds one, and gives the sum.
    Increment,
    /// Gives the sum.
    Read,
}

impl Model for Counter {
    type State = u64;
    type Output = u64;

    fn initial() -> u64 {
        0
    }

    fn step(self, state: &u64) -> (u64, u64) {
        let next = match self {
            Counter::Increment => state + 1,
            Counter::Read => *state,
        };
        (next, next)
    }

    fn is_past(self, state: &u64, output: &u64) -> bool {
        match self {
            Counter::Increment => output <= state,
            Counter::Read => output < state,
        }
    }

    fn only_reads(self) -> bool {
        self == Counter::Read
    }
}

/// A register that is written once, by whoever uses it first: what a translator allocates for a
/// flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// What this one would have written, had it been the first. Of an operation with an output that
    /// is its output.
    pub allocated: u64,
}

impl Model for Binding {
    type State = Option<u64>;
    type Output = u64;

    fn initial() -> Option<u64> {
        None
    }

    fn step(self, state: &Option<u64>) -> (Option<u64>, u64) {
        let value = state.unwrap_or(self.allocated);
        (Some(value), value)
    }

    fn is_past(self, state: &Option<u64>, output: &u64) -> bool {
        state.is_some_and(|value| value != *output)
    }

    fn only_reads(self) -> bool {
        false
    }
}

/// One operation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<M: Model> {
    /// What was asked.
    pub input: M,
    /// When: any numbers that grow with time.
    pub invoked: u64,
    /// When it was answered, and what; `None`: never.
    pub returned: Option<(u64, M::Output)>,
}

/// There is no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLinearizable {
    /// The most operations with an answer that some order explains, from the beginning.
    pub explained: usize,
    /// Of so many.
    pub of: usize,
    /// The states in which that order can go no further, and what comes next, for people.
    pub stuck: String,
}

impl fmt::Display for NotLinearizable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no order explains more than {} of {} outputs: {}",
            self.explained, self.of, self.stuck
        )
    }
}

/// Links of a list of events from which operations are taken out, and put back.
struct Events {
    /// (operation, is it the call)
    event: Vec<(usize, bool)>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Per operation: its call and, if it returned, its return.
    places: Vec<(usize, Option<usize>)>,
}

/// The place before the first event.
const HEAD: usize = 0;

impl Events {
    fn new<M: Model>(operations: &[Operation<M>]) -> Events {
        // What happens at the same time overlaps: calls first.
        let mut order: Vec<(u64, bool, usize)> = Vec::new();
        for (at, operation) in operations.iter().enumerate() {
            order.push((operation.invoked, false, at));
            order.extend(operation.returned.map(|(when, _)| (when, true, at)));
        }
        order.sort_unstable();
        let mut events = Events {
            event: vec![(usize::MAX, false)],
            next: (1..=order.len() + 1).collect(),
            previous: (0..=order.len() + 1).map(|at| at.saturating_sub(1)).collect(),
            places: vec![(0, None); operations.len()],
        };
        for (_, returns, operation) in order {
            let call = !returns;
            let place = events.event.len();
            events.event.push((operation, call));
            match call {
                true => events.places[operation].0 = place,
                false => events.places[operation].1 = Some(place),
            }
        }
        events
    }

    fn end(&self) -> usize {
        self.event.len()
    }

    fn unlink(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn link(&mut self, place: usize) {
        let (previous, next) = (self.previous[place], self.next[place]);
        self.next[previous] = place;
        self.previous[next] = place;
    }

    /// Takes an operation out.
    fn lift(&mut self, operation: usize) {
        let (call, returns) = self.places[operation];
        self.unlink(call);
        if let Some(returns) = returns {
            self.unlink(returns);
        }
    }

    /// Puts it back: in the opposite order.
    fn unlift(&mut self, operation: usize) {
        let (call, returns) = self.places[operation];
        if let Some(returns) = returns {
            self.link(returns);
        }
        self.link(call);
    }
}

/// Is the history of one object linearizable?
///
/// # Errors
/// It is not.
pub fn check<M: Model>(operations: &[Operation<M>]) -> Result<(), NotLinearizable> {
    check_within(operations, usize::MAX).unwrap_or(Ok(()))
}

/// The same, if that can be said after at most so many states of the search. (Some histories take
/// longer than anybody can wait.)
pub fn check_within<M: Model>(
    operations: &[Operation<M>],
    most: usize,
) -> Option<Result<(), NotLinearizable>> {
    let operations: Vec<Operation<M>> = operations
        .iter()
        .filter(|operation| operation.returned.is_some() || !operation.input.only_reads())
        .copied()
        .collect();
    let of = operations.iter().filter(|operation| operation.returned.is_some()).count();
    let mut events = Events::new(&operations);
    let mut done = vec![0u64; operations.len().div_ceil(64)];
    let mut seen: HashSet<(Vec<u64>, M::State)> = HashSet::new();
    // Operations in the order so far, the states before them, and whether another choice in their
    // places could be any better.
    let mut path: Vec<(usize, M::State, bool)> = Vec::new();
    let mut state = M::initial();
    let (mut explained, mut best, mut stuck) = (0, 0, String::new());
    let mut place = events.next[HEAD];
    // Of the unanswered operations with one input only the first is tried: they are alike, but for
    // it having been there earlier.
    let mut tried: Vec<M> = Vec::new();
    while explained < of {
        if seen.len() > most {
            return None;
        }
        if place != events.end() && events.event[place].1 {
            let (at, _) = events.event[place];
            let operation = &operations[at];
            let alike = operation.returned.is_none() && tried.contains(&operation.input);
            let (next, output) = operation.input.step(&state);
            let mut fits =
                !alike && operation.returned.is_none_or(|(_, returned)| returned == output);
            if fits && !operation.input.only_reads() {
                let strands = |(other, operation): (usize, &Operation<M>)| {
                    let left = other != at && done[other / 64] >> (other % 64) & 1 == 0;
                    left && operation
                        .returned
                        .is_some_and(|(_, returned)| operation.input.is_past(&next, &returned))
                };
                fits = !operations.iter().enumerate().any(strands);
            }
            if operation.returned.is_none() {
                tried.push(operation.input);
            }
            if fits {
                done[at / 64] |= 1 << (at % 64);
                if seen.insert((done.clone(), next.clone())) {
                    let open = !operation.input.only_reads();
                    path.push((at, std::mem::replace(&mut state, next), open));
                    explained += usize::from(operation.returned.is_some());
                    events.lift(at);
                    place = events.next[HEAD];
                    tried.clear();
                    continue;
                }
                done[at / 64] &= !(1 << (at % 64));
                if operation.input.only_reads() {
                    place = events.end();
                    continue;
                }
            }
            place = events.next[place];
            continue;
        }
        // A return is reached whose operation is in no place of the order, or the end: the last
        // choice was wrong.
        if explained >= best {
            best = explained;
            let waits = (place != events.end())
                .then(|| operations[events.event[place].0].returned)
                .flatten();
            stuck =
                format!("in state {state:?} none may come next, and {waits:?} (time, output) must");
        }
        let at = loop {
            let Some((at, before, open)) = path.pop() else {
                return Some(Err(NotLinearizable { explained: best, of, stuck }));
            };
            state = before;
            explained -= usize::from(operations[at].returned.is_some());
            done[at / 64] &= !(1 << (at % 64));
            events.unlift(at);
            // What only reads, and fits, stands in nobody's way: no order without it here does
            // more.
            if open {
                break at;
            }
        };
        place = events.next[events.places[at].0];
        // What stands before it was tried.
        tried.clear();
        let mut earlier = events.next[HEAD];
        while earlier != place && earlier != events.end() {
            let (at, call) = events.event[earlier];
            if call && operations[at].returned.is_none() {
                tried.push(operations[at].input);
            }
            earlier = events.next[earlier];
        }
    }
    Some(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(input: Counter, invoked: u64, returned: Option<(u64, u64)>) -> Operation<Counter> {
        Operation { input, invoked, returned }
    }

    use Counter::{Increment, Read};

    #[test]
    fn in_order_and_overlapping() {
        let history = [
            operation(Increment, 1, Some((2, 1))),
            operation(Increment, 3, Some((6, 3))),
            operation(Increment, 4, Some((5, 2))),
            operation(Read, 7, Some((8, 3))),
        ];
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn a_stale_read_is_found() {
        let history = [operation(Increment, 1, Some((2, 1))), operation(Read, 3, Some((4, 0)))];
        assert!(check(&history).is_err());
        // While the increment is on its way, either is right.
        let history = [operation(Increment, 1, Some((4, 1))), operation(Read, 2, Some((3, 0)))];
        assert_eq!(check(&history), Ok(()));
        let history = [operation(Increment, 1, Some((4, 1))), operation(Read, 2, Some((3, 1)))];
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn a_search_that_takes_too_long_says_nothing() {
        let late = operation(Read, 40, Some((41, 99)));
        let history: Vec<_> =
            (0..12).map(|at| operation(Increment, at, None)).chain([late]).collect();
        assert!(check_within(&history, 3).is_none());
        assert!(matches!(check_within(&history, 1_000_000), Some(Err(_))));
    }

    #[test]
    fn what_was_seen_may_not_be_unseen() {
        let history = [
            operation(Increment, 1, None),
            operation(Read, 2, Some((3, 1))),
            operation(Read, 4, Some((5, 0))),
        ];
        assert!(check(&history).is_err());
    }

    #[test]
    fn unanswered_ones_count_or_not() {
        let lost = operation(Increment, 1, None);
        for last in [1, 2] {
            assert_eq!(check(&[lost, operation(Increment, 2, Some((3, last)))]), Ok(()));
        }
        assert!(check(&[lost, operation(Increment, 2, Some((3, 3)))]).is_err());
        // It was asked too late to have counted.
        assert!(
            check(&[operation(Increment, 1, Some((2, 2))), operation(Increment, 3, None)]).is_err()
        );
    }

    #[test]
    fn a_binding_is_written_once() {
        let used = |allocated, invoked, returned| Operation {
            input: Binding { allocated },
            invoked,
            returned: Some((returned, allocated)),
        };
        assert_eq!(check(&[used(7, 1, 4), used(7, 2, 3), used(7, 5, 6)]), Ok(()));
        assert!(check(&[used(7, 1, 4), used(8, 2, 3)]).is_err());
        assert!(check(&[used(7, 1, 2), used(7, 3, 4), used(8, 5, 6)]).is_err());
    }

    /// All orders, for small histories.
    fn brute_force(operations: &[Operation<Counter>], done: u32, state: u64) -> bool {
        let left = |at: usize| done >> at & 1 == 0;
        if (0..operations.len()).all(|at| !left(at) || operations[at].returned.is_none()) {
            return true;
        }
        (0..operations.len()).filter(|at| left(*at)).any(|at| {
            let operation = operations[at];
            let waits = |other: &Operation<Counter>| {
                other.returned.is_some_and(|(when, _)| when < operation.invoked)
            };
            if (0..operations.len()).any(|other| left(other) && waits(&operations[other])) {
                return false;
            }
            let (next, output) = operation.input.step(&state);
            let fits = operation.returned.is_none_or(|(_, returned)| returned == output);
            fits && brute_force(operations, done | 1 << at, next)
        })
    }

    #[test]
    fn agrees_with_trying_all_orders() {
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let count = 2 + draw(5);
            let mut times: Vec<u64> = (0..2 * count).collect();
            for at in (1..times.len()).rev() {
                times.swap(at, draw(at as u64 + 1) as usize);
            }
            let history: Vec<Operation<Counter>> = times
                .chunks(2)
                .map(|pair| {
                    let input = if draw(2) == 0 { Read } else { Increment };
                    let returned = (draw(4) > 0).then(|| (pair[0].max(pair[1]), draw(3)));
                    operation(input, pair[0].min(pair[1]), returned)
                })
                .collect();
            let expected = brute_force(&history, 0, 0);
            assert_eq!(check(&history).is_ok(), expected, "{history:?}");
            *(if expected { &mut good } else { &mut bad }) += 1;
        }
        assert!(good > 1000 && bad > 1000, "{good} {bad}");
    }
}
