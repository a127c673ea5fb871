//! The numbers that a switch's lives have: by the wall clock, and larger than all before.
//!
//! The store refuses what comes from a lower one than it has seen, because it takes it for a dead
//! life's; so a switch that reboots with its clock behind would be refused for as long as it runs.
//! The run directory remembers the last number, but a reboot empties it. `state_directory` of the
//! configuration is where it outlives one.

use crate::config::Config;
use crate::durable;
use crate::error::{Error, Result};
use std::path::Path;
use std::time::Duration;

/// Of 250 ms, as the store counts its epochs.
const TICK_MS: u64 = 250;
const START_OF_2025_MS: u64 = 1_735_689_600_000;
/// No file with a number is longer.
const MOST_BYTES: usize = 32;

pub(crate) fn ms_since_1970() -> u64 {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// By the wall clock: a later life of a switch has a higher number, so that the store can tell an
/// old one's messages.
fn by_the_clock(now_ms: u64) -> u32 {
    (now_ms / TICK_MS).saturating_sub(START_OF_2025_MS / TICK_MS).clamp(1, u64::from(u32::MAX))
        as u32
}

/// A new life's number: by the clock, and higher than `last` and than what the switch's file of the
/// configuration's `state_directory` has, which has it from now on.
pub(crate) fn next(config: &Config, last: u32) -> Result<u32> {
    next_at(config, last, ms_since_1970())
}

fn next_at(config: &Config, last: u32, now_ms: u64) -> Result<u32> {
    let file = config
        .state_directory
        .as_ref()
        .map(|directory| directory.join(format!("{}.incarnation", config.name)));
    let kept = file
        .as_deref()
        .map_or(Ok(0), read)
        .or_else(|error| config.fault("state_directory", error.to_string()))?;
    let (last, by_the_clock) = (last.max(kept), by_the_clock(now_ms));
    if by_the_clock <= last {
        let behind_s = u64::from(last - by_the_clock) * TICK_MS / 1_000;
        tracing::warn!(
            "this machine's clock is {behind_s} s behind the switch's last incarnation: set the \
             clock (NTP)"
        );
    }
    let number = by_the_clock.max(last.saturating_add(1));
    if let Some(file) = &file {
        durable::write(file, format!("{number}\n").as_bytes())
            .or_else(|error| config.fault("state_directory", error.to_string()))?;
    }
    Ok(number)
}

/// The number that is kept; 0: there is none yet, or none that can be read.
fn read(path: &Path) -> Result<u32> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(Error::path("read", path, error)),
    };
    let number = std::str::from_utf8(&text).ok().filter(|text| text.len() <= MOST_BYTES);
    Ok(number.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| {
        tracing::warn!(
            "{}: not a number; the switch's incarnation comes from the clock alone",
            path.display()
        );
        0
    }))
}

/// Nothing is sent in the tick that an incarnation is named after: a life of which no state was
/// left, and which is followed at once by another, had nothing to do with the store then, and the
/// next one's tick is a later one. (A number that is ahead of the clock came from the last life's
/// state, and is not waited for: that takes as long as the clock went back.)
pub(crate) fn rest_of_first_tick(incarnation: u32, now_ms: u64) -> Duration {
    let end_ms = START_OF_2025_MS + (u64::from(incarnation) + 1) * TICK_MS;
    Duration::from_millis(end_ms.saturating_sub(now_ms).min(TICK_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_in_the_tick_that_an_incarnation_is_named_after() {
        let rest = |incarnation, now_ms| {
            rest_of_first_tick(incarnation, START_OF_2025_MS + now_ms).as_millis()
        };
        assert_eq!(
            (rest(4, 1_000), rest(4, 1_249), rest(4, 1_250), rest(4, 9_000)),
            (250, 1, 0, 0)
        );
        assert_eq!(rest(400, 1_000), 250, "ahead of the clock: no longer than a tick");
        // As numbers are given out now.
        let now = by_the_clock(ms_since_1970());
        assert!(rest_of_first_tick(now, ms_since_1970()).as_millis() <= 250);
        assert_eq!(rest_of_first_tick(now, ms_since_1970() + 250).as_millis(), 0);
    }

    #[test]
    fn a_life_after_a_reboot_with_the_clock_behind_has_a_higher_number() {
        let folder = tempfile::tempdir().expect("folder");
        let directory = folder.path().join("a/b");
        let text = format!(
            "name = \"s1\"\nobject = \"x.o\"\nstate_directory = {directory:?}\n[[port]]\ninterface = \"e\"\nport = 1\n"
        );
        let path = folder.path().join("s1.toml");
        let config = Config::parse(&path, &text, &[]).expect("good");
        let at = |last, seconds: u64| {
            next_at(&config, last, START_OF_2025_MS + seconds * 1_000).expect("a number")
        };
        assert_eq!(at(0, 10_000), 40_000, "by the clock");
        assert_eq!(at(0, 2_800), 40_001, "two hours behind, and nothing left in the run directory");
        assert_eq!(at(50_000, 2_800), 50_001, "what the run directory has counts, too");
        assert_eq!(at(0, 20_000), 80_000);
        let file = directory.join("s1.incarnation");
        assert_eq!(std::fs::read_to_string(&file).expect("kept"), "80000\n");
        assert_eq!(std::fs::read_dir(&directory).expect("folder").count(), 1, "nothing else");
        for bad in ["", "rubbish", "99999999999", "1 2"] {
            std::fs::write(&file, bad).expect("written");
            assert_eq!(at(7, 20_000), 80_000, "{bad:?}: the clock alone");
        }
        // A relative one is beside the configuration; one that cannot be made is at fault before
        // anything begins.
        std::fs::write(folder.path().join("file"), "").expect("written");
        let config =
            Config::parse(&path, &text.replace(&format!("{directory:?}"), "\"file\""), &[])
                .expect("good");
        let error = next_at(&config, 0, START_OF_2025_MS).expect_err("no directory").to_string();
        assert!(
            error.contains("s1.toml: line 3: state_directory: ") && error.contains("file"),
            "{error}"
        );
    }
}
