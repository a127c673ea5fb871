//! The file of clients' keys, as text.

use crate::{ClientKeys, Grant, Key, KeysError, Rights, State};
use daemon::config::ConfigError;
use netchain_protocol::KEYS_MAX;
use secrets::{SecretsError, from_hex, read_private, replace_private, to_hex};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<KeyTable>,
    anonymous: Option<Anonymous>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyTable {
    id: u16,
    #[serde(default)]
    name: String,
    #[serde(default)]
    state: State,
    hex: Option<String>,
    rights: Rights,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    rate_per_s: u32,
    #[serde(default)]
    burst: u32,
    not_after: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Anonymous {
    rights: Rights,
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    rate_per_s: u32,
    #[serde(default)]
    burst: u32,
}

/// Reads a file that only its owner may read.
pub(crate) fn read(path: &Path, remedy: &'static str) -> Result<String, KeysError> {
    read_private(path).map_err(|error| match error {
        SecretsError::Read { source, .. } if source.kind() == ErrorKind::NotFound => {
            KeysError::Missing { path: path.to_owned(), remedy }
        }
        other => other.into(),
    })
}

impl ClientKeys {
    /// Reads and checks a file. Refuses one that others than its owner can read.
    ///
    /// # Errors
    /// The file, the field, the remedy.
    pub fn load(path: &Path) -> Result<ClientKeys, KeysError> {
        ClientKeys::parse(path, &read(path, "`stateplane kv key issue` makes one")?)
    }

    /// Checks a file's text; `path` is for messages.
    ///
    /// # Errors
    /// The field and the remedy.
    pub fn parse(path: &Path, text: &str) -> Result<ClientKeys, KeysError> {
        let file: File = daemon::config::parse(path, text)?;
        let mut keys = ClientKeys::empty(path);
        let fault = |place: String, problem: String| {
            KeysError::from(ConfigError::field(path, (place, problem)))
        };
        let mut seen = BTreeSet::new();
        for (at, table) in file.key.into_iter().enumerate() {
            let place = |field: &str| format!("key[{at}].{field}");
            if !(1..=KEYS_MAX).contains(&table.id) {
                let problem = format!("{} is out of range; write 1 to {KEYS_MAX}", table.id);
                return Err(fault(place("id"), problem));
            }
            if !seen.insert(table.id) {
                let problem =
                    format!("{} is used twice; give each entry a number of its own", table.id);
                return Err(fault(place("id"), problem));
            }
            let key = table.key().map_err(|(field, problem)| fault(place(field), problem))?;
            keys.keys.push(key);
        }
        keys.keys.sort_by_key(|key| key.id);
        if let Some(Anonymous { rights, prefix, rate_per_s, burst }) = file.anonymous {
            let grant = Grant { rights, prefix, rate_per_s, burst };
            if let Some((field, problem)) = grant.fault() {
                return Err(fault(format!("anonymous.{field}"), problem));
            }
            keys.anonymous = Some(grant);
        }
        Ok(keys)
    }

    /// Writes the file in one step; only its owner can read it.
    ///
    /// # Errors
    /// It cannot be written; then the old one is as it was.
    pub fn save(&self) -> Result<(), KeysError> {
        Ok(replace_private(&self.path, &self.text())?)
    }

    fn text(&self) -> String {
        let mut text = "# Clients' keys: keep them from others. The same file belongs on all \
                        switches. `stateplane kv key --help` says more.\n"
            .to_owned();
        if let Some(grant) = &self.anonymous {
            text += "\n[anonymous]\n";
            write_grant(&mut text, grant);
        }
        for key in &self.keys {
            let _ = writeln!(text, "\n[[key]]\nid = {}", key.id); // (a string takes all)
            if !key.name.is_empty() {
                let _ = writeln!(text, "name = {}", quoted(&key.name));
            }
            let state = match key.state {
                State::Active => "active",
                State::Retiring => "retiring",
                State::Revoked => "revoked",
            };
            let _ = writeln!(text, "state = \"{state}\"");
            if let Some(secret) = &key.secret {
                let _ = writeln!(text, "hex = \"{}\"", to_hex(secret));
            }
            write_grant(&mut text, &key.grant);
            if let Some(not_after) = key.not_after {
                let _ = writeln!(text, "not_after = {not_after}");
            }
        }
        text
    }
}

fn write_grant(text: &mut String, grant: &Grant) {
    let _ = writeln!(text, "rights = \"{}\"", grant.rights.name());
    if !grant.prefix.is_empty() {
        let _ = writeln!(text, "prefix = {}", quoted(&grant.prefix));
    }
    if grant.rate_per_s != 0 {
        let _ = writeln!(text, "rate_per_s = {}", grant.rate_per_s);
    }
    if grant.burst != 0 {
        let _ = writeln!(text, "burst = {}", grant.burst);
    }
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

impl KeyTable {
    /// Or the field and what is wrong with it.
    fn key(self) -> Result<Key, (&'static str, String)> {
        let KeyTable { id, name, state, hex, rights, prefix, rate_per_s, burst, not_after } = self;
        let secret = match (hex, state) {
            (None, State::Revoked) => None,
            (Some(_), State::Revoked) => {
                return Err(("hex", "a revoked key has none; remove it".into()));
            }
            (None, _) => {
                return Err(("hex", "is missing; `stateplane kv key issue` makes one".into()));
            }
            (Some(hex), _) => Some(from_hex(&hex).ok_or_else(|| {
                let problem = format!(
                    "needs 32 hexadecimal digits, not {} characters; `stateplane kv key issue` \
                     makes valid ones",
                    hex.len()
                );
                ("hex", problem)
            })?),
        };
        let grant = Grant { rights, prefix, rate_per_s, burst };
        match grant.fault() {
            Some(fault) => Err(fault),
            None => Ok(Key { id, name, state, secret, grant, not_after }),
        }
    }
}
