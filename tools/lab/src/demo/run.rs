//! One run: traffic, the switch's death and return by the clock, and what came of it.

use crate::demo::analysis::{BIN_S, Series};
use crate::demo::picture::{Picture, View};
use crate::demo::sampler::{Points, Sample, Sampler};
use crate::demo::traffic::{IdleConnections, LongFlows};
use crate::demo::{Config, Kind, Timeline};
use crate::error::{Error, Result};
use crate::instance::Lab;
use crate::interrupt;
use crate::peer::Exchange;
use serde::Serialize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long an idle connection may take to answer before it counts as broken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Goodput from which on the long flows count as started, in Mbit/s.
const FLOWING_MBPS: f64 = 1.0;
/// How long they may take to start.
const FLOWING_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval between two looks at the clock.
const TICK: Duration = Duration::from_millis(10);
/// Interval between two pictures.
const REDRAW: Duration = Duration::from_millis(100);

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Seconds since the run began.
    pub t: f64,
    /// What.
    pub what: String,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which run.
    pub kind: Kind,
    /// Counters every 10 ms.
    pub samples: Vec<Sample>,
    /// What happened when.
    pub events: Vec<Event>,
    /// When the switch was killed, in seconds.
    pub failed_at: Option<f64>,
    /// When it was told to come back, in seconds.
    pub restored_at: Option<f64>,
    /// When traffic moved back to it, in seconds.
    pub returned_at: Option<f64>,
    /// Idle connections and long flows.
    pub connections: usize,
    /// Those that broke.
    pub broken: usize,
    /// Every exchange on the idle connections.
    pub exchanges: Vec<Exchange>,
    /// Median goodput before the failure, in Mbit/s.
    pub normal_mbps: f64,
    /// Length of the disruption after the kill, in seconds; none if it did not end.
    pub recovery_fail_s: Option<f64>,
    /// Length of the disruption after the return, in seconds; none if it did not end.
    pub recovery_return_s: Option<f64>,
}

/// What the thread that kills and restores reports.
enum Deed {
    Failed(Result<()>),
    Restored(Result<()>),
}

struct Run<'a> {
    config: &'a Config,
    lab: &'a Lab,
    kind: Kind,
    timeline: Timeline,
    zero: Instant,
    events: Vec<Event>,
    exchanges: Vec<Exchange>,
    failed_at: Option<f64>,
    restored_at: Option<f64>,
}

/// Runs it.
///
/// # Errors
/// Traffic does not start, the switch cannot be killed or restored, or the process is to stop.
pub fn run(config: &Config, lab: &Lab, kind: Kind, picture: &mut Picture) -> Result<Outcome> {
    let cast = &config.cast;
    let ends = (cast.client.as_str(), cast.server.as_str(), cast.server_address.as_str());
    let (mut idle, opened) = IdleConnections::open(lab, ends, config.connections)?;
    if opened.broken() > 0 {
        return Err(Error::Run(format!(
            "{} of {} connections do not work even before the failure",
            opened.broken(),
            opened.connections
        )));
    }
    let mut flows = LongFlows::start(lab, ends, config.flows, config.seconds, config.rate_mbps)?;
    let points = Points {
        receiver: &cast.server,
        router: &cast.core,
        far_router: &cast.tor,
        switches: &cast.switches,
    };
    wait_flowing(lab, &points, &mut flows)?;
    let zero = Instant::now();
    let sampler = Sampler::start(lab, &points, zero)?;
    let mut run = Run {
        config,
        lab,
        kind,
        timeline: Timeline::of(config.seconds),
        zero,
        events: Vec::new(),
        exchanges: vec![opened],
        failed_at: None,
        restored_at: None,
    };
    run.play(&mut idle, &mut flows, &sampler, picture)?;
    let samples = sampler.finish();
    let expected = if kind.fails() { 3 } else { 2 };
    while run.exchanges.len() < expected {
        run.exchanges.push(idle.wait(2 * ANSWER_TIMEOUT + Duration::from_secs(1))?);
    }
    let mut long = flows.finish(Duration::from_secs(4));
    if interrupt::requested() {
        return Err(Error::Interrupted);
    }
    if long.broken == 0 && stalled(&samples, config.seconds) {
        long.broken = long.flows;
        long.reason = "no data came through at the end".to_string();
    }
    if !long.reason.is_empty() {
        run.event(run.now(), &format!("iperf3: {}", long.reason), picture);
    }
    let outcome = run.outcome(samples, long.flows, long.broken);
    picture.end(&outcome);
    if outcome.normal_mbps < FLOWING_MBPS {
        return Err(Error::Run(format!(
            "run \"{}\": hardly any goodput before the failure, so there is nothing to measure",
            kind.name()
        )));
    }
    Ok(outcome)
}

/// Waits until the long flows carry data: the run's clock starts with them.
fn wait_flowing(lab: &Lab, points: &Points, flows: &mut LongFlows) -> Result<()> {
    let start = Instant::now();
    let sampler = Sampler::start(lab, points, start)?;
    loop {
        let now = start.elapsed().as_secs_f64();
        if Series::new(&sampler.samples()).goodput(now - BIN_S, now) >= FLOWING_MBPS {
            return Ok(());
        }
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        if start.elapsed() > FLOWING_TIMEOUT || !flows.running() {
            return Err(Error::Run(format!(
                "iperf3 carried no data within {now:.1} s, before any failure"
            )));
        }
        std::thread::sleep(TICK);
    }
}

/// Whether the long flows, though not reset, have stopped: less than a hundredth of the run's mean
/// in its last second.
fn stalled(samples: &[Sample], end: f64) -> bool {
    let series = Series::new(samples);
    series.goodput(end - 1.0, end) < 0.01 * series.goodput(0.0, end)
}

impl Run<'_> {
    fn now(&self) -> f64 {
        self.zero.elapsed().as_secs_f64()
    }

    fn event(&mut self, t: f64, what: &str, picture: &mut Picture) {
        picture.event(t, what);
        self.events.push(Event { t, what: what.to_string() });
    }

    /// The run by the clock.
    fn play(
        &mut self,
        idle: &mut IdleConnections,
        flows: &mut LongFlows,
        sampler: &Sampler,
        picture: &mut Picture,
    ) -> Result<()> {
        let (sender, deeds) = channel();
        let (lab, victim) = (self.lab, self.victim().to_string());
        std::thread::scope(|scope| {
            let act = |restore: bool| {
                let (sender, victim): (Sender<Deed>, String) = (sender.clone(), victim.clone());
                scope.spawn(move || {
                    let deed = if restore {
                        Deed::Restored(lab.restore(&victim))
                    } else {
                        Deed::Failed(lab.fail(&victim))
                    };
                    // The receiver is gone only if the run was given up.
                    let _ = sender.send(deed);
                });
            };
            self.follow_clock(&act, &deeds, idle, flows, sampler, picture)
        })
    }

    fn victim(&self) -> &str {
        self.config.cast.switches.first().map_or("", String::as_str)
    }

    fn follow_clock(
        &mut self,
        act: &dyn Fn(bool),
        deeds: &Receiver<Deed>,
        idle: &mut IdleConnections,
        flows: &mut LongFlows,
        sampler: &Sampler,
        picture: &mut Picture,
    ) -> Result<()> {
        let plan = self.timeline;
        let victim = self.victim().to_string();
        let mut steps = Vec::new();
        if self.kind.fails() {
            steps.push((plan.fail, Step::Fail));
            steps.push((plan.check_after_fail, Step::Check("after-failure")));
            steps.push((plan.restore, Step::Restore));
        }
        steps.push((plan.check_after_return, Step::Check("at-the-end")));
        let mut steps = steps.into_iter().peekable();
        let mut drawn = Instant::now();
        let mut flowing = true;
        while self.now() < plan.end {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            if let Some((_, step)) = steps.next_if(|(t, _)| *t <= self.now()) {
                match step {
                    Step::Fail => {
                        // The kill follows within a fraction of a millisecond.
                        let t = self.now();
                        self.failed_at = Some(t);
                        self.event(t, &format!("{victim} dies: SIGKILL, ports down"), picture);
                        act(false);
                    }
                    Step::Restore => act(true),
                    Step::Check(label) => idle.check(label, ANSWER_TIMEOUT)?,
                }
            }
            while let Ok(deed) = deeds.try_recv() {
                self.done(deed, picture)?;
            }
            if let Some(exchange) = idle.poll() {
                self.exchanged(exchange, picture);
            }
            if flowing && !flows.running() {
                flowing = false;
                self.event(self.now(), "iperf3's connections are broken", picture);
            }
            if drawn.elapsed() >= REDRAW {
                drawn = Instant::now();
                let samples = sampler.samples();
                picture.draw(&View {
                    t: self.now(),
                    end: plan.end,
                    series: Series::new(&samples),
                    switches: &self.config.cast.switches,
                    exchange: self.exchanges.last(),
                    scale_mbps: f64::from(self.config.rate_mbps),
                });
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn done(&mut self, deed: Deed, picture: &mut Picture) -> Result<()> {
        let victim = self.victim().to_string();
        match deed {
            Deed::Failed(done) => done?,
            Deed::Restored(done) => {
                done?;
                let t = self.now();
                self.restored_at = Some(t);
                self.event(t, &format!("{victim} is back, empty"), picture);
            }
        }
        Ok(())
    }

    fn exchanged(&mut self, exchange: Exchange, picture: &mut Picture) {
        let what = format!(
            "idle connections {}: {} answer, {} broken",
            exchange.label.replace('-', " "),
            exchange.answered,
            exchange.broken()
        );
        self.event(self.now(), &what, picture);
        self.exchanges.push(exchange);
    }

    fn outcome(self, samples: Vec<Sample>, flows: usize, flows_broken: usize) -> Outcome {
        let series = Series::new(&samples);
        let plan = self.timeline;
        let before = (plan.warm_up, self.failed_at.unwrap_or(plan.end));
        let normal_mbps = series.median(before.0, before.1);
        let recovery_fail_s =
            self.failed_at.and_then(|t| series.recovery(t, plan.end, normal_mbps));
        // When the routes move, the parked packets' senders fall silent: the disruption can begin
        // well before the frames come back.
        let disruption =
            self.restored_at.and_then(|t| series.longest_disruption(t, plan.end, normal_mbps));
        let recovery_return_s = disruption.map(|(_, length)| length);
        let returned_at = match disruption {
            Some((begun, length)) if length > 0.0 => Some(begun),
            _ => self.restored_at.and_then(|t| series.return_start(0, t, before)),
        };
        let last = self.exchanges.last();
        Outcome {
            kind: self.kind,
            connections: last.map_or(0, |e| e.connections) + flows,
            broken: last.map_or(0, Exchange::broken) + flows_broken,
            events: self.events,
            failed_at: self.failed_at,
            restored_at: self.restored_at,
            returned_at,
            exchanges: self.exchanges,
            normal_mbps,
            recovery_fail_s,
            recovery_return_s,
            samples,
        }
    }
}

enum Step {
    Fail,
    Restore,
    Check(&'static str),
}
