//! Keys that switches serve, with the client that sends in batches.

use crate::kv::failure::{Live, Plan, Record, Recorded};
use crate::kv::labs::{Network, Site, kill_and_restore};
use crate::kv::ledger::{Busy, Ledger};
use crate::kv::lockers::{Locker, Lockers};
use crate::kv::workload::{Draw, Measured, Pace, Workload, value};
use crate::kv::{Service, System, runtime};
use anyhow::{Context, Result, bail, ensure};
use netchain_client::{
    Answer, AsyncClient, Config, Key, Outcome, Pipeline, Request, Ring, Ticket, read_ring,
};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// More than can be under way.
const PLACES: usize = 16_384;
/// First copies are not sent again before they count as late.
const RETRY_MS: u64 = 10;
/// An open loop looks for answers this often.
const LOOK: Duration = Duration::from_micros(200);

/// See the module.
pub struct Switches {
    network: Network,
    config: Config,
    keys: Vec<Key>,
    pipeline: Pipeline,
}

/// When requests under way began, by their tickets: these are numbers in a row.
struct Begun<T>(Vec<Option<(Ticket, T)>>);

impl<T> Begun<T> {
    fn new() -> Begun<T> {
        Begun((0..PLACES).map(|_| None).collect())
    }

    fn insert(&mut self, ticket: Ticket, what: T) {
        self.0[ticket.number() as usize % PLACES] = Some((ticket, what));
    }

    fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let place = &mut self.0[ticket.number() as usize % PLACES];
        if place.as_ref().is_some_and(|(of, _)| *of == ticket) {
            place.take().map(|(_, what)| what)
        } else {
            None
        }
    }
}

fn key(number: usize) -> Result<Key> {
    Ok(Key::from_name(&format!("lock-{number}"))?)
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Ok(Outcome::Done(_)))
}

impl Switches {
    /// Brings four switches up, with so many groups.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn up(site: &Site, groups: u16) -> Result<Switches> {
        Switches::up_with(site, groups, true)
    }

    /// The same; `tags`: with a client's key. Without, everybody is let in.
    ///
    /// # Errors
    /// As [`Switches::up`].
    pub fn up_with(site: &Site, groups: u16, tags: bool) -> Result<Switches> {
        let mode = if tags { "keys" } else { "open" };
        let groups = [("groups", groups.to_string())];
        let network = Network::up(site, "kv_switches.toml", Some(mode), &groups)?;
        Switches::of(network, tags)
    }

    /// Brings a spine-leaf network of six up, with clients at the first leaf.
    ///
    /// # Errors
    /// As [`Switches::up`].
    pub fn in_fabric(site: &Site) -> Result<Switches> {
        Switches::of(Network::up(site, "kv_fabric.toml", None, &[])?, true)
    }

    fn of(network: Network, tags: bool) -> Result<Switches> {
        let folder = network.lab().dir();
        let ring = read_ring(&folder.join("cluster.toml")).map_err(anyhow::Error::msg)?;
        let config = Config {
            identity: tags.then(|| folder.join("client.key")),
            retry_ms: RETRY_MS,
            deadline_ms: 5000,
            ..Config::new(ring)
        };
        let pipeline = network.inside("client", || Ok(Pipeline::new(config.clone())?))?;
        Ok(Switches { network, config, keys: vec![], pipeline })
    }

    /// With what the cluster was founded.
    pub fn ring(&self) -> &Ring {
        &self.config.ring
    }

    /// The share of all keys that each group has.
    pub fn shares(&self) -> Vec<f64> {
        let mut shares = vec![0.0; usize::from(self.config.ring.groups())];
        for key in &self.keys {
            let group = usize::from(self.config.ring.group_of(key));
            shares[group] += 1.0 / self.keys.len() as f64;
        }
        shares
    }

    /// Messages that were sent so far.
    pub fn sent(&self) -> u64 {
        self.pipeline.calls().sent
    }

    /// The chain of each group, as the controller says.
    fn chains(&self) -> Result<HashMap<u16, Vec<Ipv4Addr>>> {
        let secrets = self.network.lab().dir().join("fabric.secrets").display().to_string();
        let words = ["kv", "--json", "status", "--groups", "--address", "10.2.9.10:5411"];
        let words = [&words[..], &["--secrets", &secrets]].concat();
        let text = self.network.stateplane("controller", &words)?;
        let told: serde_json::Value = serde_json::from_str(&text).context("kv status")?;
        let chain = |group: &serde_json::Value| {
            let number = u16::try_from(group["group"].as_u64()?).ok()?;
            let members = group["chain"].as_array()?.iter();
            let members = members.map(|it| it.as_str()?.parse().ok()).collect::<Option<_>>()?;
            Some((number, members))
        };
        let groups = told["groups"].as_array().context("kv status: no groups")?;
        groups.iter().map(|it| chain(it).context("kv status: a group without a chain")).collect()
    }

    /// The nodes of a group's chain.
    ///
    /// # Errors
    /// The controller does not answer.
    pub fn chain_of(&self, group: u16) -> Result<Vec<String>> {
        let chains = self.chains()?;
        let chain = chains.get(&group).context("no such group")?;
        Ok(chain.iter().map(|it| format!("s{}", it.octets()[3])).collect())
    }

    fn closed(&mut self, load: &Workload, into: &mut Measured) -> Result<()> {
        let (mut draw, mut begun) = (load.draw(), Begun::new());
        let bytes = value(0, load.value_bytes);
        let mut now = Instant::now();
        let until = now + load.length;
        loop {
            while now < until && self.pipeline.outstanding() < load.outstanding {
                let (ticket, write) = self.submit(&mut draw, &bytes)?;
                begun.insert(ticket, (write, now));
            }
            let mut next = self.pipeline.next(None)?;
            now = Instant::now();
            while let Some((ticket, answer)) = next {
                if let Some((write, at)) = begun.remove(ticket) {
                    note(into, &answer, write, now.saturating_duration_since(at));
                }
                next = self.pipeline.answer();
            }
            if now >= until && self.pipeline.outstanding() == 0 {
                return Ok(());
            }
        }
    }

    fn submit(&mut self, draw: &mut Draw, bytes: &[u8]) -> Result<(Ticket, bool)> {
        let (write, at) = draw.request();
        let key = &self.keys[at];
        let request = if write { Request::put(key, bytes) } else { Request::get(key) };
        Ok((self.pipeline.submit(request)?, write))
    }

    fn open(&mut self, load: &Workload, rate: f64, into: &mut Measured) -> Result<()> {
        let (mut draw, mut begun) = (load.draw(), Begun::new());
        let bytes = value(0, load.value_bytes);
        let (mut pace, until) = (Pace::new(rate), Instant::now() + load.length);
        loop {
            let now = Instant::now();
            while now < until
                && let Some(at) = pace.due(now)
            {
                if self.pipeline.outstanding() >= load.outstanding {
                    into.late += 1;
                    continue;
                }
                let (ticket, write) = self.submit(&mut draw, &bytes)?;
                begun.insert(ticket, (write, at));
            }
            self.pipeline.turn()?;
            let now = Instant::now();
            while let Some((ticket, answer)) = self.pipeline.answer() {
                if let Some((write, at)) = begun.remove(ticket) {
                    note(into, &answer, write, now.saturating_duration_since(at));
                }
            }
            if now >= until && self.pipeline.outstanding() == 0 {
                return Ok(());
            }
            // (At low rates nothing is due for long: the CPU's time is for the switches.)
            std::thread::sleep(pace.next().saturating_duration_since(now).min(LOOK));
        }
    }
}

fn note(into: &mut Measured, answer: &Answer, write: bool, took: Duration) {
    if is_done(answer) { into.answered(write, took) } else { into.failed += 1 }
}

impl Service for Switches {
    fn system(&self) -> System {
        System::Switches
    }

    fn network(&self) -> &Network {
        &self.network
    }

    fn fill(&mut self, keys: usize, value_bytes: usize) -> Result<()> {
        self.keys = (0..keys).map(key).collect::<Result<_>>()?;
        let (bytes, mut next, mut done) = (value(0, value_bytes), 0, 0);
        while done < keys {
            while next < keys && self.pipeline.outstanding() < 128 {
                self.pipeline.submit(Request::put(&self.keys[next], &bytes))?;
                next += 1;
            }
            let Some((_, answer)) = self.pipeline.next(None)? else {
                bail!("a request has no answer")
            };
            ensure!(is_done(&answer), "filling: {answer:?}");
            done += 1;
        }
        Ok(())
    }

    fn run(&mut self, load: &Workload) -> Result<Measured> {
        Measured::timed(&self.network.processes(), || {
            let mut measured = Measured::default();
            match load.rate {
                None => self.closed(load, &mut measured)?,
                Some(rate) => self.open(load, rate, &mut measured)?,
            }
            Ok(measured)
        })
    }

    fn lockers(&self) -> Result<Lockers> {
        let runtime = Arc::new(runtime(&self.network)?);
        let config = self.config.clone();
        let client = runtime.block_on(runtime.spawn(async { AsyncClient::new(config) }))??;
        Ok(Lockers { runtime, all: vec![Locker::Switches(client)] })
    }

    fn fail(&mut self, plan: &Plan, live: &Arc<Live>) -> Result<Recorded> {
        self.fill(plan.locks, 64)?;
        let chains = self.chains()?;
        let member = |key: &Key| {
            let chain = chains.get(&self.config.ring.group_of(key));
            chain.and_then(|chain| chain.get(plan.place)).copied()
        };
        let dies = member(&self.keys[0]).context("a chain is too short")?;
        let led: Vec<bool> = self.keys.iter().map(|key| member(key) == Some(dies)).collect();
        let victim = format!("s{}", dies.octets()[3]);
        let stop = AtomicBool::new(false);
        let began = Instant::now();
        let (keys, pipeline, network) = (&self.keys, &mut self.pipeline, &self.network);
        let (load, events) = std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let mut holders = Holders::new(pipeline, keys, plan, began, live);
                let went = holders.run(&stop);
                went.map(|()| (holders.records, holders.ledger))
            });
            let events = kill_and_restore(network, &victim, plan, began);
            if events.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            (load.join(), events)
        });
        let (records, mut ledger) = load.map_err(|_| anyhow::anyhow!("the load panicked"))??;
        let (killed, restored) = events?;
        for (at, key) in self.keys.iter().enumerate() {
            self.pipeline.submit(Request::get(key))?;
            match self.pipeline.next(None)? {
                Some((_, Ok(Outcome::Done(done)))) => {
                    ledger.end_read(ledger.begin_read(at), done.now.value.as_deref());
                }
                other => bail!("reading lock {at} at the end: {other:?}"),
            }
        }
        let lost = ledger.lost();
        Ok(Recorded { began, killed, restored, victim, led, records, lost })
    }
}

/// A request under way: when it was due, and the lock.
enum Under {
    Write(Duration, usize),
    /// And what must be read at least.
    Read(Duration, usize, u64),
}

/// Holders of locks, who write, and others, who read.
struct Holders<'a> {
    pipeline: &'a mut Pipeline,
    keys: &'a [Key],
    plan: &'a Plan,
    began: Instant,
    live: &'a Live,
    begun: Begun<Under>,
    ledger: Ledger,
    records: Vec<Record>,
}

impl<'a> Holders<'a> {
    fn new(
        pipeline: &'a mut Pipeline,
        keys: &'a [Key],
        plan: &'a Plan,
        began: Instant,
        live: &'a Live,
    ) -> Holders<'a> {
        let records = Vec::with_capacity((plan.rate * plan.end.as_secs_f64()) as usize + 1);
        let (begun, ledger) = (Begun::new(), Ledger::new(keys.len()));
        Holders { pipeline, keys, plan, began, live, begun, ledger, records }
    }

    fn record(&mut self, record: Record) {
        self.live.note(&record);
        self.records.push(record);
    }

    fn begin(&mut self, due: Instant, write: bool, lock: usize) -> Result<()> {
        let at = due.saturating_duration_since(self.began);
        let (request, under) = if write {
            let number = match self.ledger.begin_write(lock, at) {
                Ok(number) => number,
                Err(Busy::InTime) => return Ok(()),
                Err(Busy::Late) => {
                    self.record(Record::none(at, write, lock));
                    return Ok(());
                }
            };
            (Request::put(&self.keys[lock], &value(number, 64)), Under::Write(at, lock))
        } else {
            let least = self.ledger.begin_read(lock);
            (Request::get(&self.keys[lock]), Under::Read(at, lock, least))
        };
        match self.pipeline.submit(request) {
            Ok(ticket) => self.begun.insert(ticket, under),
            Err(netchain_client::Failed::NotBegun(_)) => {
                if write {
                    self.ledger.end_write(lock, false);
                }
                self.record(Record::none(at, write, lock));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn end(&mut self, under: Under, answer: Answer) {
        let now = self.began.elapsed();
        let done = if let Ok(Outcome::Done(done)) = answer { Some(done) } else { None };
        let (at, write, lock) = match under {
            Under::Write(at, lock) => {
                self.ledger.end_write(lock, done.is_some());
                (at, true, lock)
            }
            Under::Read(at, lock, least) => {
                if let Some(done) = &done {
                    self.ledger.end_read(least, done.now.value.as_deref());
                }
                (at, false, lock)
            }
        };
        // (A copy goes only when the first one is late.)
        self.record(match done {
            Some(_) => Record::first_try(at, now, write, lock),
            None => Record::none(at, write, lock),
        });
    }

    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut requests = self.plan.requests(self.began);
        let until = self.began + self.plan.end;
        loop {
            let now = Instant::now();
            if stop.load(Ordering::Relaxed) {
                bail!("stopped");
            }
            while now < until
                && let Some((at, write, lock)) = requests.due(now)
            {
                self.begin(at, write, lock)?;
            }
            self.pipeline.turn()?;
            while let Some((ticket, answer)) = self.pipeline.answer() {
                if let Some(under) = self.begun.remove(ticket) {
                    self.end(under, answer);
                }
            }
            if now >= until && self.pipeline.outstanding() == 0 {
                return Ok(());
            }
            std::thread::sleep(requests.next().saturating_duration_since(now).min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_its_tickets_alone() {
        let mut begun = Begun::new();
        let ticket = |number| Ticket::from_number(number);
        begun.insert(ticket(1), "old");
        begun.insert(ticket(1 + PLACES as u64), "new");
        assert_eq!(begun.remove(ticket(1)), None);
        assert_eq!(begun.remove(ticket(1 + PLACES as u64)), Some("new"));
        assert_eq!(begun.remove(ticket(1 + PLACES as u64)), None);
    }
}
