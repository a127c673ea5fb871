//! Where packets wait until what they depend on is durable: in the switch
//! (`docs/output-commit.md`), or each inside a message of its own.
//!
//! This owns the *loop*, a veth pair of the switch by which copies of frames come in. It outlives
//! the agent, as the ports' programs do.

use crate::config::{CommitMode, Config, WhenFull};
use crate::error::{Error, Result};
use crate::preflight::mtu_of;
use crate::run_dir::RunDirectory;
use crate::start::{FNV_OFFSET, fnv_1a, ifindex};
use dataplane::{AttachMode, Dataplane, Link, Object};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::process::Command;

/// Maps of the loop's copies.
const COPIES: [u32; 5] = [1, 2, 4, 8, 16];

/// Pins of the loop's links.
const PINS: [&str; 2] = ["loop_out", "loop_back"];

/// CPUs that may process packets: their numbers are below it.
fn cpus() -> Result<u32> {
    let path = "/sys/devices/system/cpu/possible";
    let text =
        std::fs::read_to_string(path).map_err(|error| Error::path("read", path.as_ref(), error))?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u32>().ok());
    Ok(last.map_or(1, |last| last + 1))
}

/// With `commit = "auto"` waiting packets get at most one part in so many of the machine's memory.
const MEMORY_PARTS: u64 = 64;

/// The machine's memory in bytes.
fn memory() -> Result<u64> {
    let path = "/proc/meminfo";
    let text =
        std::fs::read_to_string(path).map_err(|error| Error::path("read", path.as_ref(), error))?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split(' ').rev().nth(1));
    Ok(kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1_024)
}

/// Whether packets may wait in a switch of so many CPUs without being asked for.
fn affords(cpus: u32, memory: u64) -> bool {
    u64::from(cpus) * dataplane::WAITING_BYTES <= memory / MEMORY_PARTS
}

/// Where a switch's packets wait, and why there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// [`CommitMode::Wrap`] or [`CommitMode::Batch`].
    pub mode: CommitMode,
    /// The reason, for `stateplane status`.
    pub why: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.mode {
            CommitMode::Wrap => "in messages (\"wrap\")",
            CommitMode::Batch | CommitMode::Auto => "in the switch (\"batch\")",
        };
        write!(f, "packets wait {place}: {}", self.why)
    }
}

/// Settles what `commit = "auto"` is on this machine. The agent's next life finds the same, and
/// takes the program over, unless memory or a fabric port's MTU changed: then it loads the program
/// anew, without its state.
///
/// The program has no say in it. Whether packets of it wait at all, its object tells (`sp_loop`).
pub(crate) fn settle(config: &mut Config) -> Result<Waiting> {
    let mode = config.commit;
    if mode != CommitMode::Auto {
        return Ok(Waiting { mode, why: format!("{} says so", config.file.display()) });
    }
    let (cpus, memory) = (cpus()?, memory()?);
    config.commit = CommitMode::Batch;
    let obstacle = if affords(cpus, memory) {
        batch_words(config).err().map(|error| error.to_string())
    } else {
        Some(format!("{cpus} CPUs need more than 1/{MEMORY_PARTS} of {} MiB", memory >> 20))
    };
    let found = match obstacle {
        None => "commit = \"auto\", and this machine has memory and links for it".to_owned(),
        Some(obstacle) => {
            config.commit = CommitMode::Wrap;
            format!("commit = \"auto\", and {obstacle}")
        }
    };
    Ok(Waiting { mode: config.commit, why: found })
}

/// IPv4, UDP, and a batch's header and digest: bytes of its packet beside records.
const BESIDE_RECORDS: u32 = 20 + 8 + 64 + wire::DIGEST_BYTES as u32;
/// Words of the largest record: any batch has room for one.
const RECORD_WORDS: u32 = (wire::RECORD_HEADER_BYTES / 8 + wire::MOST_RECORD_WORDS) as u32;
/// Words of records that the longest message has.
const BATCH_WORDS: u32 = (wire::MOST_RECORDS_BYTES / 8) as u32;

/// Words of records that a batch may have: its message leaves by each fabric port in one piece.
///
/// # Errors
/// A port takes no batch with the longest record.
pub fn batch_words(config: &Config) -> Result<u32> {
    let mut least = BATCH_WORDS;
    if config.commit == CommitMode::Wrap {
        return Ok(least);
    }
    for (index, port) in config.port.iter().enumerate().filter(|(_, port)| port.fabric) {
        // (An interface that is not there: attaching says so.)
        if let Some(mtu) = mtu_of(&port.interface) {
            least = least.min(words_of(mtu, &port.interface, index, config)?);
        }
    }
    Ok(least)
}

/// The same for one port's interface.
fn words_of(mtu: u32, interface: &str, index: usize, config: &Config) -> Result<u32> {
    let words = mtu.saturating_sub(BESIDE_RECORDS) / 8;
    if words >= RECORD_WORDS {
        return Ok(words.min(BATCH_WORDS));
    }
    let wanted = BESIDE_RECORDS + 8 * RECORD_WORDS;
    config.fault(
        format!("port[{index}].interface"),
        format!(
            "{interface:?} has an MTU of {mtu}, and commit = \"batch\" needs {wanted}: `ip link \
             set {interface} mtu {wanted}` at both ends, or commit = \"wrap\""
        ),
    )
}

/// Before the object is loaded: packets wait in the switch, if the configuration says so, and their
/// batches have at most so many words of records.
pub(crate) fn prepare(
    object: &mut Object,
    config: &Config,
    batch_words: u32,
) -> dataplane::Result<()> {
    match config.commit {
        CommitMode::Wrap => Ok(()),
        CommitMode::Batch | CommitMode::Auto => {
            object.set_constant("sp_commit_hold_ms", config.commit_hold_ms)?;
            object.set_constant("sp_commit_words_max", batch_words)?;
            object
                .set_constant("sp_commit_wraps", u32::from(config.when_full == WhenFull::Wrap))?;
            object.wait_in_switch(cpus().unwrap_or(1)).map(drop)
        }
    }
}

/// Names of the loop's two ends; frames leave by the first and come in by the second.
fn ends(run: &RunDirectory) -> [String; 2] {
    // Interfaces' names have at most 15 characters.
    let hash = fnv_1a(FNV_OFFSET, run.name().as_bytes());
    ["a", "b"].map(|end| format!("sp{:010x}{end}", hash & 0xff_ffff_ffff))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let action = format!("ip {}", arguments.join(" "));
    let done = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|source| Error::System { action: action.clone(), source })?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::Other(format!("{action}: {}", String::from_utf8_lossy(&done.stderr).trim())))
}

fn set_sysctl(path: &str, value: &str) {
    // Without IPv6 in the kernel there is nothing to set.
    if let Err(error) = std::fs::write(path, value) {
        tracing::debug!("{path}: {error}");
    }
}

/// Packets of this program wait, in the switch or in messages.
pub(crate) fn some_wait(dataplane: &Dataplane) -> bool {
    dataplane.program("sp_loop").is_some()
}

/// Packets of this program wait in the switch.
fn is_on(dataplane: &Dataplane, config: &Config) -> bool {
    config.commit != CommitMode::Wrap && some_wait(dataplane)
}

/// Makes the loop again if somebody removed it: without it packets leave only in the frames of
/// those that come after them.
pub(crate) fn keep(dataplane: &Dataplane, config: &Config, run: &RunDirectory) -> Result<()> {
    // (`begin` fills the maps before it attaches. So a link that is there implies filled maps.)
    let is_gone = |(pin, end): (&str, &String)| {
        let attached = Link::open(&run.links().join(pin)).and_then(|link| link.ifindex());
        ifindex(end).is_none() || attached.ok().flatten() != ifindex(end)
    };
    if is_on(dataplane, config) && PINS.into_iter().zip(&ends(run)).any(is_gone) {
        let [out, back] = ends(run);
        tracing::warn!("the loop {out}, {back} of waiting packets is gone: it is made again");
        begin(dataplane, config, run)?;
    }
    Ok(())
}

/// Makes the loop and puts the program on it, if packets of this program wait in the switch. Else a
/// loop that was made for an earlier program is removed.
pub(crate) fn begin(dataplane: &Dataplane, config: &Config, run: &RunDirectory) -> Result<()> {
    if !is_on(dataplane, config) {
        return end(run);
    }
    let [out, back] = ends(run);
    if ifindex(&out).is_none() {
        let queues = cpus()?.to_string();
        ip(&[
            "link",
            "add",
            &out,
            "numtxqueues",
            &queues,
            "numrxqueues",
            &queues,
            "type",
            "veth",
            "peer",
            "name",
            &back,
            "numtxqueues",
            &queues,
            "numrxqueues",
            &queues,
        ])?;
    }
    for end in [&out, &back] {
        set_sysctl(&format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1");
        // A look-up of the way to the store counts as forwarding.
        set_sysctl(&format!("/proc/sys/net/ipv4/conf/{end}/forwarding"), "1");
        ip(&["link", "set", end, "up"])?;
    }
    let missing = |name: &str| Error::Other(format!("there is no interface {name}"));
    let target = ifindex(&out).ok_or_else(|| missing(&out))?;
    let source = ifindex(&back).ok_or_else(|| missing(&back))?;
    for copies in COPIES {
        for place in 0..copies {
            dataplane.write_array(
                &format!("sp_commit_copies{copies}"),
                place,
                &target.to_ne_bytes(),
            )?;
        }
    }
    for (pin, program, index) in [(PINS[0], "sp_pass", target), (PINS[1], "sp_loop", source)] {
        let path = run.links().join(pin);
        match Link::open(&path) {
            Ok(link) if link.ifindex().ok().flatten() == Some(index) => {
                dataplane.replace(program, &link)?
            }
            _ => {
                let _ = std::fs::remove_file(&path);
                dataplane.attach(program, index, AttachMode::Native)?.pin(&path)?;
            }
        }
    }
    Ok(())
}

/// Removes the loop, if there is one.
pub(crate) fn end(run: &RunDirectory) -> Result<()> {
    for pin in PINS {
        let path = run.links().join(pin);
        if path.exists() {
            std::fs::remove_file(&path).map_err(|error| Error::path("unpin", &path, error))?;
        }
    }
    let [out, _] = ends(run);
    if ifindex(&out).is_some() { ip(&["link", "delete", &out]) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn auto_looks_at_memory_and_links() {
        assert!(affords(4, 1 << 30) && !affords(6, 1 << 30) && !affords(1, 0));
        assert!(memory().unwrap() > 64 << 20);
        let text = "name = \"s1\"\nobject = \"nat.o\"\nswitch_id = 1\ncommit = \"auto\"\n\
                    [[port]]\ninterface = \"lo\"\nport = 1\n";
        let mut config = Config::parse(Path::new("s1.toml"), text, &[]).unwrap();
        let waiting = settle(&mut config).unwrap();
        let roomy = affords(cpus().unwrap(), memory().unwrap());
        assert_eq!(config.commit == CommitMode::Batch, roomy, "{:?}", config.commit);
        assert_eq!(waiting.mode, config.commit);
        assert!(waiting.why.starts_with("commit = \"auto\""), "{waiting}");

        let again = settle(&mut config).unwrap();
        assert_eq!(again.why, "s1.toml says so");
    }

    /// Without a word in the file it is "auto".
    #[test]
    fn auto_is_the_default() {
        let text = "name = \"s1\"\nobject = \"nat.o\"\nswitch_id = 1\n\
                    [[port]]\ninterface = \"lo\"\nport = 1\n";
        let config = Config::parse(Path::new("s1.toml"), text, &[]).unwrap();
        assert_eq!(config.commit, CommitMode::Auto);
    }

    #[test]
    fn a_batch_fits_the_narrowest_fabric_port() {
        let text = |commit: &str| {
            format!(
                "name = \"s1\"\nobject = \"nat.o\"\nswitch_id = 1\ncommit = \"{commit}\"\n\
                 protocol_address = \"192.0.2.9\"\n\
                 [[port]]\ninterface = \"lo\"\nport = 1\nfabric = true\n\
                 [[port]]\ninterface = \"nowhere0\"\nport = 2\nfabric = true\n"
            )
        };
        let config = |commit| Config::parse(Path::new("s1.toml"), &text(commit), &[]).unwrap();
        // (The loopback's MTU is 65,536.)
        assert_eq!(batch_words(&config("batch")).unwrap(), BATCH_WORDS);
        assert_eq!(BESIDE_RECORDS + 8 * BATCH_WORDS, 1_500);
        assert_eq!(words_of(1_499, "lo", 0, &config("batch")).unwrap(), BATCH_WORDS - 1);
        let wanted = BESIDE_RECORDS + 8 * RECORD_WORDS;
        let error = words_of(wanted - 1, "lo", 0, &config("batch")).unwrap_err().to_string();
        assert!(error.contains("port[0].interface") && error.contains("mtu 636"), "{error}");
        assert_eq!(words_of(wanted, "lo", 0, &config("batch")).unwrap(), RECORD_WORDS);
    }
}
