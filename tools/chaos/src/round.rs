//! The rounds of one lab.

use crate::ledger::{Broken, Outage};
use crate::plan::{self, Fault, Site, Step};
use crate::report::{LabReport, RoundReport, evidence};
use crate::whole::Whole;
use crate::{Config, Judge, SETTLE_LIMIT, Traffic, VIOLATIONS_ENOUGH, bindings, inject};
use lab::bird;
use lab::error::{Error, Result};
use lab::instance::Lab;
use lab::interrupt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

struct Rounds<'a> {
    config: &'a Config,
    lab: &'a Lab,
    judge: Arc<Judge>,
    site: Site,
    whole: Whole,
    traffic: Traffic,
    report: LabReport,
    /// Since when each BGP and BFD session was as it was when the lab was whole.
    routing: Vec<Option<String>>,
    /// When that was, in the time of the counted packets' record.
    whole_ns: u64,
}

/// Runs all rounds of a lab.
///
/// # Errors
/// Its traffic does not start, a result cannot be written, or the process is to stop.
pub(super) fn rounds(
    config: &Config,
    lab: &Lab,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<LabReport> {
    let name = lab.topology().name.clone();
    let judge = Arc::new(Judge::new(&name));
    let mut rounds = Rounds {
        config,
        lab,
        site: Site::of(lab.topology(), lab.mode()),
        whole: Whole::of(lab)?,
        traffic: Traffic::start(config, lab, &judge)?,
        report: LabReport::new(&name),
        routing: routing(lab),
        whole_ns: 0,
        judge,
    };
    let began = Instant::now();
    for number in config.from..config.from.saturating_add(config.rounds) {
        if interrupt::requested() || config.limit.is_some_and(|limit| began.elapsed() > limit) {
            break;
        }
        let before = rounds.judge.count();
        let result = rounds.round(number, progress);
        match result {
            Ok(()) => {}
            Err(Error::Interrupted) => break,
            Err(error) => rounds.judge.violation(format!("the lab cannot go on: {error}")),
        }
        let violations = rounds.judge.count() - before;
        if violations > 0 {
            evidence(lab, &config.out.join(format!("{name}-round-{number}")))?;
        }
        let stuck = rounds.report.rounds.last().is_none_or(|round| round.round != number);
        if stuck || rounds.judge.count() >= VIOLATIONS_ENOUGH {
            break;
        }
    }
    rounds.finish()
}

impl Rounds<'_> {
    fn round(&mut self, number: u64, progress: &(dyn Fn(&str) + Sync)) -> Result<()> {
        let lab = self.lab;
        self.judge.round.store(number, Ordering::Relaxed);
        let steps = plan::draw(self.config.seed, &lab.topology().name, number, &self.site);
        if let Some(counts) = &mut self.traffic.counts {
            counts.begin_round(lab)?;
        }
        self.resume();
        self.judge_routing();
        // In the time of the counted packets' record.
        let record_ns = || self.traffic.counts.as_ref().map_or(0, |counts| counts.ns());
        // What changed before the faults is none of theirs, whomever they concern.
        let earlier = own_changes(lab, &self.routing, &[], (self.whole_ns, record_ns()));
        let began = Instant::now();
        *self.judge.window() = Some((began, None));
        let mut outages = play(lab, &steps, &record_ns)?;
        let (repaired, repaired_ns) = (began.elapsed(), record_ns());
        self.whole.wait(lab)?;
        let (whole, whole_ns) = (Instant::now(), record_ns());
        outages.iter_mut().for_each(|outage| outage.until_ns = whole_ns);
        outages.extend(earlier);
        *self.judge.window() = Some((began, Some(whole)));
        let before = std::mem::replace(&mut self.routing, routing(lab));
        let from_ns = std::mem::replace(&mut self.whole_ns, whole_ns);
        self.judge_round((outages, repaired_ns), &|until_ns| {
            own_changes(lab, &before, &steps, (from_ns, until_ns))
        })?;
        let round = RoundReport {
            round: number,
            began_s: (began - self.judge.zero).as_secs_f64(),
            steps,
            repaired_ms: milliseconds(repaired),
            whole_ms: milliseconds(whole - began),
            judged_ms: milliseconds(began.elapsed()),
        };
        progress(&self.line(&round));
        self.report.rounds.push(round);
        self.report.memory(lab);
        Ok(())
    }

    /// Before anything is broken on purpose: has routing changed since the lab was whole?
    fn judge_routing(&mut self) {
        let went_down = self.routing != routing(self.lab);
        self.report.routing_went_down += u64::from(went_down);
        self.report.excused_by_routing += self.judge.judge_suspicions(went_down);
    }

    /// The lab is whole: everything must work, and what happened must have been right.
    fn judge_round(
        &mut self,
        outages: (Vec<Outage>, u64),
        routing: &dyn Fn(u64) -> Vec<Outage>,
    ) -> Result<()> {
        if let Some((connections, _)) = &self.traffic.connections {
            connections.settle(SETTLE_LIMIT)?;
            connections.pause()?;
        }
        if let Some(bindings) = &mut self.traffic.bindings {
            bindings.end_round()?;
        }
        if let Some(counts) = &mut self.traffic.counts {
            counts.end_round(self.lab, outages, routing)?;
        }
        self.whole.wait_stores(self.lab)?;
        Ok(())
    }

    /// After a judgement. Not at its end: after the last one nothing more is sent, as nobody would
    /// judge it.
    fn resume(&self) {
        if let Some((connections, _)) = &self.traffic.connections {
            connections.resume();
        }
        if let Some(counts) = &self.traffic.counts {
            counts.resume();
        }
    }

    fn line(&self, round: &RoundReport) -> String {
        let faults: Vec<String> = round.steps.iter().map(Step::to_string).collect();
        let mut line = format!(
            "{} round {}: {}; whole after {} ms",
            self.report.lab,
            round.round,
            faults.join(", "),
            round.whole_ms
        );
        if let Some((connections, _)) = &self.traffic.connections {
            let figures = connections.figures();
            line.push_str(&format!(
                "; {} connections, {} broken",
                figures.established, figures.broken
            ));
        }
        if let Some(counts) = &self.traffic.counts {
            let figures = counts.figures();
            line.push_str(&format!("; {} of {} counted packets out", figures.out, figures.sent));
        }
        match self.judge.count() {
            0 => line,
            violations => format!("{line}; {violations} VIOLATIONS"),
        }
    }

    fn finish(mut self) -> Result<LabReport> {
        self.judge_routing();
        if let Some(counts) = &mut self.traffic.counts {
            counts.finish()?;
        }
        self.report.connections =
            self.traffic.connections.as_ref().map(|(connections, _)| connections.figures());
        self.report.bindings = self.traffic.bindings.as_ref().map(bindings::Bindings::figures);
        self.report.counts = self.traffic.counts.as_ref().map(|counts| counts.figures());
        drop(self.traffic);
        self.report.violations = self.judge.count();
        self.report.violation = self.judge.violations().clone();
        Ok(self.report)
    }
}

/// Since when each session of each BIRD is as it is.
fn routing(lab: &Lab) -> Vec<Option<String>> {
    lab.topology().node.keys().map(|node| bird::changes(&lab.bird_socket(node))).collect()
}

/// Sessions that changed since they were as they were `before`, and that no fault has a part in.
fn own_changes(
    lab: &Lab,
    before: &[Option<String>],
    steps: &[Step],
    (from_ns, until_ns): (u64, u64),
) -> Vec<Outage> {
    let cut = |name: &str| {
        steps.iter().any(|step| match &step.fault {
            Fault::Process { .. } => false,
            fault => fault.machine().is_some_and(|machine| machine == name),
        })
    };
    let mut outages = Vec::new();
    for ((node, before), now) in lab.topology().node.keys().zip(before).zip(routing(lab)) {
        let changed = match (before, now) {
            (Some(before), Some(now)) => bird::changed(before, &now),
            _ => continue,
        };
        for neighbour in changed.into_iter().filter(|neighbour| !cut(node) && !cut(neighbour)) {
            outages.push(Outage {
                broken: Broken::Routing(node.clone(), neighbour),
                from_ns,
                until_ns,
            });
        }
    }
    outages
}

/// Does and undoes all faults, each by its own clock. Returns when each began, by `record_ns`;
/// their effects last longer.
fn play(lab: &Lab, steps: &[Step], record_ns: &(dyn Fn() -> u64 + Sync)) -> Result<Vec<Outage>> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = steps
            .iter()
            .map(|step| {
                scope.spawn(move || {
                    std::thread::sleep(
                        Duration::from_millis(step.at_ms).saturating_sub(began.elapsed()),
                    );
                    let from_ns = record_ns();
                    inject::begin(lab, &step.fault)?;
                    std::thread::sleep(Duration::from_millis(step.lasts_ms));
                    inject::end(lab, &step.fault)?;
                    Ok(Outage {
                        broken: Broken::Fault(step.fault.clone()),
                        from_ns,
                        until_ns: u64::MAX,
                    })
                })
            })
            .collect();
        let gone = || Err(Error::Run("a fault's thread panicked".to_string()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
    })
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
