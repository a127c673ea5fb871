//! A group's state in a loaded object, as memory: what recovery reads and writes. Its callers see
//! to it that the data plane stands still (`membership`), but for packets that read and update.

use crate::group::{Group, View};
use c_layout::CStruct;
use dataplane::{Dataplane, MappedWords, Result};
use libbpf_rs::MapCore;
use std::sync::atomic::{Ordering, fence};
use swish_protocol::bulk::Piece;
use swish_protocol::layouts::{CELLS, CPUS, LINE_CELLS, LINES, MemberValue, NOT_KNOWN, phase};
use swish_protocol::objects::period_begins;

/// Words of a node (`NodeValue`).
pub(crate) mod node {
    use c_layout::CStruct;
    use swish_protocol::layouts::NodeValue;

    pub const WORD: usize = NodeValue::LAYOUT.word("word");
    pub const SEALED: usize = NodeValue::LAYOUT.word("sealed");
    pub const READY: usize = NodeValue::LAYOUT.word("ready");
    pub const ALL_READY: usize = NodeValue::LAYOUT.word("all_ready");
    /// Complete members, and the end of members' numbers.
    pub const COMPLETE_LIMIT: usize = NodeValue::LAYOUT.word("complete");
    pub const NEXT_NS: usize = NodeValue::LAYOUT.word("next_ns");
    pub const BEGAN_NS: usize = NodeValue::LAYOUT.word("began_ns");
    /// View, and this switch's number.
    pub const VIEW_OWN: usize = NodeValue::LAYOUT.word("view");
    /// Members, and CPUs.
    pub const COUNT_CPUS: usize = NodeValue::LAYOUT.word("count");
    pub const TOTALS: usize = NodeValue::LAYOUT.word("totals");
    pub const DIRTY_BLOCKS: usize = NodeValue::LAYOUT.word("dirty_blocks");
    pub const FILLED_CLOSED: usize = NodeValue::LAYOUT.word("filled");
}

/// Words of a member (`MemberValue`).
const READY: usize = MemberValue::LAYOUT.word("ready");
const TOTAL_MERGED: usize = MemberValue::LAYOUT.word("total");
const COMPLETE_FRAMES: usize = MemberValue::LAYOUT.word("complete");
const NEXT: usize = MemberValue::LAYOUT.word("next");
const ADDRESS_FULL: usize = MemberValue::LAYOUT.word("address");

/// Words of a block (`BlockValue`).
const WINDOW: usize = 0;
const LINE: usize = 4;
const DELTA: usize = LINE + 2 * LINES as usize;
const ARRAY_WORDS: usize = CELLS as usize / 2;
const VALUE: usize = DELTA + 2 * ARRAY_WORDS;
const BLOCK_WORDS: usize = VALUE + 2 * ARRAY_WORDS;

/// Added to a seal's number while a decision is being written.
const WRITING: u64 = 1 << 63;
/// A bitmap of merged messages among pieces of state: the member's number is added.
pub const BITMAP: u32 = 1 << 31;

/// The lower and the upper half of a word.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn joined([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The elements of an array map, in words.
struct Array {
    words: MappedWords,
    /// Words of an element.
    stride: usize,
}

impl Array {
    fn of(dataplane: &Dataplane, name: &str) -> Result<Array> {
        let bytes = dataplane.map(name).map_or(0, |map| map.value_size()) as usize;
        Ok(Array { words: dataplane.map_words_writable(name)?, stride: bytes.div_ceil(8) })
    }

    /// A word as it is now, before what is read later.
    fn get(&self, index: usize, word: usize) -> u64 {
        let value = self.words.get(index * self.stride + word);
        fence(Ordering::Acquire);
        value
    }

    fn set(&self, index: usize, word: usize, value: u64) {
        self.words.set(index * self.stride + word, value);
    }
}

/// See the module.
pub(crate) struct Maps {
    blocks: Array,
    nodes: Array,
    members: Array,
    cpus: Array,
    got: Array,
    group: usize,
    first: usize,
    count: usize,
    got_words: usize,
    /// Members that the maps have room for.
    room: usize,
    /// By block: after how many windows it begins anew.
    periods: Vec<u32>,
}

/// Updates that a member had made in a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which rotation.
    pub rotation: u64,
    /// By block: amounts.
    pub pieces: Vec<Piece>,
}

impl Maps {
    pub fn of(dataplane: &Dataplane, group: &Group) -> Result<Maps> {
        let map = |name: &str| Array::of(dataplane, name);
        Ok(Maps {
            blocks: map("sp_shared_blocks")?,
            nodes: map("sp_shared_nodes")?,
            members: map("sp_shared_members")?,
            cpus: map("sp_shared_cpus")?,
            got: map("sp_shared_got")?,
            group: group.described.number as usize,
            first: group.described.first as usize,
            count: group.described.blocks as usize,
            got_words: group.got_words() as usize,
            room: group.room() as usize,
            periods: (0..group.described.blocks).map(|block| group.period_of(block)).collect(),
        })
    }

    pub fn node(&self, word: usize) -> u64 {
        self.nodes.get(self.group, word)
    }

    /// (What is read afterwards is read after all CPUs can see this.)
    fn set_node(&self, word: usize, value: u64) {
        self.nodes.set(self.group, word, value);
        fence(Ordering::SeqCst);
    }

    /// Window and phase.
    pub fn word(&self) -> (u64, u64) {
        let word = self.node(node::WORD);
        (word >> 3, word & 7)
    }

    /// The view that the data plane is in.
    pub fn view(&self) -> u32 {
        halves(self.node(node::VIEW_OWN))[0]
    }

    pub fn own(&self) -> u32 {
        halves(self.node(node::VIEW_OWN))[1]
    }

    /// From now on frames find that nothing moves: when no CPU works on one (`frames_are_done`).
    pub fn seal(&self, number: u32) {
        self.set_node(node::SEALED, number.into());
    }

    pub fn unseal(&self) {
        self.set_node(node::SEALED, 0);
    }

    /// Packets find from now on that the group has not begun, or has.
    pub fn close(&self, closed: bool) {
        let [filled, before] = halves(self.node(node::FILLED_CLOSED));
        if (before != 0) != closed {
            self.set_node(node::FILLED_CLOSED, joined([filled, closed.into()]));
        }
    }

    /// An agent ended in the middle of writing a decision: the maps' content is unknown.
    pub fn is_half_written(&self) -> bool {
        self.node(node::SEALED) & WRITING != 0
    }

    /// No CPU works on a frame.
    pub fn frames_are_done(&self) -> bool {
        self.all_cpus(|cpu| self.cpus.get(cpu, 1) == 0)
    }

    /// No CPU has a packet under way that began before.
    pub fn packets_are_done(&self) -> bool {
        self.all_cpus(|cpu| self.cpus.get(cpu, 0) == 0)
    }

    fn all_cpus(&self, is_done: impl Fn(usize) -> bool) -> bool {
        let cpus = halves(self.node(node::COUNT_CPUS))[1] as usize;
        (0..cpus.min(CPUS as usize)).all(|cpu| is_done(self.group * CPUS as usize + cpu))
    }

    fn in_view(&self) -> impl Iterator<Item = u32> {
        let limit = halves(self.node(node::COMPLETE_LIMIT))[1].min(self.room as u32);
        (0..limit).filter(|number| halves(self.member(*number, ADDRESS_FULL))[0] != 0)
    }

    fn member_at(&self, number: u32) -> usize {
        self.group * self.room + number as usize
    }

    fn member(&self, number: u32, word: usize) -> u64 {
        self.members.get(self.member_at(number), word)
    }

    /// A bit for each member all of whose messages of this window are merged. (A controller's group
    /// has no more than the bits of a word.)
    pub fn whole(&self) -> u64 {
        if self.word().1 < phase::READY {
            return 0; // (The records are still those of the window before.)
        }
        let whole = |number: &u32| halves(self.member(*number, COMPLETE_FRAMES))[0] != 0;
        self.in_view().filter(whole).fold(0, |bits, number| bits | 1 << number)
    }

    /// A bit for each member that the window waits for.
    pub fn lacks(&self) -> u64 {
        let (window, now) = self.word();
        let all = self.in_view().fold(0, |bits, number| bits | 1 << number);
        match now {
            phase::READY => {
                let late = |number: &u32| self.member(*number, READY) < window;
                self.in_view().filter(late).fold(0, |bits, number| bits | 1 << number)
            }
            phase::SENDING => all & !self.whole(),
            _ => 0,
        }
    }

    /// The window's pause ends then (CLOCK_MONOTONIC); 0: its frames move.
    pub fn pauses_until_ns(&self) -> u64 {
        if self.word().1 == phase::ADVANCED { self.node(node::NEXT_NS) } else { 0 }
    }

    /// Since the window began, in ns.
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        let (window, _) = self.word();
        let began_ns = self.node(node::BEGAN_NS + (window & 1) as usize);
        if window == 0 { 0 } else { now_ns.saturating_sub(began_ns) }
    }

    /// A number that changes whenever something is merged, or the window or phase turns.
    pub fn progress(&self) -> (u64, u64) {
        let merged = |number| u64::from(halves(self.member(number, TOTAL_MERGED))[1]);
        (self.node(node::WORD), self.in_view().map(merged).sum())
    }

    /// The value that packets of the window read.
    fn read_side(&self, block: usize, window: u64) -> usize {
        let at = self.first + block;
        let (first, second) = (self.blocks.get(at, WINDOW), self.blocks.get(at, WINDOW + 1));
        if first >= window { 1 } else { usize::from(second < window && second > first) }
    }

    fn cells(&self, block: usize, array: usize) -> Vec<u32> {
        let words = (0..ARRAY_WORDS).map(|word| self.blocks.get(self.first + block, array + word));
        words.flat_map(halves).collect()
    }

    /// What the first merge of this window begins from, as the data plane has it.
    fn base(&self, block: usize, window: u64) -> Vec<u32> {
        self.read_in(block, window, window)
    }

    /// What packets of this window read.
    pub fn read_by_packets(&self, block: usize, window: u64) -> Vec<u32> {
        self.read_in(block, window, window.saturating_sub(1))
    }

    /// The value that packets of the window read; zeros, if it is of an earlier period than the
    /// rotation.
    fn read_in(&self, block: usize, window: u64, rotation: u64) -> Vec<u32> {
        let side = self.read_side(block, window);
        let begins = period_begins(self.periods.get(block).copied().unwrap_or(0), rotation);
        if self.blocks.get(self.first + block, WINDOW + side) < begins {
            return vec![0; CELLS as usize];
        }
        self.cells(block, VALUE + side * ARRAY_WORDS)
    }

    fn set_cells(&self, block: usize, array: usize, cells: &[u32]) {
        for (word, pair) in cells.chunks_exact(2).take(ARRAY_WORDS).enumerate() {
            self.blocks.set(self.first + block, array + word, joined([pair[0], pair[1]]));
        }
    }

    /// What packets of the window read, of the blocks that a window from `since` on changed.
    pub fn value(&self, window: u64, since: u64) -> Vec<Piece> {
        let piece = |block: usize| {
            let side = self.read_side(block, window);
            let tag = self.blocks.get(self.first + block, WINDOW + side);
            (tag > 0 && tag >= since).then(|| Piece {
                block: block as u32,
                tag,
                cells: self.cells(block, VALUE + side * ARRAY_WORDS),
            })
        };
        (0..self.count).filter_map(piece).collect()
    }

    /// What was merged in this window: a bitmap of messages for each member.
    pub fn half(&self) -> Vec<Piece> {
        let (window, _) = self.word();
        let piece = |block: usize| {
            let to = 1 - self.read_side(block, window);
            (self.blocks.get(self.first + block, WINDOW + to) == window).then(|| {
                let now = self.cells(block, VALUE + to * ARRAY_WORDS);
                let before = self.base(block, window);
                let cells = now.iter().zip(before).map(|(now, before)| now.wrapping_sub(before));
                Piece { block: block as u32, tag: window, cells: cells.collect() }
            })
        };
        let mut pieces: Vec<Piece> = (0..self.count).filter_map(piece).collect();
        for number in self.in_view() {
            let words = (0..self.got_words).map(|word| self.got.get(self.got_at(number), word));
            let words: Vec<u32> = words.flat_map(halves).collect();
            for (tag, part) in (0..).zip(words.chunks(CELLS as usize)) {
                let mut cells = part.to_vec();
                cells.resize(CELLS as usize, 0);
                pieces.push(Piece { block: BITMAP + number, tag, cells });
            }
        }
        pieces
    }

    fn got_at(&self, number: u32) -> usize {
        self.member_at(number) * self.got_words
    }

    /// What this switch sends in this window: blocks with the numbers of their messages.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn source(&self, dataplane: &Dataplane, each: u32) -> Result<Vec<Piece>> {
        let (window, now) = self.word();
        if now < phase::SENDING {
            return Ok(vec![]);
        }
        let side = (window & 1) as usize;
        let listed = halves(self.node(node::DIRTY_BLOCKS))[side] as usize;
        let mut pieces = vec![];
        for at in 0..listed.min(self.count) {
            let place = 2 * self.first + side * self.count + at;
            let bytes = dataplane.read_array("sp_shared_dirty_blocks", place as u32)?;
            let block = bytes.first_chunk().copied().map_or(0, u32::from_ne_bytes);
            if (block as usize) < self.count {
                let cells = self.changed(block as usize, side, window);
                pieces.push(Piece { block, tag: at as u64 / u64::from(each.max(1)), cells });
            }
        }
        Ok(pieces)
    }

    /// A block's updates in a rotation.
    fn changed(&self, block: usize, side: usize, rotation: u64) -> Vec<u32> {
        let mut cells = self.cells(block, DELTA + side * ARRAY_WORDS);
        for (line, cells) in cells.chunks_mut(LINE_CELLS as usize).enumerate() {
            let at = LINE + side * LINES as usize + line;
            if self.blocks.get(self.first + block, at) >> 16 != rotation {
                cells.fill(0);
            }
        }
        cells
    }

    /// Between these two, the maps' content is unknown.
    pub fn begin_writing(&self) {
        self.set_node(node::SEALED, self.node(node::SEALED) | WRITING);
    }

    /// What was merged of this window is taken back (README, "Membership").
    pub fn take_back(&self, window: u64) {
        for block in self.first..self.first + self.count {
            for side in 0..2 {
                if self.blocks.get(block, WINDOW + side) == window {
                    self.blocks.set(block, WINDOW + side, 0);
                }
            }
        }
    }

    /// Another member's value goes over the one that packets of this window do not read.
    pub fn copy(&self, window: u64, pieces: &[Piece]) {
        for Piece { block, tag, cells } in pieces {
            let block = *block as usize;
            if block < self.count && *tag >= window {
                let to = 1 - self.read_side(block, window);
                self.set_cells(block, VALUE + to * ARRAY_WORDS, cells);
                self.blocks.set(self.first + block, WINDOW + to, *tag);
            }
        }
    }

    /// The value that packets will read, on a switch where the group has not begun.
    pub fn fill(&self, pieces: &[Piece]) {
        for Piece { block, tag, cells } in pieces {
            let block = *block as usize;
            if block < self.count {
                self.set_cells(block, VALUE, cells);
                self.blocks.set(self.first + block, WINDOW, *tag);
            }
        }
    }

    /// What the dead brought is merged into this window, as its first merge.
    pub fn add_extra(&self, window: u64, pieces: &[Piece]) {
        for Piece { block, cells, .. } in pieces {
            let block = *block as usize;
            if block >= self.count {
                continue;
            }
            let to = 1 - self.read_side(block, window);
            let mut sum = self.base(block, window);
            sum.iter_mut().zip(cells).for_each(|(sum, by)| *sum = sum.wrapping_add(*by));
            // (First the window: packets of this window read the other value.)
            self.blocks.set(self.first + block, WINDOW + to, window);
            self.set_cells(block, VALUE + to * ARRAY_WORDS, &sum);
        }
    }

    /// A member's records, as at the begin of a window.
    pub fn reset_member(&self, number: u32, address: u32, ready: u64) {
        let at = self.member_at(number);
        self.members.set(at, READY, ready);
        self.members.set(at, TOTAL_MERGED, NOT_KNOWN.into());
        self.members.set(at, COMPLETE_FRAMES, 0);
        self.members.set(at, NEXT, 0);
        self.members.set(at, NEXT + 1, 0);
        self.members.set(at, ADDRESS_FULL, address.into());
        (0..self.got_words).for_each(|word| self.got.set(self.got_at(number) + word, 0, 0));
    }

    /// This switch's messages are to be merged again, also here. How many of the group's members
    /// have nothing to merge: it may be this one.
    pub fn send_again(&self) {
        let (window, now) = self.word();
        self.set_complete(0);
        if now != phase::SENDING {
            return;
        }
        let at = self.member_at(self.own());
        let total = halves(self.node(node::TOTALS))[(window & 1) as usize];
        self.members.set(at, TOTAL_MERGED, total.into());
        if total == 0 {
            self.members.set(at, COMPLETE_FRAMES, 1);
            self.set_complete(1);
        }
    }

    fn set_complete(&self, members: u32) {
        let limit = halves(self.node(node::COMPLETE_LIMIT))[1];
        self.set_node(node::COMPLETE_LIMIT, joined([members, limit]));
    }

    /// The members of the view, whose records are reset; this switch may be ready in its window.
    pub fn set_view(&self, view: &View, own_is_ready: bool) {
        let cpus = halves(self.node(node::COUNT_CPUS))[1];
        let is_member = |number: &u32| view.members.iter().any(|it| it.number == *number);
        let before: Vec<u32> = self.in_view().filter(|number| !is_member(number)).collect();
        before.into_iter().for_each(|number| self.reset_member(number, 0, 0));
        // (No other member is known to be ready: each says so again, in this view.)
        let mut ready = [0; 2];
        ready[(self.word().0 & 1) as usize] = u32::from(own_is_ready);
        self.set_node(node::READY, joined(ready));
        self.set_node(node::COMPLETE_LIMIT, joined([0, view.limit()]));
        self.set_node(node::COUNT_CPUS, joined([view.members.len() as u32, cpus]));
        self.set_node(node::VIEW_OWN, joined([view.number, view.own]));
    }

    /// The window that packets read from now on.
    pub fn advance(&self, window: u64, now_ns: u64) {
        self.set_node(node::NEXT_NS, now_ns);
        self.set_node(node::BEGAN_NS + (window & 1) as usize, now_ns);
        self.set_node(node::WORD, window << 3 | phase::ADVANCED);
    }

    /// Packets see from now on that the group has not begun.
    pub fn stop(&self) {
        self.set_node(node::WORD, 0);
    }

    /// The updates of this switch in its newest two rotations; then nothing of the group is here.
    pub fn empty(&self) -> Vec<Held> {
        let mut held: Vec<Held> = vec![];
        for side in 0..2 {
            let line = |block: usize, line: usize| {
                self.blocks.get(self.first + block, LINE + side * LINES as usize + line) >> 16
            };
            let all =
                (0..self.count).flat_map(|block| (0..LINES as usize).map(move |at| (block, at)));
            let rotation = all.map(|(block, at)| line(block, at)).max().unwrap_or(0);
            let pieces = (0..self.count).map(|block| Piece {
                block: block as u32,
                tag: rotation,
                cells: self.changed(block, side, rotation),
            });
            let pieces = pieces.filter(|it| it.cells.iter().any(|cell| *cell != 0)).collect();
            held.push(Held { rotation, pieces });
        }
        for block in self.first..self.first + self.count {
            (0..BLOCK_WORDS).for_each(|word| self.blocks.set(block, word, 0));
        }
        // (`begin` writes the next members, and no others: the rest of the node, too.)
        (0..self.room as u32).for_each(|number| self.reset_member(number, 0, 0));
        self.set_node(node::ALL_READY, 0);
        self.set_node(node::SEALED, 0);
        self.set_node(node::VIEW_OWN, 0);
        held
    }

    /// Updates go into the open delta of a switch where the group has not begun. How many blocks
    /// they change, and how many cells of one at the most.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn hand_in(
        &self,
        dataplane: &Dataplane,
        rotation: u64,
        pieces: &[Piece],
    ) -> Result<(u32, u32)> {
        let side = (rotation & 1) as usize;
        let (mut listed, mut most) = (0, 0);
        for Piece { block, cells, .. } in
            pieces.iter().filter(|it| (it.block as usize) < self.count)
        {
            let at = self.first + *block as usize;
            let mut changed = 0;
            for (line, cells) in cells.chunks(LINE_CELLS as usize).enumerate() {
                let bit = |(at, cell): (usize, &u32)| u64::from(*cell != 0) << at;
                let bits = cells.iter().enumerate().map(bit).fold(0, |all, one| all | one);
                changed += bits.count_ones();
                self.blocks.set(at, LINE + side * LINES as usize + line, rotation << 16 | bits);
            }
            self.set_cells(*block as usize, DELTA + side * ARRAY_WORDS, cells);
            self.blocks.set(at, 2 + side, rotation << 16 | u64::from(changed));
            let place = 2 * self.first + side * self.count + listed as usize;
            dataplane.write_array("sp_shared_dirty_blocks", place as u32, &block.to_ne_bytes())?;
            listed += 1;
            most = most.max(changed);
        }
        Ok((listed, most))
    }
}
