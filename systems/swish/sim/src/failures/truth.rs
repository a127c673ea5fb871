//! What packets must read of a group whose members die and come back.
//!
//! A *time* is a switch's time as a member: from its joining until it gives up or dies. In window
//! *w* of a view count all updates of rotations below *w* of the view's members; of times that are
//! over, those that the view's decision says.

use crate::model::{Update, Variable};
use std::collections::BTreeMap;
use swish_controller::Decided;
use swish_protocol::layouts::phase;
use swish_protocol::objects::period_begins;

struct Made {
    time: usize,
    rotation: u64,
    update: Update,
}

struct Time {
    place: usize,
    incarnation: u32,
    /// The first view.
    since: u32,
    /// The last view.
    view: u32,
    over: bool,
    /// Its switch has ended: it can no more hand in what did not count.
    forgotten: bool,
}

struct View {
    decided: Decided,
    /// By time: the newest rotation that counts, of those that are over.
    limits: BTreeMap<usize, u64>,
}

/// By object, then cell.
type Values = Vec<Vec<u32>>;

/// See the module.
pub(super) struct Truth {
    objects: Vec<Variable>,
    made: Vec<Made>,
    times: Vec<Time>,
    views: BTreeMap<u32, View>,
    /// By view and window.
    values: BTreeMap<(u32, u64), Values>,
    lost: Option<String>,
    /// The last view in which the group began anew.
    founded: u32,
}

impl Truth {
    pub fn new(objects: &[Variable]) -> Truth {
        Truth {
            objects: objects.to_vec(),
            made: vec![],
            times: vec![],
            views: BTreeMap::new(),
            values: BTreeMap::new(),
            lost: None,
            founded: 0,
        }
    }

    pub fn decision(&self, view: u32) -> Option<&Decided> {
        self.views.get(&view).map(|it| &it.decided)
    }

    /// The newest rotation of a time that counts in this decision, if it says so.
    fn counted(decided: &Decided, time: &Time) -> Option<u64> {
        let of = decided.counted.get(&super::address(time.place)).into_iter().flatten();
        let of = of.filter(|it| it.incarnation == time.incarnation && it.view >= time.view);
        of.min_by_key(|it| it.view).map(|it| it.rotation)
    }

    pub fn decided(&mut self, decided: Decided) {
        let before = self.views.last_key_value().map(|(_, view)| view.limits.clone());
        let mut limits = before.unwrap_or_default();
        // (All that was is gone.)
        if decided.joins.len() == decided.members.len() {
            self.founded = decided.number;
            limits.extend((0..self.times.len()).map(|at| (at, 0)));
        }
        for (at, time) in self.times.iter().enumerate() {
            let address = super::address(time.place);
            let member = decided.members.iter().find(|it| it.address == address);
            let stays = member.is_some_and(|it| {
                it.incarnation == time.incarnation && !decided.joins.contains(&it.number)
            });
            let newest = self.times.iter().rposition(|it| it.place == time.place) == Some(at);
            if !newest {
                // (It has handed in what did not count by then.)
                continue;
            }
            if stays && !time.over {
                limits.remove(&at);
            } else if let Some(rotation) = Self::counted(&decided, time)
                && limits.get(&at) != Some(&0)
            {
                limits.insert(at, rotation);
            }
        }
        self.views.insert(decided.number, View { decided, limits });
    }

    fn current(&self, place: usize) -> Option<usize> {
        self.times.iter().rposition(|it| it.place == place && !it.over)
    }

    /// The switch has this view from now on. How many updates it hands in.
    pub fn takes(&mut self, place: usize, before: u32, (view, window): (u32, u64)) -> u64 {
        if before != 0
            && let Some(at) = self.current(place)
        {
            self.times[at].view = view;
            return 0;
        }
        let Some(of) = self.views.get(&view) else { return 0 };
        let address = super::address(place);
        let member = of.decided.members.iter().find(|it| it.address == address);
        let incarnation = member.map_or(0, |it| it.incarnation);
        let last = self.times.iter().rposition(|it| it.place == place);
        let last = last.filter(|at| {
            let time = &self.times[*at];
            time.incarnation == incarnation && !time.forgotten
        });
        let new = self.times.len();
        let time = Time { place, incarnation, since: view, view, over: false, forgotten: false };
        self.times.push(time);
        let Some(last) = last else { return 0 };
        let Some(limit) = Self::counted(&of.decided, &self.times[last]) else {
            let some = self.made.iter().any(|it| it.time == last);
            // (When a group begins anew, as no member could be heard, what they had is lost.)
            if some && self.times[last].view >= self.founded {
                self.lost = Some(format!(
                    "{place} is told nothing of what counted since view {}: {:?}",
                    self.times[last].view, of.decided
                ));
            }
            return 0;
        };
        let handed: Vec<Update> = self
            .made
            .iter()
            .filter(|it| it.time == last && it.rotation > limit)
            .map(|it| it.update)
            .collect();
        let count = handed.len() as u64;
        let made = handed.into_iter().map(|update| Made { time: new, rotation: window, update });
        self.made.extend(made);
        self.values.clear();
        count
    }

    /// The switch has no state any more; its agent holds what did not count.
    pub fn gives_up(&mut self, place: usize, view: u32) {
        if let Some(at) = self.current(place) {
            self.times[at].over = true;
            self.times[at].view = self.times[at].view.max(view);
        }
    }

    /// For people: updates of a switch that has left that do not count.
    pub fn uncounted(&self, place: usize) -> Option<String> {
        let at = self.times.iter().rposition(|it| it.place == place && it.over)?;
        let (number, view) = self.views.last_key_value()?;
        let limit = Self::counted(&view.decided, &self.times[at]);
        let lost = |it: &&Made| it.time == at && limit.is_none_or(|limit| it.rotation > limit);
        let first = self.made.iter().find(lost)?;
        let (by, rotation) = (first.update.by, first.rotation);
        Some(format!("{by:#x} in rotation {rotation}: in view {number}, {limit:?} counts"))
    }

    /// Nobody has anything of the switch any more.
    pub fn ends(&mut self, place: usize) {
        for time in self.times.iter_mut().filter(|it| it.place == place) {
            (time.over, time.forgotten) = (true, true);
        }
    }

    /// A packet's update.
    pub fn update(&mut self, place: usize, word: u64, update: Update) {
        let Some(time) = self.current(place) else { return };
        let rotation = (word >> 3) + u64::from(word & 7 >= phase::ROTATED);
        self.made.push(Made { time, rotation, update });
        // (It is in no window that anybody reads, but for members that are removed.)
        self.values.retain(|(_, window), _| *window <= rotation);
    }

    /// What a packet must read. None: there is no such view.
    pub fn cell(&mut self, view: u32, window: u64, object: usize, index: u32) -> Option<u32> {
        if window == 0 {
            return Some(0);
        }
        if !self.values.contains_key(&(view, window)) {
            let values = self.value(view, window)?;
            if self.values.len() > 64 {
                self.values.clear();
            }
            self.values.insert((view, window), values);
        }
        self.values.get(&(view, window))?.get(object)?.get(index as usize).copied()
    }

    fn value(&self, view: u32, window: u64) -> Option<Values> {
        let limits = &self.views.get(&view)?.limits;
        let mut values: Values =
            self.objects.iter().map(|(_, cells, _)| vec![0; *cells as usize]).collect();
        for Made { time, rotation, update } in &self.made {
            // (A member that was removed goes on alone for a while, in its view.)
            if self.times[*time].since > view {
                continue;
            }
            let limit = limits.get(time).copied().unwrap_or(u64::MAX);
            let (merge, _, period) = self.objects[update.object];
            let begins = period_begins(period, window - 1);
            if (begins..window).contains(rotation) && *rotation <= limit {
                let cell = &mut values[update.object][update.index as usize];
                *cell = merge.of(*cell, update.by);
            }
        }
        Some(values)
    }

    /// The newest updates that such a packet's cell has, for people.
    pub fn explained(&self, view: u32, window: u64, object: usize, index: u32) -> String {
        let Some(View { limits, .. }) = self.views.get(&view) else { return String::new() };
        let of = self.made.iter().filter(|it| {
            (it.update.object, it.update.index) == (object, index) && it.rotation < window
        });
        let told = of.map(|Made { time, rotation, update }| {
            let Time { place, since, view: last, .. } = &self.times[*time];
            let limit = limits.get(time);
            format!(
                "{place} by {:#x} in rotation {rotation} (views {since} to {last}, limit {limit:?})",
                update.by
            )
        });
        let mut told: Vec<String> = told.collect();
        told.drain(..told.len().saturating_sub(12));
        told.join("; ")
    }

    /// Updates of a living switch that nobody will count.
    pub fn lost(&self) -> Option<&String> {
        self.lost.as_ref()
    }
}
