//! `stateplane kv key`: issues, rotates, revokes and lists clients' keys, in the file that switches
//! read.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use command_line::{out, outln};
use netchain_keys::{ClientKeys, Grant, Identity, Key, KeysError, Rights, State};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;

const EXAMPLES: &str = "Examples:
  stateplane kv key issue client-keys.toml --name web --prefix web/ --out web.key
  stateplane kv key rotate client-keys.toml 1 --overlap-days 7 --out web-new.key
  stateplane kv key revoke client-keys.toml 1
  stateplane kv key list client-keys.toml

The file belongs on all switches (`client_keys` in switch.toml); only its owner may read it. A
switch looks every five seconds whether it has changed, and at once on SIGHUP: for so long it serves
a client whose key is revoked, and does not know a new one. The client reads its part by `kv
--identity`.";

/// Issue, rotate, revoke and list clients' keys
#[derive(ClapArgs, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand, Debug)]
enum Word {
    /// Make a key; makes the file if there is none
    Issue {
        /// The switches' file of clients' keys.
        file: PathBuf,
        /// The owner's name, shown in lists.
        #[arg(long, default_value = "")]
        name: String,
        /// What the client may do.
        #[arg(long, value_enum, default_value_t = RightsWord::ReadWrite)]
        rights: RightsWord,
        /// The client may use only keys of the store that begin with this text.
        #[arg(long, default_value = "")]
        prefix: String,
        /// Messages a second that each switch takes; 0: no limit.
        #[arg(long, value_name = "N", default_value_t = 0)]
        rate_per_s: u32,
        /// Messages that may come at once; 0: as many as in one second.
        #[arg(long, value_name = "N", default_value_t = 0)]
        burst: u32,
        /// Days for which the key is accepted; by default until it is revoked.
        #[arg(long, value_name = "DAYS")]
        days: Option<u64>,
        /// File for the client's part of the key; by default it is printed.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Make a key that replaces an old one; both are accepted for a while
    Rotate {
        /// The switches' file of clients' keys.
        file: PathBuf,
        /// The key's number.
        id: u16,
        /// Days for which the old key is still accepted; by default until it is revoked.
        #[arg(long, value_name = "DAYS")]
        overlap_days: Option<u64>,
        /// File for the client's part of the key; by default it is printed.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Revoke a key: remove its secret
    Revoke {
        /// The switches' file of clients' keys.
        file: PathBuf,
        /// The key's number.
        id: u16,
    },
    /// Show all keys, without their secrets
    List {
        /// The switches' file of clients' keys.
        file: PathBuf,
    },
}

/// `--rights`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RightsWord {
    /// Read.
    Read,
    /// Write; a reply shows what the key has.
    Write,
    /// Both.
    ReadWrite,
}

impl From<RightsWord> for Rights {
    fn from(word: RightsWord) -> Rights {
        match word {
            RightsWord::Read => Rights::Read,
            RightsWord::Write => Rights::Write,
            RightsWord::ReadWrite => Rights::ReadWrite,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// What is wrong, and the remedy.
pub fn run(args: &Args, json: bool) -> Result<(), String> {
    act(args, json).map_err(|error| error.to_string())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// The end of so many days.
fn after(days: Option<u64>) -> Option<u64> {
    days.map(|days| now_s().saturating_add(days.saturating_mul(DAY_S)))
}

fn act(args: &Args, json: bool) -> Result<(), KeysError> {
    match &args.word {
        Word::Issue { file, name, rights, prefix, rate_per_s, burst, days, out } => {
            let mut keys = match ClientKeys::load(file) {
                Err(KeysError::Missing { .. }) => ClientKeys::empty(file),
                other => other?,
            };
            let (rate_per_s, burst) = (*rate_per_s, *burst);
            let grant =
                Grant { rights: (*rights).into(), prefix: prefix.clone(), rate_per_s, burst };
            let identity = keys.issue(name, grant, after(*days))?;
            hand_over(&keys, &identity, out.as_deref())
        }
        Word::Rotate { file, id, overlap_days, out } => {
            let mut keys = ClientKeys::load(file)?;
            let identity = keys.rotate(*id, after(*overlap_days))?;
            hand_over(&keys, &identity, out.as_deref())
        }
        Word::Revoke { file, id } => {
            let mut keys = ClientKeys::load(file)?;
            keys.revoke(*id)?;
            keys.save()
        }
        Word::List { file } => {
            let keys = ClientKeys::load(file)?;
            if json {
                list_json(&keys)
            } else {
                list(&keys)
            }
            Ok(())
        }
    }
}

/// Gives a client its part, and writes the switches' file. A key that no client got is not kept.
fn hand_over(keys: &ClientKeys, identity: &Identity, to: Option<&Path>) -> Result<(), KeysError> {
    let Some(to) = to else {
        keys.save()?;
        out!("{}", identity.text());
        return Ok(());
    };
    identity.create(to)?;
    keys.save().inspect_err(|_| drop(std::fs::remove_file(to)))?;
    outln!("key {}: {}", identity.id, to.display());
    Ok(())
}

fn state(key: &Key, now_s: u64) -> &'static str {
    match key.state {
        State::Revoked => "revoked",
        _ if key.accepted(now_s).is_none() => "out of date",
        State::Retiring => "retiring",
        State::Active => "active",
    }
}

/// What is left, for people.
fn left(not_after: Option<u64>, now_s: u64) -> String {
    match not_after {
        None => "-".into(),
        Some(end) if end < now_s => "over".into(),
        Some(end) if end - now_s < DAY_S => format!("{} h", (end - now_s) / 3600),
        Some(end) => format!("{} d", (end - now_s) / DAY_S),
    }
}

fn list(keys: &ClientKeys) {
    let now = now_s();
    let row = |id: &str, state: &str, grant: &Grant, left: &str, name: &str| {
        let rate = if grant.rate_per_s == 0 { "any".into() } else { grant.rate_per_s.to_string() };
        let rights = grant.rights.name();
        outln!(
            "{id:>5}  {state:<11}  {rights:<10}  {rate:>10}  {left:>6}  {:<16}  {name}",
            grant.prefix
        );
    };
    outln!(
        "{:>5}  {:<11}  {:<10}  {:>10}  {:>6}  {:<16}  NAME",
        "KEY",
        "STATE",
        "RIGHTS",
        "RATE /s",
        "LEFT",
        "PREFIX"
    );
    if let Some(grant) = keys.anonymous() {
        row("none", "anonymous", grant, "-", "");
    }
    for key in keys.keys() {
        let left = left(key.not_after, now);
        row(&key.id.to_string(), state(key, now), &key.grant, &left, &key.name);
    }
}

fn list_json(keys: &ClientKeys) {
    let now = now_s();
    let granted = |grant: &Grant| {
        json!({
            "rights": grant.rights.name(),
            "prefix": grant.prefix,
            "rate_per_s": grant.rate_per_s,
            "burst": grant.burst,
        })
    };
    let all: Vec<_> = keys
        .keys()
        .iter()
        .map(|key| {
            json!({
                "id": key.id,
                "name": key.name,
                "state": state(key, now),
                "grant": granted(&key.grant),
                "not_after": key.not_after,
            })
        })
        .collect();
    outln!("{}", json!({ "keys": all, "anonymous": keys.anonymous().map(granted) }));
}
