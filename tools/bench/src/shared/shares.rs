//! A controller that divides users' limits among switches which limit alone: it pulls what came to
//! each, and tells each its part (the baseline of SwiSh §9.1's rate limiter). Agents and controller
//! talk by TCP.

use crate::shared::SWITCHES;
use crate::shared::control::{PULL, Wire, connected, end};
use crate::shared::network::Network;
use anyhow::{Context, Result, ensure};
use dataplane::{ActionSpec, Dataplane, EntrySpec, KeySpec, Write};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Of a limit, what a switch has at the least: a user's packets may begin to come there before the
/// controller looks again.
const SPARE: f64 = 0.02;
/// What came is remembered for so long.
const MEMORY: Duration = Duration::from_millis(100);

/// A user's limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Bytes a millisecond.
    pub rate: u32,
    /// Bytes.
    pub burst: u32,
}

/// Gives a user its limit at a switch. Its number is its place behind 10.66.0.1.
///
/// # Errors
/// The program has no such table.
pub fn set(dataplane: &Dataplane, user: u32, limit: Limit) -> Result<()> {
    let table = dataplane.table("LimiterIngress.limits")?;
    let number = |name: &str, value: u32| (Some(name.to_owned()), value.to_string());
    let entry = table.resolve(&EntrySpec {
        keys: vec![KeySpec { name: None, text: format!("10.66.0.{}/32", user + 1) }],
        priority: None,
        action: ActionSpec {
            name: "limit".to_owned(),
            arguments: vec![
                number("user", user),
                number("rate", limit.rate),
                number("burst", limit.burst),
            ],
        },
    })?;
    Ok(table.write(&entry, Write::Set)?)
}

/// A switch's agent: says what came, and does what it is told, until it is over.
fn obey(dataplane: &Dataplane, mut wire: Wire, users: u32) -> Result<()> {
    let offered = dataplane.register("offered")?.clone();
    while let Some(word) = wire.read_word()? {
        if word == PULL {
            let read = |user| Ok(dataplane.read_register(&offered, user)? as u32);
            let words: Vec<u32> = (0..users).map(read).collect::<Result<_>>()?;
            wire.write_words(&words)?;
        } else if let Some(words) = wire.read_words(word)? {
            for (user, [rate, burst]) in (0..).zip(words.as_chunks().0) {
                set(dataplane, user, Limit { rate: *rate, burst: *burst })?;
            }
        }
    }
    Ok(())
}

/// Of what came lately, what is forgotten at a look: a look alone sees a dozen packets, whose
/// number is chance.
fn forgotten(period: Duration) -> f64 {
    (period.as_secs_f64() / MEMORY.as_secs_f64()).min(1.0)
}

/// Parts of a limit, by what came to each switch lately; together all of it. `None`: nothing came.
fn parts(came: [f64; SWITCHES]) -> Option<[f64; SWITCHES]> {
    let all: f64 = came.iter().sum();
    if all <= 0.0 {
        return None;
    }
    let parts = came.map(|bytes| (bytes / all).max(SPARE));
    let sum: f64 = parts.iter().sum();
    Some(parts.map(|part| part / sum))
}

/// Looks, divides and tells, again and again.
fn divide(wires: &mut [Wire], limits: &[Limit], period: Duration, over: &AtomicBool) -> Result<()> {
    let mut before = vec![vec![0u32; limits.len()]; SWITCHES];
    let mut lately = vec![[0.0; SWITCHES]; limits.len()];
    let mut next = Instant::now();
    while !over.load(Ordering::Acquire) {
        for wire in wires.iter_mut() {
            wire.stream.write_all(&PULL.to_le_bytes())?;
        }
        let mut now = vec![];
        for wire in wires.iter_mut() {
            let Some(count) = wire.read_word()? else { return Ok(()) };
            let Some(words) = wire.read_words(count)? else { return Ok(()) };
            ensure!(words.len() == limits.len(), "an agent told of {} users", words.len());
            now.push(words);
        }
        let mut orders = vec![vec![]; SWITCHES];
        for (user, limit) in limits.iter().enumerate() {
            for (at, lately) in lately[user].iter_mut().enumerate() {
                let came = now[at][user].wrapping_sub(before[at][user]);
                *lately += f64::from(came) - *lately * forgotten(period);
            }
            let parts = parts(lately[user]).unwrap_or([1.0 / SWITCHES as f64; SWITCHES]);
            for (order, part) in orders.iter_mut().zip(parts) {
                let of = |all: u32| (f64::from(all) * part).round() as u32;
                order.extend([of(limit.rate), of(limit.burst).max(64)]);
            }
        }
        for (wire, order) in wires.iter_mut().zip(&orders) {
            wire.write_words(order)?;
        }
        before = now;
        next = (next + period).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Runs controller and agents while `meanwhile` works; what that returns.
///
/// # Errors
/// Something cannot be connected, or `meanwhile` fails.
pub fn beside<T>(
    network: &Network,
    limits: &[Limit],
    period: Duration,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let over = AtomicBool::new(false);
    let (mut agents, mut wires) = (vec![], vec![]);
    let users = u32::try_from(limits.len())?;
    for switch in 0..SWITCHES {
        let dataplane = network.dataplane(switch)?;
        for (user, limit) in (0..).zip(limits) {
            let quarter = |all: u32| all / SWITCHES as u32;
            set(&dataplane, user, Limit { rate: quarter(limit.rate), burst: quarter(limit.burst) })
                .context("the first limits")?;
        }
        let (agent, controller) = connected(network, switch, &over)?;
        agents.push((dataplane, agent));
        wires.push(controller);
    }
    thread::scope(|scope| {
        let over = &over;
        let mut threads = vec![scope.spawn(move || divide(&mut wires, limits, period, over))];
        for (dataplane, wire) in agents {
            threads.push(scope.spawn(move || obey(&dataplane, wire, users)));
        }
        end(over, threads, meanwhile())
    })
}

#[cfg(test)]
mod tests {
    use super::{SPARE, parts};

    #[test]
    fn a_part_is_as_large_as_the_traffic() {
        let is = |came: [f64; 4], must: [f64; 4]| {
            let parts = parts(came).expect("something came");
            for (part, must) in parts.into_iter().zip(must) {
                assert!((part - must).abs() < 1e-9, "{part} for {must}");
            }
        };
        is([1.0; 4], [0.25; 4]);
        let with_spare = 1.0 + 2.0 * SPARE;
        is([90.0, 10.0, 0.0, 0.0], [0.9, 0.1, SPARE, SPARE].map(|part| part / with_spare));
        assert_eq!(parts([0.0; 4]), None);
    }
}
