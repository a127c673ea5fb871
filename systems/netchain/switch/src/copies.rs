//! Messages about each slot of a group: copies of a reader's slots for a member that joins (design,
//! "Joining"), and tombstones that a head collects (tombstones.md).
//!
//! The data plane notes for each slot its group, and the view in which a message about it was
//! acknowledged. Rounds go over these notes, and queue what is not acknowledged for generated
//! frames, no faster than the pace allows. A group is done when a whole round that began after it
//! was set found all of its slots acknowledged in its view. (What is no tombstone the program
//! itself counts as acknowledged, when a head collects.)

use crate::windows::used;
use c_layout::CStruct;
use dataplane::{Dataplane, MappedWords};
use libbpf_rs::{MapCore, MapFlags};
use manifest::StateObject;
use netchain_protocol::Operation;
use netchain_protocol::control::{Part, Role};
use netchain_protocol::layouts::{PeersDueValue, SlotMark};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switch_agent::Result;

/// The queue for generated frames.
const DUE: &str = "sp_peers_due";
/// A round begins so long after the end of the last one at the least: acknowledgements that are on
/// their way come in meanwhile.
const ROUND_GAP_NS: u64 = 10_000_000;
/// Notes that one look of the generator goes over at the most, in some hundred microseconds.
const NOTES_A_LOOK: usize = 1 << 18;
/// Copies that one look queues at the most.
const MOST_COPIES: u64 = 768;

/// Keys a second, unless the configuration says something else.
pub const USUAL_PER_S: u64 = 200_000;

/// What the messages about a group's slots are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A member that joins.
    Copy,
    /// Slots of deleted keys are freed.
    Collect,
}

/// A group whose slots are copied, or whose tombstones are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyLoad {
    /// The group.
    pub group: u16,
    /// The view in which that is done.
    pub view: u32,
    /// What for.
    pub purpose: Purpose,
    /// The member that joins, or the next one of the chain; 0.0.0.0: there is no other.
    pub to: Ipv4Addr,
    /// Slots that the last round found not acknowledged; None: there was no whole round yet.
    pub left: Option<u32>,
    /// All are acknowledged.
    pub done: bool,
}

/// A group that is to be copied or collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The group.
    pub group: u16,
    /// The view in which that is done.
    pub view: u32,
    /// What for.
    pub purpose: Purpose,
    /// As [`CopyLoad::to`] has it.
    pub to: Ipv4Addr,
}

impl Job {
    /// What a switch with this role in the group has to do, if anything.
    pub fn of((group, role): (u16, &Role)) -> Option<Job> {
        let view = role.view;
        let to = role.copies_to?;
        if matches!(role.part, Part::Member { head: true, collecting: true, .. }) {
            let to = role.next.unwrap_or(Ipv4Addr::UNSPECIFIED);
            return Some(Job { group, view, purpose: Purpose::Collect, to });
        }
        Some(Job { group, view, purpose: Purpose::Copy, to })
    }

    fn operation(&self) -> Operation {
        match self.purpose {
            Purpose::Copy => Operation::Copy,
            Purpose::Collect => Operation::Collect,
        }
    }
}

#[derive(Clone, Copy)]
struct Progress {
    job: Job,
    /// This round began after the job was set.
    whole: bool,
    /// Of this round so far, and of the last whole one.
    found: u32,
    left: Option<u32>,
}

impl Progress {
    fn is_done(&self) -> bool {
        self.left == Some(0)
    }
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<u16, Progress>,
    /// The slot that the next look begins with, and the round's end.
    next: usize,
    end: usize,
    /// When the next round may begin; 0: one is under way.
    begins_ns: u64,
    /// When copies were last allowed, and how many are (in billionths, so as not to lose any).
    paced_ns: u64,
    allowed_nanos: u64,
    /// Copies queued so far.
    sent: u64,
}

/// The slots of one object, as they are copied.
pub struct Copies {
    dataplane: Arc<Dataplane>,
    object: StateObject,
    notes: MappedWords,
    per_s: u64,
    state: Mutex<State>,
}

impl Copies {
    /// At most `per_s` keys a second.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(dataplane: Arc<Dataplane>, object: StateObject, per_s: u64) -> Result<Copies> {
        let notes = dataplane.map_words(&format!("{}_marks", object.map))?;
        Ok(Copies { dataplane, object, notes, per_s, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The groups to copy and to collect. What goes on as before keeps its progress; all else ends.
    pub fn set(&self, jobs: Vec<Job>) {
        let mut state = self.state();
        let before = std::mem::take(&mut state.jobs);
        for job in jobs {
            let same = before.get(&job.group).filter(|it| it.job == job);
            let fresh = Progress { job, whole: false, found: 0, left: None };
            state.jobs.insert(job.group, same.copied().unwrap_or(fresh));
        }
    }

    /// Groups and views in which all slots are acknowledged.
    pub fn done(&self) -> Vec<(u16, u32)> {
        let state = self.state();
        let done = state.jobs.values().filter(|it| it.is_done());
        done.map(|it| (it.job.group, it.job.view)).collect()
    }

    /// All groups that are copied.
    pub fn load(&self) -> Vec<CopyLoad> {
        let state = self.state();
        let load = |it: &Progress| {
            let Job { group, view, purpose, to } = it.job;
            CopyLoad { group, view, purpose, to, left: it.left, done: it.is_done() }
        };
        state.jobs.values().map(load).collect()
    }

    /// Copies that were queued.
    pub fn sent(&self) -> u64 {
        self.state().sent
    }

    /// Queues copies that are due, for generated frames; how many frames they need.
    pub fn due(&self, now_ns: u64) -> u64 {
        let mut state = self.state();
        if state.jobs.values().all(Progress::is_done) {
            return 0;
        }
        if now_ns < state.begins_ns {
            return 0;
        }
        if state.next == 0 {
            match used(&self.dataplane, &self.object) {
                Ok(used) => state.end = used as usize,
                Err(error) => {
                    tracing::warn!("copies: {error}");
                    return 0;
                }
            }
            state.jobs.values_mut().for_each(|job| (job.whole, job.found) = (true, 0));
        }
        let allowed = allow(&mut state, now_ns, self.per_s);
        let queued = self.go_on(&mut state, allowed);
        state.allowed_nanos -= queued * NANOS;
        state.sent += queued;
        if state.next >= state.end {
            state.next = 0;
            state.begins_ns = now_ns + ROUND_GAP_NS;
            for job in state.jobs.values_mut().filter(|job| job.whole) {
                job.left = Some(job.found);
            }
        }
        queued
    }

    /// Goes on with the round; how many copies it queued.
    fn go_on(&self, state: &mut State, allowed: u64) -> u64 {
        let Some(queue) = self.dataplane.map(DUE) else { return 0 };
        let until = state.end.min(state.next + NOTES_A_LOOK);
        let mut queued = 0;
        while state.next < until && queued < allowed {
            let mark = SlotMark::from_word(self.notes.get(state.next));
            let job = state.jobs.get_mut(&mark.part).filter(|it| !it.is_done());
            let due = |it: &&mut Progress| mark.used != 0 && mark.copied_view != it.job.view;
            if let Some(progress) = job.filter(due) {
                let due = PeersDueValue {
                    operation: progress.job.operation() as u32,
                    number: state.next as u32,
                    to: progress.job.to,
                    part: mark.part,
                    object: self.object.id,
                };
                if queue.update(&[], &due.to_bytes(), MapFlags::ANY).is_err() {
                    break; // full: frames are made too slowly
                }
                progress.found += 1;
                queued += 1;
            }
            state.next += 1;
        }
        queued
    }
}

/// Billionths of a copy.
const NANOS: u64 = 1_000_000_000;

/// Copies that the pace allows now.
fn allow(state: &mut State, now_ns: u64, per_s: u64) -> u64 {
    let passed = now_ns.saturating_sub(state.paced_ns).min(NANOS);
    state.paced_ns = now_ns;
    let most = MOST_COPIES * NANOS;
    state.allowed_nanos = state.allowed_nanos.saturating_add(passed * per_s).min(most);
    state.allowed_nanos / NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_kept_over_looks_of_any_length() {
        let mut state = State { paced_ns: 1, ..State::default() };
        let (mut now, mut allowed) = (1, 0);
        for look in 0..1000 {
            now += 100_000 + look * 777;
            let one = allow(&mut state, now, 200_000);
            state.allowed_nanos -= one * NANOS;
            allowed += one;
        }
        assert_eq!(allowed, (now - 1) / 5_000);
        // After a pause not everything comes at once.
        assert_eq!(allow(&mut state, now + NANOS, 200_000), MOST_COPIES);
    }
}
