//! A decision tree over the words of a key: finds the first entry that matches, whatever the
//! entries' ranges and masks. Inner nodes compare one word, leaves list the entries left to try.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// A leaf with so few entries is not split: trying them costs about as much as a node.
const SMALL_LEAF: usize = 4;
/// Candidate splits are judged by at most so many of a leaf's entries.
const SAMPLE: usize = 256;
/// Bounds that are tried for each word of a leaf.
const BOUNDS: usize = 8;
/// Leaves may hold so many references to entries for each entry of the table, and some more.
const COPIES: usize = 16;

/// How an entry matches one word of 64 bits of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// From the first to the second, both included.
    Interval(u64, u64),
    /// `value` where `mask` has ones; `value` is zero elsewhere.
    Masked { value: u64, mask: u64 },
}

impl Part {
    /// Matches everything.
    pub const ALL: Part = Part::Interval(0, u64::MAX);

    /// The least and the greatest word that match.
    fn ends(self) -> (u64, u64) {
        match self {
            Part::Interval(low, high) => (low, high),
            Part::Masked { value, mask } => (value, value | !mask),
        }
    }
}

/// An entry, as far as single words tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// For each word: what the entry matches at the most.
    pub outer: Vec<Part>,
    /// For each word: what it matches whatever the other words are, if `outer` is matched there.
    /// None: nothing is certain.
    pub inner: Option<Vec<Part>>,
}

/// A comparison of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Which word.
    pub word: usize,
    /// The bits of it that are compared.
    pub mask: u64,
    /// The greatest value that goes to `next[0]`.
    pub bound: u64,
    pub next: [Next; 2],
}

/// Where a node leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Node(usize),
    /// A position in [`Tree::leaves`].
    Leaf(usize),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tree {
    pub root: Next,
    pub nodes: Vec<Node>,
    /// Entries to try one after the other; each leaf ends with the number of entries.
    pub leaves: Vec<u32>,
    /// Most nodes and entries that one search looks at.
    pub steps: usize,
}

/// What is known of one word in a part of the tree.
#[derive(Clone, Copy)]
struct Known {
    low: u64,
    high: u64,
    mask: u64,
    value: u64,
}

impl Known {
    const NOTHING: Known = Known { low: 0, high: u64::MAX, mask: 0, value: 0 };

    /// Could a word of these match?
    fn meets(&self, part: Part) -> bool {
        let (low, high) = part.ends();
        let masks_agree = match part {
            Part::Interval(..) => true,
            Part::Masked { value, mask } => (value ^ self.value) & mask & self.mask == 0,
        };
        masks_agree && low <= self.high && self.low <= high
    }

    /// Do all words of these match?
    fn is_within(&self, part: Part) -> bool {
        match part {
            Part::Interval(low, high) => low <= self.low && self.high <= high,
            Part::Masked { value, mask } => {
                let differing = self.low ^ self.high;
                let same = u64::MAX.checked_shl(64 - differing.leading_zeros()).unwrap_or(0);
                let value_known = (self.low & same) | (self.value & !same);
                mask & !(same | self.mask) == 0 && (value ^ value_known) & mask == 0
            }
        }
    }
}

/// A leaf that may still be split; the heap gives the largest first.
struct Open {
    entries: Vec<u32>,
    known: Vec<Known>,
    depth: usize,
    /// So many comparisons above took hardly anything away.
    idle: usize,
    /// The node that leads here, and by which side.
    from: Option<(usize, usize)>,
}

impl PartialEq for Open {
    fn eq(&self, other: &Open) -> bool {
        self.entries.len() == other.entries.len()
    }
}

impl Eq for Open {}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Open) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Open {
    fn cmp(&self, other: &Open) -> Ordering {
        self.entries.len().cmp(&other.entries.len())
    }
}

/// The entries of `list` that can win for keys of which this is known.
fn left(candidates: &[Candidate], list: impl Iterator<Item = u32>, known: &[Known]) -> Vec<u32> {
    let mut found = Vec::new();
    for index in list {
        let candidate = &candidates[index as usize];
        if !known.iter().zip(&candidate.outer).all(|(known, part)| known.meets(*part)) {
            continue;
        }
        found.push(index);
        // It wins over all that come later.
        let wins =
            |inner: &Vec<Part>| known.iter().zip(inner).all(|(known, part)| known.is_within(*part));
        if candidate.inner.as_ref().is_some_and(wins) {
            break;
        }
    }
    found
}

/// What is known on both sides of a comparison.
fn sides(known: &[Known], word: usize, mask: u64, bound: u64) -> [Vec<Known>; 2] {
    let (mut below, mut above) = (known.to_vec(), known.to_vec());
    if mask == u64::MAX {
        below[word].high = below[word].high.min(bound);
        above[word].low = above[word].low.max(bound.saturating_add(1));
    } else {
        for (side, value) in [(&mut below, 0), (&mut above, mask)] {
            side[word].mask |= mask;
            side[word].value = (side[word].value & !mask) | value;
        }
    }
    [below, above]
}

/// Comparisons that may split these entries: (word, mask, bound).
fn comparisons(
    candidates: &[Candidate],
    sample: &[u32],
    known: &[Known],
) -> Vec<(usize, u64, u64)> {
    let mut found = Vec::new();
    for (word, known) in known.iter().enumerate() {
        let mut bounds = Vec::new();
        let mut bits = 0;
        for index in sample {
            let part = candidates[*index as usize].outer[word];
            let (low, high) = part.ends();
            bounds.extend(low.checked_sub(1));
            bounds.push(high);
            if let Part::Masked { mask, .. } = part {
                bits |= mask;
            }
        }
        bounds.retain(|bound| known.low <= *bound && *bound < known.high);
        bounds.sort_unstable();
        bounds.dedup();
        let step = bounds.len().div_ceil(BOUNDS).max(1);
        found.extend(
            bounds.iter().skip(step / 2).step_by(step).map(|bound| (word, u64::MAX, *bound)),
        );
        bits &= !known.mask;
        found.extend(
            (0..64).map(|bit| 1u64 << bit).filter(|bit| bits & bit != 0).map(|bit| (word, bit, 0)),
        );
    }
    found
}

/// The comparison after which the fewest entries are left, if one helps.
fn best_comparison(candidates: &[Candidate], open: &Open) -> Option<(usize, u64, u64)> {
    let step = open.entries.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<u32> = open.entries.iter().copied().step_by(step).collect();
    let cost = |(word, mask, bound): &(usize, u64, u64)| {
        let [below, above] = sides(&open.known, *word, *mask, *bound);
        let below = left(candidates, sample.iter().copied(), &below).len();
        let above = left(candidates, sample.iter().copied(), &above).len();
        match helps(sample.len(), below.max(above)) {
            true => (0, below + above + below.max(above)),
            // What lies within others is told apart by both of its ends: in the middle, then.
            false => (1, sample.len() - below.min(above)),
        }
    };
    comparisons(candidates, &sample, &open.known).into_iter().min_by_key(cost)
}

/// Whether a comparison takes something away that is worth it, so that no path gets long.
fn helps(before: usize, after: usize) -> bool {
    after + (before / 16).max(1) <= before
}

impl Tree {
    /// A tree over entries in the order in which they are tried.
    pub(crate) fn new(candidates: &[Candidate]) -> Tree {
        let words = candidates.first().map_or(0, |candidate| candidate.outer.len());
        let known = vec![Known::NOTHING; words];
        let all = left(candidates, 0..candidates.len() as u32, &known);
        let mut tree =
            Tree { root: Next::Leaf(0), nodes: Vec::new(), leaves: Vec::new(), steps: 0 };
        let mut shared = HashMap::new();
        let mut copies = all.len();
        let most = COPIES * candidates.len() + 1024;
        let mut work =
            BinaryHeap::from([Open { entries: all, known, depth: 0, idle: 0, from: None }]);
        while let Some(open) = work.pop() {
            let count = open.entries.len();
            let split = if count > SMALL_LEAF && copies <= most && tree.nodes.len() <= most {
                best_comparison(candidates, &open)
            } else {
                None
            };
            let split = split.and_then(|(word, mask, bound)| {
                let parts = sides(&open.known, word, mask, bound)
                    .map(|known| (left(candidates, open.entries.iter().copied(), &known), known));
                let largest = parts.iter().map(|(entries, _)| entries.len()).max().unwrap_or(0);
                let idle = if helps(count, largest) { 0 } else { open.idle + 1 };
                (idle <= 2 * words).then_some((word, mask, bound, parts, idle))
            });
            let Some((word, mask, bound, parts, idle)) = split else {
                tree.steps = tree.steps.max(open.depth + count + 1);
                let leaf = tree.leaf(open.entries, candidates.len() as u32, &mut shared);
                tree.connect(open.from, leaf);
                continue;
            };
            let node = tree.nodes.len();
            tree.nodes.push(Node { word, mask, bound, next: [Next::Leaf(0); 2] });
            tree.connect(open.from, Next::Node(node));
            copies -= count;
            for (side, (entries, known)) in parts.into_iter().enumerate() {
                copies += entries.len();
                work.push(Open {
                    entries,
                    known,
                    depth: open.depth + 1,
                    idle,
                    from: Some((node, side)),
                });
            }
        }
        tree
    }

    fn leaf(
        &mut self,
        mut entries: Vec<u32>,
        end: u32,
        shared: &mut HashMap<Vec<u32>, usize>,
    ) -> Next {
        entries.push(end);
        let leaves = &mut self.leaves;
        let at = *shared.entry(entries).or_insert_with_key(|entries| {
            leaves.extend(entries);
            leaves.len() - entries.len()
        });
        Next::Leaf(at)
    }

    fn connect(&mut self, from: Option<(usize, usize)>, to: Next) {
        match from {
            Some((node, side)) => self.nodes[node].next[side] = to,
            None => self.root = to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, from a seed: xorshift64*.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
        }
    }

    fn matches(part: Part, word: u64) -> bool {
        match part {
            Part::Interval(low, high) => low <= word && word <= high,
            Part::Masked { value, mask } => word & mask == value,
        }
    }

    fn is_match(candidate: &Candidate, key: &[u64]) -> bool {
        candidate.outer.iter().zip(key).all(|(part, word)| matches(*part, *word))
    }

    /// The first entry that matches, by the tree, and how many steps that takes.
    fn search(tree: &Tree, candidates: &[Candidate], key: &[u64]) -> (Option<usize>, usize) {
        let (mut at, mut steps) = (tree.root, 1);
        while let Next::Node(index) = at {
            let node = &tree.nodes[index];
            at = node.next[usize::from(key[node.word] & node.mask > node.bound)];
            steps += 1;
        }
        let Next::Leaf(start) = at else { unreachable!() };
        for index in &tree.leaves[start..] {
            match candidates.get(*index as usize) {
                Some(candidate) if is_match(candidate, key) => {
                    return (Some(*index as usize), steps);
                }
                Some(_) => steps += 1,
                None => break,
            }
        }
        (None, steps)
    }

    fn certain(outer: Vec<Part>) -> Candidate {
        Candidate { inner: Some(outer.clone()), outer }
    }

    fn random_part(random: &mut Random) -> Part {
        let (one, other) = (random.below(256), random.below(256));
        match random.below(6) {
            0 => Part::ALL,
            1 => Part::Interval(one, one),
            2 | 3 => Part::Interval(one.min(other), one.max(other)),
            4 => Part::Masked { value: one & other, mask: !0xff | other },
            _ => Part::Masked { value: one & 0xff << (other % 9), mask: u64::MAX << (other % 9) },
        }
    }

    fn first_matches_of_random_entries(seed: u64) {
        let mut random = Random(seed);
        let (count, words) = (1 + random.below(300), 1 + random.below(3));
        let mut candidates = Vec::new();
        for _ in 0..count {
            let mut candidate = certain((0..words).map(|_| random_part(&mut random)).collect());
            if random.below(4) == 0 {
                candidate.inner = None;
            }
            candidates.push(candidate);
        }
        let tree = Tree::new(&candidates);
        for _ in 0..500 {
            let key: Vec<u64> = (0..words).map(|_| random.below(256)).collect();
            let expected = candidates.iter().position(|candidate| is_match(candidate, &key));
            let (found, steps) = search(&tree, &candidates, &key);
            assert_eq!(found, expected, "seed {seed}: {key:?} in {candidates:?}");
            assert!(steps <= tree.steps, "seed {seed}: {steps} steps, {} at the most", tree.steps);
        }
    }

    #[test]
    fn the_first_match_wins() {
        for seed in 1..=40 {
            first_matches_of_random_entries(seed);
        }
    }

    #[test]
    fn ranges_within_ranges_take_few_steps() {
        let nested = |index: u64| certain(vec![Part::Interval(1000 - index, 60_000 + index)]);
        let candidates: Vec<Candidate> = (0..1000).map(nested).collect();
        let tree = Tree::new(&candidates);
        assert!(tree.steps <= 24, "{} steps", tree.steps);
        assert_eq!(search(&tree, &candidates, &[500]).0, Some(500));
        assert_eq!(search(&tree, &candidates, &[60_999]).0, Some(999));
        assert_eq!(search(&tree, &candidates, &[61_000]).0, None);
    }

    #[test]
    fn entries_that_nothing_tells_apart_are_tried_in_turn() {
        let same = Candidate { outer: vec![Part::ALL], inner: None };
        let candidates = vec![same; 100];
        let tree = Tree::new(&candidates);
        assert_eq!((tree.nodes.len(), tree.leaves.len()), (0, 101));
        assert!(tree.steps >= 101);
    }
}
