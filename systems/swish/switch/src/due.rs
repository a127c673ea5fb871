//! Which frames the packet generator makes for a group, at a look: rules without IO.
//!
//! Frames go back and forth between two switches by themselves. The generator makes some where none
//! are left: at the begin of a window after a pause, when frames were lost, when a member's agent
//! or link was away. A frame that it makes may ask for a message that this switch lacks.

use crate::mutation::{Mutation, planted};
use std::collections::BTreeMap;
use swish_protocol::layouts::{MANY, NOT_KNOWN, NOTHING, phase};

/// Frames between two switches at the most: a veth's ring has 256.
pub const FRAMES: u32 = 32;
/// Frames that begin a window, between two switches.
const FIRST_FRAMES: u32 = 2;
/// In a tree, the time from one look to the next does not grow beyond so many doublings: what one
/// neighbour brings is news for the others, and no frame may be under way to these.
const DOUBLINGS_IN_TREE: u32 = 1;
/// Looks without progress, in a tree, after which a neighbour is away: looks become rare.
const AWAY: u32 = 1_000;
/// Looks without progress before missing messages are asked for.
const PATIENCE: u32 = 2;
/// Messages that are asked for at a time, of each member.
const ASKED: usize = 32;

/// A member, at a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its messages of this window; NOT_KNOWN.
    pub total: u32,
    /// Of those, so many are merged here.
    pub merged: u32,
    /// This switch's messages that it has not been sent yet, of those that it is to be sent now.
    pub to_send: u32,
    /// It may be sending messages of this window.
    pub sends: bool,
    /// Frames that came from it so far.
    pub frames: u32,
}

/// A group on this switch, at a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Window and phase.
    pub word: u64,
    /// Nothing is to be sent.
    pub sealed: bool,
    /// The next window is not due before this (CLOCK_MONOTONIC); 0: it is.
    pub waits_until_ns: u64,
    /// This switch's number.
    pub own: u32,
    /// There is an aggregation tree.
    pub tree: bool,
    /// In a tree: this switch and the children that said "ready" for this window. All neighbours
    /// wait for the last one.
    pub ready: u32,
    /// Members' records that a look reads.
    pub records: u32,
    /// All members of the view, this switch too, in order of their numbers; in a tree, neighbours.
    pub members: Vec<(u32, Seen)>,
}

/// A frame that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// For which member; this switch itself: its message is merged here.
    pub member: u32,
    /// The number of a message that this switch lacks.
    pub want: u32,
}

/// Time without a frame of a member before others are made, at the most.
const MOST_SILENCE_NS: u64 = 3_200_000;

/// A member that sends nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    /// No frames are made before. (The time doubles with each that are: more frames do not make a
    /// slow way faster.)
    until_ns: u64,
    /// See `until_ns`.
    patience_ns: u64,
}

impl Silence {
    /// Whether frames are to be made, at a look before which none had come.
    fn is_over(&mut self, now_ns: u64) -> bool {
        if now_ns < self.until_ns {
            return false;
        }
        self.patience_ns = (2 * self.patience_ns.max(LEAST_PAUSE_NS)).min(MOST_SILENCE_NS);
        self.until_ns = now_ns + self.patience_ns;
        true
    }
}

/// Frames that begin on a CPU that has none.
const CPU_FRAMES: usize = 16;
/// A CPU that sends nothing for so long has no frames: a queue is empty by then.
const CPU_IDLE_NS: u64 = 10_000_000;
/// As often frames are made for an idle CPU. (With a network card that chooses the CPUs, it may
/// have none in spite of that.)
const CPU_TRIES: u32 = 3;
/// A CPU that still has frames so long after a try is one on which frames stay.
const CPU_STAYS_NS: u64 = 1_000_000_000;
/// A window with many messages makes the next ones count as large for so long.
const LARGE_NS: u64 = 100_000_000;

/// A CPU, while windows are large.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    /// What it had sent.
    sent: u64,
    /// When that had changed.
    moved_ns: u64,
    tries: u32,
    /// When the last one was.
    tried_ns: u64,
}

/// What was seen at the looks before.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    before: Look,
    /// By member.
    silences: BTreeMap<u32, Silence>,
    /// Looks since a message was merged or a window turned.
    still: u32,
    /// There is nothing to do before this (CLOCK_MONOTONIC).
    next_ns: u64,
    /// Windows count as large until then.
    large_until_ns: u64,
    /// CPUs on which frames may begin.
    cpus: BTreeMap<usize, Cpu>,
    /// Frames of this look that begin on all CPUs.
    spread: Vec<Wanted>,
}

/// From one look to the next, while nothing moves: at the most. A member that is away is asked no
/// more often than that.
const MOST_PAUSE_NS: u64 = 10_000_000;
/// The same, at the least.
const LEAST_PAUSE_NS: u64 = 100_000;
/// The same, at the least, for each record of a member that a look reads.
const PAUSE_OF_RECORD_NS: u64 = 1_000;

impl Rounds {
    /// Whether it is time to look.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// When the next look is worth it.
    fn pause(&self, look: &Look, now_ns: u64) -> u64 {
        let least = LEAST_PAUSE_NS.max(PAUSE_OF_RECORD_NS * u64::from(look.records));
        let most = if look.tree && self.still < AWAY { DOUBLINGS_IN_TREE } else { 16 };
        let longer = least << self.still.saturating_sub(PATIENCE).min(most);
        let longer = longer.min(MOST_PAUSE_NS);
        // (A member that begins anew has no pause any more, and may need frames.)
        (now_ns + longer).max(look.waits_until_ns.min(now_ns + MOST_PAUSE_NS))
    }

    /// The frames that are due. `missing` says which messages of a member are not merged: the first
    /// so many below its total.
    pub fn due(
        &mut self,
        look: Look,
        now_ns: u64,
        mut missing: impl FnMut(u32, u32, usize) -> Vec<u32>,
    ) -> Vec<Wanted> {
        let merged =
            |look: &Look| look.members.iter().map(|(_, it)| u64::from(it.merged)).sum::<u64>();
        let moved = look.word != self.before.word
            || look.ready != self.before.ready
            || merged(&look) != merged(&self.before);
        // (What was merged is no news for the neighbours.)
        if look.tree && (look.word != self.before.word || look.ready != self.before.ready) {
            self.silences.clear();
        }
        self.still = if moved { 0 } else { self.still.saturating_add(1) };
        // (Also between two windows, when none are made.)
        for (member, seen) in &look.members {
            if self.came(*member, seen) > 0 {
                self.silences.remove(member);
            }
        }
        let many = |it: &&(u32, Seen)| it.1.total != NOT_KNOWN && it.1.total >= MANY;
        if look.members.iter().any(|it| many(&it)) {
            self.large_until_ns = now_ns + LARGE_NS;
        }
        let frames = if look.word == 0 || look.sealed || look.waits_until_ns > now_ns {
            vec![]
        } else if look.members.len() < 2 {
            alone(&look, &mut missing)
        } else {
            let others = look.members.iter().filter(|(member, _)| *member != look.own);
            let mut frames = vec![];
            for member in others {
                frames.extend(self.for_member(now_ns, member, &mut missing));
            }
            frames
        };
        self.next_ns = self.pause(&look, now_ns);
        self.before = look;
        let spreads = self.is_large(now_ns) && !planted(Mutation::OnOneCpu);
        if spreads && self.cpus.len() > 1 && frames.len() >= CPU_FRAMES {
            self.spread = frames;
            return vec![];
        }
        frames
    }

    /// Whether windows are large, so that each CPU is to have frames.
    fn is_large(&self, now_ns: u64) -> bool {
        now_ns < self.large_until_ns
    }

    /// The window at the newest look: its low bits.
    pub fn window(&self) -> u32 {
        (self.before.word >> 3) as u32
    }

    /// The frames that are to begin on a CPU, which has `sent` so many bytes so far: its part of
    /// what [`Rounds::due`] made, or some if it has none while windows are large.
    pub fn due_on(&mut self, cpu: usize, sent: u64, now_ns: u64) -> Vec<Wanted> {
        let (large, cpus) = (self.is_large(now_ns), self.cpus.len());
        if planted(Mutation::OnNoCpu) {
            self.spread.clear();
        }
        let seen = self.cpus.entry(cpu).or_default();
        if !self.spread.is_empty() {
            let at = self.cpus.keys().position(|it| *it == cpu).unwrap_or_default();
            // (The CPUs are asked in their order.)
            let part = self.spread.len().div_ceil(cpus.saturating_sub(at).max(1));
            return self.spread.drain(..part).collect();
        }
        let stays = seen.sent != sent && now_ns >= seen.tried_ns + CPU_STAYS_NS;
        let tries = if !large || stays { 0 } else { seen.tries };
        // (While no window moves, all CPUs may be idle.)
        let waits = self.still > 0 || self.before.sealed || self.before.waits_until_ns > now_ns;
        if !large || waits || seen.sent != sent {
            *seen = Cpu { sent, moved_ns: now_ns, tries, tried_ns: seen.tried_ns };
            return vec![];
        }
        if now_ns < seen.moved_ns + CPU_IDLE_NS || seen.tries >= CPU_TRIES {
            return vec![];
        }
        *seen = Cpu { sent, moved_ns: now_ns, tries: seen.tries + 1, tried_ns: now_ns };
        let others = self.before.members.iter().map(|(member, _)| *member);
        let others: Vec<u32> = others.filter(|member| *member != self.before.own).collect();
        let frame = |member: &u32| Wanted { member: *member, want: NOTHING.into() };
        others.iter().cycle().map(frame).take(CPU_FRAMES).collect()
    }

    /// Frames that came from a member since the look before.
    fn came(&self, member: u32, seen: &Seen) -> u32 {
        // (In order of numbers.)
        let members = &self.before.members;
        let before = members.binary_search_by_key(&member, |(number, _)| *number).ok();
        let before = before.and_then(|at| members.get(at));
        before.map_or(0, |(_, before)| seen.frames.wrapping_sub(before.frames))
    }

    fn for_member(
        &mut self,
        now_ns: u64,
        (member, seen): &(u32, Seen),
        missing: &mut impl FnMut(u32, u32, usize) -> Vec<u32>,
    ) -> Vec<Wanted> {
        let member = *member;
        let known = seen.sends && seen.total != NOT_KNOWN;
        if known && seen.merged < seen.total && self.still >= PATIENCE {
            let lacks = missing(member, seen.total, ASKED).into_iter();
            return lacks.map(|want| Wanted { member, want }).collect();
        }
        let came = self.came(member, seen);
        let to_get = if known { seen.total.saturating_sub(seen.merged) } else { 0 };
        // (A frame that comes back within a look is counted more than once: then there are enough.)
        let wanted = seen.to_send.max(to_get).clamp(FIRST_FRAMES, FRAMES);
        let count = if came == 0 {
            let silence = self.silences.entry(member).or_default();
            if silence.is_over(now_ns) { wanted } else { 0 }
        } else {
            let few = if wanted > FIRST_FRAMES { wanted.saturating_sub(came) } else { 0 };
            few.min(FRAMES / 2)
        };
        (0..count).map(|_| Wanted { member, want: NOTHING.into() }).collect()
    }
}

/// The group has no other member: this switch merges its own messages.
fn alone(look: &Look, missing: &mut impl FnMut(u32, u32, usize) -> Vec<u32>) -> Vec<Wanted> {
    let total = look.members.first().map_or(0, |(_, own)| own.total);
    let lacks = if look.word & 7 == phase::SENDING && total != NOT_KNOWN {
        missing(look.own, total, FRAMES as usize)
    } else {
        vec![]
    };
    let turn = Wanted { member: look.own, want: NOTHING.into() };
    let merge = lacks.into_iter().map(|want| Wanted { member: look.own, want });
    merge.chain([turn]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(phase: u64, members: &[(u32, Seen)]) -> Look {
        Look { word: 5 << 3 | phase, own: 0, members: members.to_vec(), ..Look::default() }
    }

    fn none(_: u32, _: u32, _: usize) -> Vec<u32> {
        vec![]
    }

    #[test]
    fn a_group_that_has_not_begun_or_waits_makes_none() {
        let members = [(0, Seen::default()), (1, Seen::default())];
        let mut rounds = Rounds::default();
        assert!(rounds.due(Look { word: 0, ..look(0, &members) }, 5, none).is_empty());
        assert!(rounds.due(Look { sealed: true, ..look(0, &members) }, 5, none).is_empty());
        assert!(rounds.due(Look { waits_until_ns: 9, ..look(0, &members) }, 5, none).is_empty());
        assert_eq!(rounds.due(look(phase::READY, &members), 5, none).len(), FIRST_FRAMES as usize);
    }

    #[test]
    fn frames_that_come_back_are_enough() {
        let mut rounds = Rounds::default();
        let seen = |frames| [(0, Seen::default()), (1, Seen { frames, ..Seen::default() })];
        rounds.due(look(phase::READY, &seen(0)), 5, none);
        assert!(rounds.due(look(phase::READY, &seen(40)), 5, none).is_empty());
        assert!(!rounds.due(look(phase::READY, &seen(40)), 5, none).is_empty());
    }

    #[test]
    fn frames_on_a_slow_way_do_not_become_more_and_more() {
        let mut rounds = Rounds::default();
        let members = [(0, Seen::default()), (1, Seen::default())];
        let mut made =
            |at| !rounds.due(look(phase::READY, &members), at * LEAST_PAUSE_NS, none).is_empty();
        let few: Vec<bool> = (0..8).map(&mut made).collect();
        assert_eq!(few, [true, false, true, false, false, false, true, false]);
        // A member that is back is not silent for longer than that.
        assert!((8..1000).filter(|at| made(*at)).count() < 50);
        assert!((1000..=1032).any(&mut made));
    }

    #[test]
    fn frames_between_two_windows_end_a_silence() {
        let mut rounds = Rounds::default();
        let seen = |frames| [(0, Seen::default()), (1, Seen { frames, ..Seen::default() })];
        let mut at = |at, frames, waits_until_ns| {
            let look = Look { waits_until_ns, ..look(phase::READY, &seen(frames)) };
            !rounds.due(look, at, none).is_empty()
        };
        let silent: Vec<bool> = (0..100).map(|step| at(step * LEAST_PAUSE_NS, 0, 0)).collect();
        assert!(silent[0] && !silent[99]);
        assert!(!at(100 * LEAST_PAUSE_NS, 2, 110 * LEAST_PAUSE_NS));
        assert!(at(110 * LEAST_PAUSE_NS, 2, 0), "the next window begins with frames");
    }

    fn large(rounds: &mut Rounds, now_ns: u64) -> Vec<Wanted> {
        let own = (0, Seen { total: MANY, ..Seen::default() });
        let other = (1, Seen { to_send: MANY, ..Seen::default() });
        let word = (u64::from(rounds.window()) + 1) << 3 | phase::SENDING;
        rounds.due(Look { word, ..look(phase::SENDING, &[own, other]) }, now_ns, none)
    }

    #[test]
    fn a_cpu_without_frames_gets_some_while_windows_are_large() {
        let mut rounds = Rounds::default();
        let own = (0, Seen { total: MANY - 1, ..Seen::default() });
        rounds.due(look(phase::SENDING, &[own, (1, Seen::default())]), 5, none);
        assert!((0..50).all(|at| rounds.due_on(0, 0, at * CPU_IDLE_NS).is_empty()));
        let mut made = |at: u64, sent| {
            let now_ns = 1_000 * CPU_IDLE_NS + at;
            large(&mut rounds, now_ns);
            rounds.due_on(0, sent, now_ns)
        };
        let wanted = Wanted { member: 1, want: NOTHING.into() };
        assert_eq!(made(0, 0), vec![wanted; CPU_FRAMES]);
        // What was made moves, for a while.
        assert!(made(1, 0).is_empty());
        assert!(made(2, 7).is_empty());
        assert!(made(3, 7).is_empty());
        assert!(!made(2 * CPU_IDLE_NS, 7).is_empty());
        // A CPU that network cards do not choose is left alone.
        let later = (3..50).map(|at| made(2 * at * CPU_IDLE_NS, 7).len());
        assert_eq!(later.sum::<usize>(), CPU_FRAMES);
    }

    #[test]
    fn frames_of_a_large_window_begin_on_all_cpus() {
        let mut rounds = Rounds::default();
        let all = large(&mut rounds, 5).len();
        assert_eq!(all, FRAMES as usize);
        for cpu in 0..3 {
            assert!(rounds.due_on(cpu, 0, 5).is_empty());
        }
        assert!(large(&mut rounds, 5 + MOST_SILENCE_NS).is_empty());
        let parts = [0, 1, 2, 0].map(|cpu| rounds.due_on(cpu, 0, 5 + MOST_SILENCE_NS).len());
        assert_eq!(parts, [11, 11, 10, 0]);
    }

    #[test]
    fn in_a_tree_news_end_a_silence() {
        let mut rounds = Rounds::default();
        let members = [(0, Seen::default()), (1, Seen::default()), (3, Seen::default())];
        let mut made = |step, ready| {
            let look = Look { tree: true, ready, ..look(phase::READY, &members) };
            let now_ns = step * LEAST_PAUSE_NS;
            let made = !rounds.due(look, now_ns, none).is_empty();
            assert!(rounds.is_due(now_ns + 2 * LEAST_PAUSE_NS), "it looks again soon");
            made
        };
        let silent: Vec<bool> = (0..100).map(|step| made(step, 1)).collect();
        assert!(silent[0] && !silent[98] && !silent[99]);
        assert!(made(100, 2), "the last child is ready: its parent is to know");
        assert!(!made(101, 2));
    }

    #[test]
    fn a_lost_message_is_asked_for_when_nothing_moves() {
        let mut rounds = Rounds::default();
        let lacks = Seen { total: 9, merged: 8, sends: true, ..Seen::default() };
        let members = [(0, Seen::default()), (1, lacks)];
        let at = look(phase::SENDING, &members);
        let asks = |member, total, _| {
            assert_eq!((member, total), (1, 9));
            vec![4]
        };
        rounds.due(at.clone(), 5, asks);
        rounds.due(at.clone(), 5, asks);
        assert_eq!(rounds.due(at, 5, asks), [Wanted { member: 1, want: 4 }]);
    }

    #[test]
    fn a_switch_alone_merges_its_own() {
        let mut rounds = Rounds::default();
        let members = [(0, Seen { total: 2, ..Seen::default() })];
        let due = rounds.due(look(phase::SENDING, &members), 5, |_, _, _| vec![0, 1]);
        let wants: Vec<u32> = due.iter().map(|it| it.want).collect();
        assert_eq!(wants, [0, 1, NOTHING.into()]);
    }
}
