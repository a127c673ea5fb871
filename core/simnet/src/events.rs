//! What is to happen, in order of virtual time.

use std::collections::BTreeMap;

/// Events by time; of one instant, in the order in which they were added.
#[derive(Clone, Debug)]
pub struct Events<E> {
    pending: BTreeMap<(u64, u64), E>,
    next: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Events<E> {
        Events { pending: BTreeMap::new(), next: 0 }
    }
}

impl<E> Events<E> {
    /// `event` is to happen at that time.
    pub fn push(&mut self, at_ns: u64, event: E) {
        self.next += 1;
        self.pending.insert((at_ns, self.next), event);
    }

    /// When something happens next.
    pub fn next_ns(&self) -> Option<u64> {
        self.pending.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// When the last event happens that is known.
    pub fn last_ns(&self) -> Option<u64> {
        self.pending.last_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// What happens next, and when.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.pending.pop_first().map(|((at_ns, _), event)| (at_ns, event))
    }

    /// The same, if it happens by `until_ns`.
    pub fn pop_until(&mut self, until_ns: u64) -> Option<(u64, E)> {
        if self.next_ns()? > until_ns { None } else { self.pop() }
    }

    /// All that is to happen, by time.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.pending.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_instant_keep_their_order() {
        let mut events = Events::default();
        [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')]
            .into_iter()
            .for_each(|(at, event)| events.push(at, event));
        assert_eq!((events.next_ns(), events.last_ns()), (Some(3), Some(5)));
        let order: Vec<_> = std::iter::from_fn(|| events.pop_until(5)).collect();
        assert_eq!(order, [(3, 'a'), (3, 'b'), (5, 'c'), (5, 'd')]);
        events.push(6, 'e');
        assert_eq!(events.pop_until(5), None);
    }
}
