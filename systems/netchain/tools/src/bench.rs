//! `stateplane kv bench`: load for the switches, and what it costs.

use clap::Parser;
use command_line::{outln, print_table};
use netchain_client::{Answer, Calls, Config, Key, Outcome, Pipeline, Request};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "Examples:
  stateplane kv --config kv.toml bench                                 # reads, one at a time
  stateplane kv --config kv.toml bench --outstanding 64 --writes 10
  stateplane kv --config kv.toml bench --rate 20000 --outstanding 512  # open loop

Closed loop: a new request when one is over. Open loop (--rate): requests begin at their times,
whatever the others do, and latency counts from then. Busy CPU time is the whole machine's: of
switches, kernel, this client and whatever else runs.";

#[derive(Parser, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Requests under way at a time, at most 4096.
    #[arg(long, default_value_t = 1)]
    outstanding: usize,
    /// How many of 100 requests write; the others read.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    writes: u32,
    /// Bytes of a value, at most 128.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=128))]
    value_size: u32,
    /// Keys, named bench-0 and on; they stay.
    #[arg(long, default_value_t = 1000)]
    keys: u32,
    /// Length of the run, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Requests a second (open loop); by default as many as are answered (closed loop).
    #[arg(long)]
    rate: Option<f64>,
    /// Seed of the choice of keys and operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What was measured. Times in microseconds, CPU time in seconds.
#[derive(Debug, Serialize)]
struct Measured {
    outstanding: usize,
    writes_percent: u32,
    value_bytes: u32,
    seconds: f64,
    requests: u64,
    per_second: f64,
    per_busy_cpu_second: Option<f64>,
    busy_cpu_seconds: Option<f64>,
    client_user_seconds: f64,
    client_system_seconds: f64,
    outcomes: BTreeMap<&'static str, u64>,
    /// Requests that could not begin in their time (open loop).
    late: u64,
    read_us: Option<Spread>,
    write_us: Option<Spread>,
    calls: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct Spread {
    p50: f64,
    p99: f64,
    p999: f64,
    most: f64,
}

fn spread(nanoseconds: &mut [u64]) -> Option<Spread> {
    nanoseconds.sort_unstable();
    let at = |share: f64| {
        let last = nanoseconds.len().checked_sub(1)?;
        Some(nanoseconds[(last as f64 * share).round() as usize] as f64 / 1000.0)
    };
    Some(Spread { p50: at(0.5)?, p99: at(0.99)?, p999: at(0.999)?, most: at(1.0)? })
}

/// The machine's busy time so far, in seconds: all but idle and waiting for disks.
fn busy() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let times = text.lines().next()?.split_whitespace().skip(1).take(8);
    let times: Vec<f64> = times.map_while(|it| it.parse().ok()).collect();
    (times.len() == 8).then(|| (times.iter().sum::<f64>() - times[3] - times[4]) / 100.0)
}

/// This process's time in user and system mode, in seconds.
fn own() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name stands in parentheses and may have blanks (proc_pid_stat(5)).
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |at: usize| rest.split_whitespace().nth(at)?.parse::<f64>().ok();
    (ticks(11).unwrap_or(0.0) / 100.0, ticks(12).unwrap_or(0.0) / 100.0)
}

fn word(answer: &Answer) -> &'static str {
    match answer {
        Ok(Outcome::Done(_)) => "done",
        Ok(Outcome::Listed(_)) => "listed",
        Ok(Outcome::Refused(_)) => "refused",
        Ok(Outcome::Unknown) => "unknown",
        Ok(Outcome::Full) => "full",
        Ok(Outcome::NoChain) => "no_chain",
        Ok(Outcome::Lost) => "lost",
        Ok(Outcome::TooLong(_)) => "too_long",
        Err(_) => "failed",
    }
}

/// A run.
struct Load {
    pipeline: Pipeline,
    rng: SmallRng,
    keys: Vec<Key>,
    value: Vec<u8>,
    writes: u32,
    /// Whether it writes, and when it should have begun.
    begun: HashMap<netchain_client::Ticket, (bool, Instant)>,
    outcomes: BTreeMap<&'static str, u64>,
    nanoseconds: [Vec<u64>; 2],
}

impl Load {
    fn begin(&mut self, at: Instant) -> Result<(), String> {
        let key = &self.keys[self.rng.random_range(0..self.keys.len())];
        let writes = self.rng.random_range(0..100) < self.writes;
        let request = if writes { Request::put(key, &self.value) } else { Request::get(key) };
        let ticket = self.pipeline.submit(request).map_err(|error| error.to_string())?;
        self.begun.insert(ticket, (writes, at));
        Ok(())
    }

    /// Takes answers: the first one within `wait`, and all that came with it.
    fn take(&mut self, wait: Option<Duration>) -> Result<(), String> {
        let mut next = self.pipeline.next(wait).map_err(|error| error.to_string())?;
        let now = Instant::now();
        while let Some((ticket, answer)) = next {
            *self.outcomes.entry(word(&answer)).or_default() += 1;
            if let Some((writes, at)) = self.begun.remove(&ticket) {
                let took = now.saturating_duration_since(at).as_nanos() as u64;
                self.nanoseconds[usize::from(writes)].push(took);
            }
            next = self.pipeline.answer();
        }
        Ok(())
    }

    fn closed(&mut self, until: Instant, outstanding: usize) -> Result<(), String> {
        while Instant::now() < until {
            while self.pipeline.outstanding() < outstanding {
                self.begin(Instant::now())?;
            }
            self.take(None)?;
        }
        Ok(())
    }

    /// Requests that could not begin in their time, as too many were under way.
    fn open(&mut self, until: Instant, outstanding: usize, rate: f64) -> Result<u64, String> {
        let (began, mut count, mut late) = (Instant::now(), 0u64, 0);
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(late);
            }
            let due = (now.duration_since(began).as_secs_f64() * rate) as u64;
            while count <= due {
                if self.pipeline.outstanding() >= outstanding {
                    late += due + 1 - count;
                    count = due + 1;
                    break;
                }
                self.begin(began + Duration::from_secs_f64(count as f64 / rate))?;
                count += 1;
            }
            let next = began + Duration::from_secs_f64(count as f64 / rate);
            let wait = next.min(until).saturating_duration_since(Instant::now());
            // (The kernel waits for whole milliseconds: shorter pauses are slept.)
            self.pipeline.turn().map_err(|error| error.to_string())?;
            self.take(Some(Duration::ZERO))?;
            std::thread::sleep(wait.min(Duration::from_micros(200)));
        }
    }
}

/// Runs the load and prints what it measured.
///
/// # Errors
/// What keeps it from running, in words.
pub fn run(args: &Args, config: Config, json: bool) -> Result<(), String> {
    if args.outstanding == 0 || args.outstanding > netchain_client::engine::OUTSTANDING_MAX {
        return Err("--outstanding: write 1 to 4096".into());
    }
    if args.keys == 0 || args.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
        return Err("--keys and --rate: write numbers above 0".into());
    }
    let keys = (0..args.keys).map(|at| Key::from_name(&format!("bench-{at}")));
    let keys: Vec<Key> = keys.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let mut load = Load {
        pipeline: Pipeline::new(config).map_err(|error| error.to_string())?,
        rng: SmallRng::seed_from_u64(args.seed),
        keys,
        value: vec![b'v'; args.value_size as usize],
        writes: args.writes,
        begun: HashMap::new(),
        outcomes: BTreeMap::new(),
        nanoseconds: [vec![], vec![]],
    };
    fill(&mut load)?;
    let (busy_before, own_before, calls_before) = (busy(), own(), load.pipeline.calls());
    let began = Instant::now();
    let length = Duration::try_from_secs_f64(args.seconds).map_err(|error| error.to_string())?;
    let until = began + length;
    let late = match args.rate {
        None => load.closed(until, args.outstanding).map(|()| 0),
        Some(rate) => load.open(until, args.outstanding, rate),
    }?;
    while load.pipeline.outstanding() > 0 {
        load.take(None)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let (busy_after, own_after) = (busy(), own());
    let requests = load.nanoseconds.iter().map(|it| it.len() as u64).sum();
    let busy_cpu_seconds = busy_after.zip(busy_before).map(|(after, before)| after - before);
    let [reads, writes] = &mut load.nanoseconds;
    let measured = Measured {
        outstanding: args.outstanding,
        writes_percent: args.writes,
        value_bytes: args.value_size,
        seconds,
        requests,
        per_second: requests as f64 / seconds,
        per_busy_cpu_second: busy_cpu_seconds.filter(|it| *it > 0.0).map(|it| requests as f64 / it),
        busy_cpu_seconds,
        client_user_seconds: own_after.0 - own_before.0,
        client_system_seconds: own_after.1 - own_before.1,
        outcomes: load.outcomes,
        late,
        read_us: spread(reads),
        write_us: spread(writes),
        calls: calls(load.pipeline.calls(), calls_before),
    };
    print(&measured, json)
}

/// Writes all keys once, so that reads find values and the chains are known.
fn fill(load: &mut Load) -> Result<(), String> {
    for at in 0..load.keys.len() {
        while load.pipeline.outstanding() >= 64 {
            load.take(None)?;
        }
        let request = Request::put(&load.keys[at], &load.value);
        load.pipeline.submit(request).map_err(|error| error.to_string())?;
    }
    while load.pipeline.outstanding() > 0 {
        load.take(None)?;
    }
    let (done, all) = (load.outcomes.remove("done"), load.keys.len() as u64);
    if done != Some(all) {
        return Err(format!(
            "of {all} keys, {} were written: {:?}",
            done.unwrap_or(0),
            load.outcomes
        ));
    }
    load.outcomes.clear();
    Ok(())
}

fn calls(after: Calls, before: Calls) -> BTreeMap<&'static str, u64> {
    BTreeMap::from([
        ("send", after.sends - before.sends),
        ("sent_messages", after.sent - before.sent),
        ("receive", after.receives - before.receives),
        ("received_messages", after.received - before.received),
        ("set_timeout", after.timeouts - before.timeouts),
    ])
}

fn print(measured: &Measured, json: bool) -> Result<(), String> {
    if json {
        outln!("{}", command_line::json(measured));
        return Ok(());
    }
    let Measured { requests, seconds, per_second, .. } = measured;
    outln!("{requests} requests in {seconds:.2} s: {per_second:.0} a second");
    if let (Some(rate), Some(busy)) = (measured.per_busy_cpu_second, measured.busy_cpu_seconds) {
        outln!("{rate:.0} for each busy CPU second of the whole machine ({busy:.2} s)");
    }
    let (user, system) = (measured.client_user_seconds, measured.client_system_seconds);
    let each = |seconds: f64| seconds * 1e6 / (*requests).max(1) as f64;
    outln!("client: {:.2} µs user, {:.2} µs system for each request", each(user), each(system));
    let rows = [("read", &measured.read_us), ("write", &measured.write_us)];
    let rows = rows.into_iter().filter_map(|(word, spread)| {
        let Spread { p50, p99, p999, most } = spread.as_ref()?;
        let cells = [p50, p99, p999, most].map(|us| format!("{us:.1}"));
        Some([vec![word.to_owned()], cells.to_vec()].concat())
    });
    print_table(&["µs", "p50", "p99", "p99.9", "most"], rows.collect());
    let listed = |all: &BTreeMap<&str, u64>| {
        all.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
    };
    outln!("outcomes: {}", listed(&measured.outcomes));
    outln!("system calls: {}", listed(&measured.calls));
    if measured.late > 0 {
        outln!("{} requests could not begin in their time", measured.late);
    }
    Ok(())
}
