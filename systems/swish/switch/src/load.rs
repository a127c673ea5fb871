//! What operators are told of groups with SDW.

use crate::exclusion::ExcludedLoad;
use crate::group::{Group, View};
use crate::tree;
use dataplane::{Dataplane, Result};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use swish_protocol::control::{Load, NO_BOUND};
use swish_protocol::layouts::{CELLS, HEADER_BYTES, NodeValue, phase};

/// Ethernet, IP and UDP before a message.
const BEFORE_BYTES: u64 = 14 + 20 + 8;
/// Bytes are counted for so long.
const RATE_NS: u64 = 1_000_000_000;
/// A window that goes on no further for so long, after its pause, is held up.
pub(crate) const LATE_MS: u64 = 100;

/// A window that is held up for so long does not wait for a cap.
const STANDS_MS: u64 = 10_000;
/// What to do about a switch that restarted, if the members are configured.
pub(crate) const ANEW: &str =
    "begin the group anew: stop and detach all its switches, then start them";

/// What `stateplane status` is told of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLoad {
    /// Its name.
    pub group: String,
    /// Addresses of the members.
    pub members: Vec<Ipv4Addr>,
    /// The view.
    pub view: u32,
    /// The window that packets read.
    pub window: u64,
    /// What the switch does in it, as a number (`layouts::phase`).
    pub phase: u64,
    /// Since it began.
    pub age_ms: u64,
    /// Since it might have gone on: pauses are not in it.
    #[serde(default)]
    pub held_ms: u64,
    /// This switch makes a pause for so long from now on: the period's, or a cap's.
    #[serde(default)]
    pub pause_ms: u64,
    /// Of a window, at the least.
    pub period_us: u64,
    /// B: updates of a rotation on this switch.
    pub bound: u64,
    /// r = 2NB: updates that a packet misses at the most.
    pub relaxation: u64,
    /// Messages that came from other members.
    pub bytes_per_s: u64,
    /// Of the group's maps.
    pub memory_bytes: u64,
    /// Blocks of 360 cells.
    pub blocks: u32,
    /// Members that the window waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_up: Vec<Ipv4Addr>,
    /// The members are configured: no controller removes one that does not go on.
    #[serde(default)]
    pub fixed: bool,
    /// Others are ready for this window, which this switch does not come to any more: it restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// The switch is to leave the group, or has left it.
    #[serde(default)]
    pub leaves: bool,
    /// Switches that controllers keep out.
    #[serde(default, skip_serializing_if = "ExcludedLoad::is_empty")]
    pub excluded: ExcludedLoad,
    /// Why the newest decision of a controller is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A switch that shares nothing has no window, or one that stands still.
pub fn is_late(load: &GroupLoad) -> bool {
    load.window == 0 || load.held_ms > LATE_MS
}

/// How long a window has been under way without its pause.
pub(crate) fn held_ns(node: &NodeValue, now_ns: u64) -> u64 {
    let began_ns = node.began_ns[(node.word >> 3 & 1) as usize];
    let since_ns = if node.word & 7 == phase::ADVANCED { node.next_ns } else { node.moved_ns };
    now_ns.saturating_sub(since_ns.max(began_ns))
}

/// How long this switch makes a pause from now on.
pub(crate) fn pause_ns(node: &NodeValue, now_ns: u64) -> u64 {
    match node.word & 7 {
        phase::ADVANCED => node.next_ns.saturating_sub(now_ns),
        _ => 0,
    }
}

impl GroupLoad {
    /// The window, in a table.
    pub fn window_text(&self) -> String {
        if self.window == 0 { "none".to_owned() } else { self.window.to_string() }
    }

    /// r, in a table.
    pub fn relaxation_text(&self) -> String {
        relaxation_text(self.relaxation, self.bound >= NO_BOUND)
    }

    /// Its age, in a table.
    pub fn age_text(&self) -> String {
        if self.window == 0 { String::new() } else { format!("{} ms", self.age_ms) }
    }

    /// What there is to say of the window, for people.
    pub fn notes(&self) -> Vec<String> {
        let pause_ms = (self.pause_ms > LATE_MS).then_some(self.pause_ms);
        let pauses = pause_ms.map(|ms| {
            format!("pauses for {ms} ms more: windows cost as much as period_us and caps allow")
        });
        if let Some(window) = self.behind {
            return vec![format!(
                "this switch restarted, and is empty: the others are in window {window}, which it \
                 cannot come to. {ANEW}"
            )];
        }
        if self.window == 0 {
            let why = match &self.excluded.own {
                _ if self.leaves => "it left".to_owned(),
                Some(why) => why.text(),
                None => "no view has it yet".to_owned(),
            };
            return vec![format!("no window: {why}. Its packets read zeros, and update nothing")];
        }
        // A switch that pauses sends nothing; one that is not ready may also be slow, or cut off.
        let why = match self.phase {
            phase::READY => "is not ready for the window: it pauses for a cap, or holds it up",
            _ => "holds it up",
        };
        let others = self.held_up.iter().map(|switch| format!("{switch} {why}"));
        let stands = self.fixed && !self.held_up.is_empty() && self.held_ms > STANDS_MS;
        let anew = stands.then(|| format!("If a switch restarted: {ANEW}"));
        pauses.into_iter().chain(others).chain(anew).chain(self.excluded.notes()).collect()
    }
}

/// r, for people.
pub fn relaxation_text(relaxation: u64, unbounded: bool) -> String {
    if unbounded { "no bound".to_owned() } else { relaxation.to_string() }
}

/// r = 2NB.
pub fn relaxation(members: usize, bound: u64) -> u64 {
    bound.saturating_mul(2 * members as u64)
}

/// How many bytes come in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    since_ns: u64,
    bytes: u64,
    per_s: u64,
}

impl Traffic {
    /// Whether it is time to count again.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.since_ns + RATE_NS
    }

    /// So many have come so far.
    pub fn update(&mut self, now_ns: u64, bytes: u64) {
        // (It counts from zero again with each view.)
        let more = bytes.checked_sub(self.bytes).unwrap_or(bytes);
        let ns = now_ns.saturating_sub(self.since_ns).max(1);
        let per_s = u128::from(more) * 1_000_000_000 / u128::from(ns);
        if self.since_ns != 0 {
            self.per_s = u64::try_from(per_s).unwrap_or(u64::MAX);
        }
        (self.since_ns, self.bytes) = (now_ns, bytes);
    }

    /// In the last second.
    pub fn per_s(&self) -> u64 {
        self.per_s
    }
}

/// Bytes of messages that came from members so far.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn bytes(dataplane: &Dataplane, group: &Group) -> Result<u64> {
    let mut bytes = 0;
    for (_, member) in group.members(dataplane)? {
        bytes += u64::from(member.frames) * (BEFORE_BYTES + u64::from(HEADER_BYTES));
        bytes += u64::from(member.full) * u64::from(CELLS) * 4;
    }
    Ok(bytes)
}

/// What operators are told of a group whose members are configured.
pub(crate) fn of_view(view: &View, group: &Group, node: &NodeValue, now_ns: u64) -> Load {
    let window = node.word >> 3;
    let began_ns = node.began_ns[(window & 1) as usize];
    Load {
        bound: view.bound,
        period_us: view.period_ns / 1000,
        memory_bytes: group.memory_bytes(),
        bytes_per_s: 0,
        age_ms: if window == 0 { 0 } else { now_ns.saturating_sub(began_ns) / 1_000_000 },
    }
}

/// The window that the others are in, if it is more than one ahead of this switch's.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn behind(
    dataplane: &Dataplane,
    group: &Group,
    node: &NodeValue,
) -> Result<Option<u64>> {
    let ready = group.members(dataplane)?.into_iter().map(|(_, it)| it.ready);
    Ok(ready.max().filter(|ready| is_out_of_reach(node.word >> 3, *ready)))
}

/// (Who waits for this switch is ready for the next window at the most.)
fn is_out_of_reach(window: u64, ready: u64) -> bool {
    window != 0 && ready > window + 1
}

/// Members that the window waits for, by number.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn lacks(dataplane: &Dataplane, group: &Group, node: &NodeValue) -> Result<Vec<u32>> {
    let others = group.members(dataplane)?.into_iter().filter(|(number, _)| *number != node.own);
    Ok(tree::lacks(node, &others.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use c_layout::CStruct;
    use swish_protocol::exclusion::{Excluded, Why};

    #[test]
    fn traffic_is_what_came_in_the_last_second() {
        let mut traffic = Traffic::default();
        let second = 1_000_000_000;
        assert!(traffic.is_due(5 * second));
        traffic.update(5 * second, 700);
        assert_eq!(traffic.per_s(), 0);
        assert!(!traffic.is_due(6 * second - 1));
        traffic.update(7 * second, 1700);
        assert_eq!(traffic.per_s(), 500);
        // A view began: counts are new.
        traffic.update(8 * second, 300);
        assert_eq!(traffic.per_s(), 300);
    }

    #[test]
    fn a_pause_is_told_from_what_holds_a_window_up() {
        let now_ns = 5_000_000_000;
        let node = |phase| NodeValue {
            word: 7 << 3 | phase,
            next_ns: now_ns + 300_000_000,
            ..NodeValue::from_bytes(&[0; size_of::<NodeValue>()])
        };
        assert_eq!(pause_ns(&node(phase::ADVANCED), now_ns), 300_000_000);
        assert_eq!(pause_ns(&node(phase::ADVANCED), now_ns + 400_000_000), 0);
        assert_eq!(pause_ns(&node(phase::READY), now_ns), 0, "it has gone on");
        let other = Ipv4Addr::new(10, 9, 0, 2);
        let load = |phase, held_up, pause_ms| GroupLoad { phase, held_up, pause_ms, ..none() };
        let first = |load: GroupLoad| load.notes().first().cloned().unwrap_or_default();
        assert!(first(load(phase::READY, vec![other], 0)).contains("10.9.0.2 is not ready"));
        assert_eq!(first(load(phase::SENDING, vec![other], 0)), "10.9.0.2 holds it up");
        assert!(first(load(phase::ADVANCED, vec![], 300)).starts_with("pauses for 300 ms"));
        assert_eq!(first(load(phase::ADVANCED, vec![], 9)), "", "each period has a pause");
    }

    #[test]
    fn a_switch_that_restarted_says_so() {
        assert!(!is_out_of_reach(7, 8) && is_out_of_reach(1, 3) && !is_out_of_reach(0, 9));
        let other = Ipv4Addr::new(10, 9, 0, 2);
        let behind = GroupLoad { behind: Some(900), held_up: vec![other], ..none() };
        let [note] = &behind.notes()[..] else { panic!("{:?}", behind.notes()) };
        assert!(note.contains("restarted") && note.contains("window 900"), "{note}");
        // Those that wait for it cannot know why it does not answer.
        let waits = GroupLoad { fixed: true, held_ms: 10_001, held_up: vec![other], ..none() };
        assert!(waits.notes()[1].starts_with("If a switch restarted: begin the group anew"));
        assert_eq!(GroupLoad { held_ms: 10_000, ..waits }.notes().len(), 1);
    }

    #[test]
    fn a_switch_without_a_window_says_so() {
        let joins = GroupLoad { window: 0, ..none() };
        assert_eq!((joins.window_text(), joins.age_text()), ("none".into(), "".into()));
        assert!(joins.notes()[0].starts_with("no window: no view has it yet"));
        let left = GroupLoad { leaves: true, ..joins };
        assert!(left.notes()[0].starts_with("no window: it left"));
        let [one, other] = [1, 2].map(|last| Ipv4Addr::new(10, 9, 0, last));
        let excluded = Excluded { switch: one, view: 7, pairs: vec![(one, other)] };
        let why = Why { excluded: excluded.clone(), since_ms: 1, left_ms: 1 };
        let own = ExcludedLoad { own: Some(why), others: vec![] };
        let out = GroupLoad { window: 0, excluded: own, ..none() };
        let note = "no window: 10.9.0.1 is excluded from view 7 on: 10.9.0.1 lacked messages of";
        assert!(out.notes()[0].starts_with(note), "{:?}", out.notes());
        let others = ExcludedLoad { own: None, others: vec![excluded] };
        let member = GroupLoad { excluded: others, ..none() };
        assert!(member.notes()[0].starts_with("10.9.0.1 is excluded from view 7 on"));
        assert!(!is_late(&member), "the group goes on");
        let shares = GroupLoad { age_ms: 4, ..none() };
        assert_eq!((shares.window_text(), shares.age_text()), ("7".into(), "4 ms".into()));
    }

    fn none() -> GroupLoad {
        GroupLoad {
            group: "main".into(),
            members: vec![],
            view: 1,
            window: 7,
            phase: 0,
            age_ms: 0,
            held_ms: 0,
            pause_ms: 0,
            period_us: 0,
            bound: 0,
            relaxation: 0,
            bytes_per_s: 0,
            memory_bytes: 0,
            blocks: 0,
            held_up: vec![],
            fixed: false,
            behind: None,
            leaves: false,
            excluded: ExcludedLoad::default(),
            fault: None,
        }
    }

    #[test]
    fn a_group_without_a_bound_has_no_r() {
        let text = |bound| {
            GroupLoad { bound, relaxation: relaxation(4, bound), ..none() }.relaxation_text()
        };
        assert_eq!((text(1000), text(NO_BOUND)), ("8000".into(), "no bound".into()));
    }

    #[test]
    fn a_packet_misses_2nb_updates() {
        assert_eq!(relaxation(4, 1000), 8000);
        assert_eq!(relaxation(4, u64::MAX), u64::MAX);
    }
}
