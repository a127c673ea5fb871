//! Figure 11: transactions that take ten locks, over contention.

use super::{GROUPS, axes, site};
use crate::experiments::{Context, Experiment, Page};
use crate::kv::cpu::Cpu;
use crate::kv::lockers::{Locker, Lockers};
use crate::kv::workload::SEED;
use crate::kv::{Service, System, up};
use crate::results::{Figure, Outcome, Row};
use crate::statistics::summary;
use anyhow::{Result, ensure};
use plot::Line;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "kv-locks",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "NetChain Figure 11",
        title: "transactions of ten locks over contention",
        quick: "1 min",
        full: "4 min",
        shows: "transactions a second that take ten locks, with 1 and 100 clients and contention \
                0.001 to 1, beside etcd and ZooKeeper",
        paper: "\
            NetChain §8.5: orders of magnitude more transactions than ZooKeeper. One client's line \
            is flat; with 100 clients there are more at low contention, and slightly fewer than \
            one client's at contention 1.",
        method: "\
            A transaction takes one of the hot locks (as many as the inverse of the contention \
            index) and nine of 20,000 others, in the order of their names, then frees all ten \
            (two-phase locking). A lock that is taken is asked for again at once. A lock is a key \
            that is there: insert and delete (switches), a transaction and delete (etcd), an \
            ephemeral node and delete (ZooKeeper). Clients are tasks on one thread, and share \
            their service's connections. The paper's ZooKeeper has Curator's locks.",
    },
};

/// Locks that are not hot.
const COLD: usize = 20_000;
/// Of a transaction.
const LOCKS: usize = 10;
/// A lock is held by somebody else no longer than this.
const STUCK: Duration = Duration::from_secs(20);
/// Index, and hot locks.
const CONTENTION: [(f64, usize); 4] = [(0.001, 1000), (0.01, 100), (0.1, 10), (1.0, 1)];

/// Names of a transaction's locks, in order: nobody waits for each other.
fn draw(rng: &mut SmallRng, hot: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::from([format!("hot-{}", rng.random_range(0..hot))]);
    while names.len() < LOCKS {
        names.insert(format!("cold-{}", rng.random_range(0..COLD)));
    }
    names
}

/// A client: transactions until the time is over. How many, and how often a lock was taken.
async fn client(
    locker: Locker,
    number: u64,
    hot: usize,
    until: Instant,
    refused: Arc<AtomicU64>,
) -> Result<u64> {
    let (mut rng, mut done) = (SmallRng::seed_from_u64(SEED + number), 0);
    let owner = number.to_be_bytes();
    while Instant::now() < until {
        let names = draw(&mut rng, hot);
        for name in &names {
            let times = locker.take_at_last(name, &owner, STUCK).await?;
            refused.fetch_add(times, Ordering::Relaxed);
        }
        for name in &names {
            locker.free(name).await?;
        }
        done += 1;
    }
    Ok(done)
}

/// What clients came to.
struct Point {
    contention: f64,
    clients: usize,
    per_second: f64,
    per_busy_second: f64,
    refused: u64,
}

fn measure(
    lockers: &Lockers,
    (contention, hot): (f64, usize),
    clients: usize,
    length: Duration,
) -> Result<Point> {
    ensure!(!lab::interrupt::requested(), "interrupted");
    let refused = Arc::new(AtomicU64::new(0));
    let (began, before) = (Instant::now(), Cpu::now(&[])?);
    let until = began + length;
    let tasks: Vec<_> = (0..clients)
        .map(|number| {
            let locker = lockers.all[number % lockers.all.len()].clone();
            let work = client(locker, number as u64, hot, until, Arc::clone(&refused));
            lockers.runtime.spawn(work)
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += lockers.runtime.block_on(task)??;
    }
    let busy = Cpu::now(&[])?.since(before).busy;
    let done = done as f64;
    Ok(Point {
        contention,
        clients,
        per_second: done / began.elapsed().as_secs_f64(),
        per_busy_second: done / busy.max(1e-9),
        refused: refused.load(Ordering::Relaxed),
    })
}

fn of_system(context: &Context, service: &mut dyn Service) -> Result<Vec<Point>> {
    let lockers = service.lockers()?;
    let length = Duration::from_secs_f64(context.pick(1.0, 4.0));
    let mut points = vec![];
    for clients in [1, 100] {
        for contention in CONTENTION {
            points.push(measure(&lockers, contention, clients, length)?);
        }
    }
    Ok(points)
}

fn run(context: &Context) -> Result<Outcome> {
    let mut all: Vec<(System, Vec<Point>)> = vec![];
    for system in System::ALL {
        context.say(&format!("{} comes up", system.name()));
        let mut service = up(&site(context), system, GROUPS)?;
        all.push((system, of_system(context, service.as_mut())?));
    }
    let axes = axes(
        "Transactions of ten locks over contention",
        "contention index",
        "transactions a second",
        true,
    );
    let line = |(system, points): &(System, Vec<Point>), clients: usize| {
        let of = points.iter().filter(|it| it.clients == clients);
        let name =
            format!("{}, {clients} client{}", system.name(), if clients > 1 { "s" } else { "" });
        Line::new(name, of.map(|it| (it.contention, it.per_second.max(0.1))).collect())
    };
    let lines: Vec<Line> =
        all.iter().flat_map(|it| [1, 100].map(|clients| line(it, clients))).collect();
    Ok(Outcome {
        rows: rows(&all),
        notes: vec![],
        figures: vec![Figure { name: "kv-locks".into(), svg: plot::lines(&axes, &lines)? }],
        data: json!(all.iter().map(describe).collect::<Vec<_>>()),
    })
}

fn describe((system, points): &(System, Vec<Point>)) -> Value {
    let of = |it: &Point| {
        json!({
            "contention": it.contention, "clients": it.clients, "per_second": it.per_second,
            "per_busy_cpu_s": it.per_busy_second, "taken_already": it.refused,
        })
    };
    json!({ "system": system.name(), "points": points.iter().map(of).collect::<Vec<_>>() })
}

fn rows(all: &[(System, Vec<Point>)]) -> Vec<Row> {
    let Some((_, switches)) = all.iter().find(|(system, _)| *system == System::Switches) else {
        return vec![];
    };
    let row = |it: &Point| {
        let value = summary(&[it.per_second]);
        let clients =
            if it.clients == 1 { "1 client".into() } else { format!("{} clients", it.clients) };
        let what = format!("{clients}, contention {}: transactions a second", it.contention);
        let mut row = Row::value(what, "orders of magnitude more", value, 0, "");
        for (system, points) in all.iter().filter(|(system, _)| *system != System::Switches) {
            let same =
                |other: &&Point| other.clients == it.clients && other.contention == it.contention;
            if let Some(other) = points.iter().find(same).filter(|it| it.per_second > 0.0) {
                row.measured +=
                    &format!("; {:.0} × {}", it.per_second / other.per_second, system.name());
            }
        }
        row
    };
    switches.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_has_ten_locks_in_order() {
        let names = draw(&mut SmallRng::seed_from_u64(7), 1);
        assert_eq!(names.len(), LOCKS);
        assert_eq!(names.iter().filter(|name| name.starts_with("hot-")).count(), 1);
        let longest = format!("cold-{COLD}");
        assert!(longest.len() <= 16, "a key's bytes");
    }
}
