//! `stateplane kv`: asks the switches for keys.

use crate::cluster;
use crate::founding::{self, FoundArgs, RingArgs};
use crate::text::valued;
use crate::{bench, inspect, keys, listing, lock, sim, verify};
use clap::{Parser, Subcommand};
use command_line::outln;
use netchain_client::{Client, Config, Done, Key, Outcome, Shown};
use serde_json::json;
use std::path::PathBuf;

/// Exit codes, beside 0 (done).
const REFUSED: u8 = 1;
const FAILED: u8 = 2;
const UNKNOWN: u8 = 3;

const EXAMPLES: &str = "Examples:
  stateplane kv found 10.9.0.1=a 10.9.0.2=b 10.9.0.3=c > cluster.toml
  stateplane kv ring cluster.toml
  stateplane kv --config kv.toml put greeting hello
  stateplane kv --config kv.toml get greeting
  stateplane kv --config kv.toml cas greeting 281474976710657 'hello again'
  stateplane kv --config kv.toml add visits 1
  stateplane kv --config kv.toml delete greeting
  stateplane kv --config kv.toml list lock/
  stateplane kv --config kv.toml inspect greeting
  stateplane kv --config kv.toml export keys.jsonl
  stateplane kv --config kv.toml import keys.jsonl
  stateplane kv --config kv.toml lock backup -- pg_dump -f /backup/db.sql shop
  stateplane kv --config kv.toml bench --outstanding 64 --writes 10
  stateplane kv sim --seconds 60
  stateplane kv controller --config controller.toml
  stateplane kv status --groups --address 10.2.1.10:5411 --secrets fabric.secrets
  stateplane kv verify --address 10.2.1.10:5411 --secrets fabric.secrets
  stateplane kv drain 10.9.0.3 --address 10.2.1.10:5411 --secrets fabric.secrets

kv.toml names the cluster's founding file, which is the same for all clients and switches:
  cluster = \"cluster.toml\"
  identity = \"client.key\" # from `kv key issue`; without it, only switches for everybody answer
  deadline_ms = 1000     # after so long the outcome is unknown

With --json a value that is no text is value_hex, and number is that of eight bytes.

Exit codes: 0 done, 1 refused (the condition does not hold; of get: no value), 2 it could not be
asked, or no switch serves the key, 3 unknown: it may have happened.";

/// Read and write keys that switches serve
#[derive(Parser, Debug)]
#[command(name = "kv", after_help = EXAMPLES)]
pub struct Args {
    /// The client's configuration.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The client's key, as `kv key issue` gave it; by default the one that the configuration
    /// names.
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand, Debug)]
enum Word {
    /// Print a founding file for a new cluster
    Found(FoundArgs),
    /// Print how a founding file spreads keys, chains and recovery over the switches
    Ring(RingArgs),
    /// Issue, rotate, revoke and list clients' keys
    Key(keys::Args),
    /// Run the cluster's controller, or check its configuration
    Controller(cluster::ControllerArgs),
    /// Show the cluster as its controller has it: switches, groups, chains
    Status(cluster::StatusArgs),
    /// Compare what the members of each chain hold
    Verify(verify::VerifyArgs),
    /// Have a switch leave its chains, as soon as others have its keys
    Drain(cluster::DrainArgs),
    /// Begin a lost group anew, empty
    Refound(cluster::RefoundArgs),
    /// Free the slots of deleted keys
    Collect(cluster::CollectArgs),
    /// Have chains move back to switches that are there again
    Rebalance(cluster::RebalanceArgs),
    /// Print the key's value
    Get {
        /// The key: at most 16 bytes.
        key: String,
    },
    /// Write a value
    Put {
        /// The key: at most 16 bytes.
        key: String,
        /// The value: at most 128 bytes.
        value: String,
    },
    /// Write a value if the key has none
    Insert {
        /// The key: at most 16 bytes.
        key: String,
        /// The value: at most 128 bytes.
        value: String,
    },
    /// Write a value if the key has the given version
    Cas {
        /// The key: at most 16 bytes.
        key: String,
        /// The version, as `get --json` prints it; 0: the key was never written, or was deleted and
        /// collected.
        version: u64,
        /// The value: at most 128 bytes.
        value: String,
    },
    /// Add to the number in the value's first eight bytes
    Add {
        /// The key: at most 16 bytes.
        key: String,
        /// The number to add, modulo 2^64; it may be negative.
        #[arg(allow_negative_numbers = true, value_parser = delta)]
        delta: u64,
    },
    /// Print the keys that begin with a prefix
    List(listing::ListArgs),
    /// Show where a key is, and what each switch says of its group
    Inspect(inspect::Args),
    /// Write keys with their values to a file
    Export(listing::ExportArgs),
    /// Write the keys from a file that `kv export` wrote
    Import(listing::ImportArgs),
    /// Run a command while a lock is held
    Lock(lock::Args),
    /// Load the switches, and print rates, latencies and CPU time
    Bench(bench::Args),
    /// Simulate switches, clients and controller on a faulty network, and check what must hold
    Sim(sim::Args),
    /// Remove the value
    Delete {
        /// The key: at most 16 bytes.
        key: String,
        /// Remove the value only if the key has this version; 0: in any case.
        #[arg(long, default_value_t = 0)]
        version: u64,
    },
}

/// A number of 64 bits, with a sign or without.
fn delta(text: &str) -> Result<u64, String> {
    let signed = || text.parse::<i64>().map(i64::cast_unsigned);
    text.parse().or_else(|_| signed()).map_err(|error| error.to_string())
}

/// Runs the command; returns its exit code.
pub fn run(args: Args) -> u8 {
    let done = match &args.word {
        Word::Found(words) => founding::found(words).map(|()| 0),
        Word::Ring(words) => founding::ring(words, args.json).map(|()| 0),
        Word::Key(words) => keys::run(words, args.json).map(|()| 0),
        Word::List(words) => {
            config(&args).and_then(|config| listing::list(words, config, args.json))
        }
        Word::Inspect(words) => {
            config(&args).and_then(|config| inspect::inspect(words, config, args.json))
        }
        Word::Export(words) => config(&args).and_then(|config| listing::export(words, config)),
        Word::Import(words) => {
            config(&args).and_then(|config| listing::import(words, config, args.json))
        }
        Word::Lock(words) => config(&args).and_then(|config| lock::run(words, config)),
        Word::Bench(words) => {
            config(&args).and_then(|config| bench::run(words, config, args.json)).map(|()| 0)
        }
        Word::Sim(words) => sim::run(words),
        Word::Controller(words) => cluster::controller(words).map_err(|error| error.to_string()),
        Word::Status(words) => cluster::status(words, args.json).map_err(|error| error.to_string()),
        Word::Verify(words) => verify::verify(words, args.json).map_err(|error| error.to_string()),
        Word::Drain(words) => cluster::drain(words).map_err(|error| error.to_string()),
        Word::Refound(words) => cluster::refound(words).map_err(|error| error.to_string()),
        Word::Collect(words) => cluster::collect(words).map_err(|error| error.to_string()),
        Word::Rebalance(words) => cluster::rebalance(words).map_err(|error| error.to_string()),
        _ => ask(&args)
            .map(|(outcome, has_key)| show(&args, &outcome, has_key))
            .map_err(|error| error.to_string()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        FAILED
    })
}

/// The client's configuration.
fn config(args: &Args) -> Result<Config, String> {
    let config = args.config.as_ref().ok_or("write --config FILE, the client's configuration")?;
    let mut config = Config::read(config)?;
    config.identity = args.identity.clone().or(config.identity);
    Ok(config)
}

/// The outcome, and whether the client has a key.
fn ask(args: &Args) -> Result<(Outcome, bool), Box<dyn std::error::Error>> {
    let config = config(args)?;
    let has_key = config.identity.is_some();
    let mut client = Client::new(config)?;
    let named = |key: &str| Key::from_name(key);
    let outcome = match &args.word {
        Word::Get { key } => client.get(&named(key)?)?,
        Word::Put { key, value } => client.put(&named(key)?, value.as_bytes())?,
        Word::Insert { key, value } => client.insert(&named(key)?, value.as_bytes())?,
        Word::Cas { key, version, value } => {
            client.compare_and_set(&named(key)?, *version, value.as_bytes())?
        }
        Word::Add { key, delta } => client.add(&named(key)?, *delta)?,
        Word::Delete { key, version } => client.delete(&named(key)?, *version)?,
        Word::Found(_)
        | Word::Ring(_)
        | Word::Key(_)
        | Word::List(_)
        | Word::Export(_)
        | Word::Inspect(_)
        | Word::Import(_)
        | Word::Lock(_)
        | Word::Bench(_)
        | Word::Sim(_)
        | Word::Controller(_)
        | Word::Status(_)
        | Word::Verify(_)
        | Word::Drain(_)
        | Word::Refound(_)
        | Word::Collect(_)
        | Word::Rebalance(_) => return Err("no request".into()),
    };
    Ok((outcome, has_key))
}

/// Why nobody may have answered, beside the network: switches say nothing to whom they do not know.
fn unheard(has_key: bool) -> &'static str {
    if has_key {
        "do they know the client's key (`stateplane kv key list`: revoked, or out of date)?"
    } else {
        "do they want a key? Name the client's with --identity FILE (`stateplane kv key issue` \
         makes one)"
    }
}

/// The value for people: text, or a number after `add`, or hexadecimal digits.
fn printed(args: &Args, value: &[u8]) -> String {
    if let (Word::Add { .. }, Some(number)) = (&args.word, value.first_chunk()) {
        return u64::from_be_bytes(*number).to_string();
    }
    valued(value).1
}

fn show(args: &Args, outcome: &Outcome, has_key: bool) -> u8 {
    let (word, shown, code) = match outcome {
        Outcome::Done(Done { now, .. }) => {
            let missing = matches!(args.word, Word::Get { .. }) && now.value.is_none();
            ("done", Some(now), if missing { REFUSED } else { 0 })
        }
        Outcome::Listed(_) => ("listed", None, 0),
        Outcome::Refused(refused) => ("refused", Some(&refused.now), REFUSED),
        Outcome::Unknown => ("unknown", None, UNKNOWN),
        Outcome::Full => ("full", None, FAILED),
        Outcome::NoChain => ("no_chain", None, FAILED),
        Outcome::Lost => ("lost", None, FAILED),
        Outcome::TooLong(_) => ("too_long", None, FAILED),
    };
    let value = shown.and_then(|shown| shown.value.as_deref()).map(|value| printed(args, value));
    let (own, moved) = match outcome {
        Outcome::Done(done) => (done.own, done.own.is_some_and(|own| own != done.now.version)),
        Outcome::Refused(refused) => (None, refused.moved),
        _ => (None, false),
    };
    if args.json {
        let version = shown.map(|shown| shown.version);
        let mut told = json!({
            "outcome": word, "own": own, "version": version, "value": null, "moved": moved,
        });
        if let Some(value) = shown.and_then(|shown| shown.value.as_deref()) {
            let (field, text) = valued(value);
            told[field] = text.into();
            if let Ok(number) = value.try_into() {
                told["number"] = u64::from_be_bytes(number).into();
            }
        }
        outln!("{told}");
        return code;
    }
    match (outcome, shown) {
        (Outcome::Unknown, _) => {
            eprintln!("unknown: no answer in time; it may have happened, or may still happen");
            eprintln!("If no switch ever answers: {}", unheard(has_key));
        }
        (Outcome::Full, _) => eprintln!("error: the switches have no slot for another key"),
        (Outcome::NoChain, _) => {
            let why = "no switch answers for the key: do they run, is there a route, and";
            eprintln!("error: {why} {}", unheard(has_key));
        }
        (Outcome::Lost, _) => {
            let why = "all switches of the key's group were lost, and its keys with them";
            eprintln!("error: {why}: `stateplane kv refound GROUP` begins the group anew, empty");
        }
        (Outcome::TooLong(bytes), _) => eprintln!("error: {bytes} bytes; a value has at most 128"),
        (_, Some(shown)) => report(args, shown, own, value.as_deref(), code),
        (_, None) => {}
    }
    code
}

/// What the key has.
fn report(args: &Args, shown: &Shown, own: Option<u64>, value: Option<&str>, code: u8) {
    let version = shown.version;
    match value {
        Some(value) if code == 0 && matches!(args.word, Word::Get { .. } | Word::Add { .. }) => {
            outln!("{value}");
        }
        Some(value) if code != 0 => eprintln!("refused: version {version} has {value}"),
        None if code != 0 => eprintln!("the key has no value (version {version})"),
        _ => match own {
            Some(own) if own == version => outln!("version {own}"),
            Some(own) => outln!("version {own}; later writes made {version}"),
            None => outln!("done, in a version before {version}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_to_add_may_be_negative() {
        assert_eq!(delta("-5"), Ok(u64::MAX - 4));
        assert_eq!(delta("18446744073709551615"), Ok(u64::MAX));
        assert!(delta("five").is_err() && delta("18446744073709551616").is_err());
        let kv = |words: &[&str]| Args::try_parse_from([&["kv"], words].concat());
        assert!(kv(&["add", "visits", "-5"]).is_ok());
    }
}
