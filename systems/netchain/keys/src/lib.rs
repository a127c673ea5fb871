//! Clients' keys: the file that switches have, and the one that a client has.
//!
//! ```toml
//! # client-keys.toml, the same on all switches
//! [[key]]
//! id = 3
//! name = "web"                 # for people
//! state = "active"             # or "retiring", or "revoked": then without `hex`
//! hex = "…32 hexadecimal digits…"
//! rights = "read-write"        # or "read", "write"
//! prefix = "web/"              # of the keys that it may name; by default all
//! rate_per_s = 10000           # by default any
//! burst = 2000                 # messages at once; by default those of a second
//! not_after = 1790000000       # seconds since 1970; by default never
//!
//! [anonymous]                  # clients without a key; by default none is served
//! rights = "read"
//! ```
//!
//! It owns: both files. It must not know: what a tag covers, maps, sockets, clocks (`now_s` is an
//! argument).

#![forbid(unsafe_code)]

mod file;
mod identity;

pub use identity::Identity;

use daemon::config::ConfigError;
use netchain_protocol::KEYS_MAX;
use secrets::{SecretsError, random_secret};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use wire::Secret;

/// Bytes of a prefix at the most: a whole key.
pub const PREFIX_MAX: usize = 16;

/// Why a file of keys cannot be used or changed. Never names a secret.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It is not there.
    #[error("{path}: there is no such file; {remedy}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// How to make one.
        remedy: &'static str,
    },
    /// It cannot be read or written, or others can read it.
    #[error(transparent)]
    File(#[from] SecretsError),
    /// Its content, or an operation that does not fit it.
    #[error(transparent)]
    Content(#[from] ConfigError),
}

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rights {
    /// Read.
    Read,
    /// Write. (A reply to a write shows what the key has.)
    Write,
    /// Both.
    ReadWrite,
}

impl Rights {
    /// As the data plane has them: read 1, write 2.
    pub fn bits(self) -> u64 {
        match self {
            Rights::Read => 1,
            Rights::Write => 2,
            Rights::ReadWrite => 3,
        }
    }

    /// As the file has them.
    pub fn name(self) -> &'static str {
        match self {
            Rights::Read => "read",
            Rights::Write => "write",
            Rights::ReadWrite => "read-write",
        }
    }
}

/// Whether a key is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is.
    #[default]
    Active,
    /// It is, still: another key has taken its place.
    Retiring,
    /// It is not, and has no secret any more.
    Revoked,
}

/// What a client may do, where, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Reading, writing.
    pub rights: Rights,
    /// What the keys of the store that it names begin with.
    pub prefix: String,
    /// Messages a second; 0: any.
    pub rate_per_s: u32,
    /// Messages at once; 0: those of a second.
    pub burst: u32,
}

impl Grant {
    /// Everything.
    pub const ALL: Grant =
        Grant { rights: Rights::ReadWrite, prefix: String::new(), rate_per_s: 0, burst: 0 };

    /// Nanoseconds from one message to the next, on average, and how far ahead of that the client
    /// may be. 0: any rate.
    pub fn pace_ns(&self) -> (u64, u64) {
        if self.rate_per_s == 0 {
            return (0, 0);
        }
        let interval = 1_000_000_000 / u64::from(self.rate_per_s);
        let burst = if self.burst == 0 { self.rate_per_s } else { self.burst };
        (interval, interval * u64::from(burst - 1))
    }

    /// The prefix as the first bytes of a key of the store, and the mask of these bytes. (A prefix
    /// that is longer than a key has a [`Grant::fault`].)
    pub fn prefix_and_mask(&self) -> (u128, u128) {
        let (mut prefix, mut mask) = ([0; PREFIX_MAX], [0; PREFIX_MAX]);
        for ((place, bits), byte) in prefix.iter_mut().zip(&mut mask).zip(self.prefix.bytes()) {
            (*place, *bits) = (byte, 0xff);
        }
        (u128::from_be_bytes(prefix), u128::from_be_bytes(mask))
    }

    /// What is wrong with it: the field, and why.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if self.prefix.len() > PREFIX_MAX {
            let bytes = self.prefix.len();
            return Some(("prefix", format!("{bytes} bytes; a key has {PREFIX_MAX}")));
        }
        if self.rate_per_s > 1_000_000_000 {
            return Some(("rate_per_s", "write at most 1000000000, or none for any rate".into()));
        }
        (self.burst != 0 && self.rate_per_s == 0)
            .then(|| ("burst", "a burst without rate_per_s; write both, or none".into()))
    }
}

/// A client's key, as switches know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// 1 to [`KEYS_MAX`].
    pub id: u16,
    /// For people.
    pub name: String,
    /// Accepted or not.
    pub state: State,
    /// What tags are made with. None: it was revoked.
    pub secret: Option<Secret>,
    /// What the client may do.
    pub grant: Grant,
    /// Seconds since 1970 until which it is accepted.
    pub not_after: Option<u64>,
}

impl Key {
    /// The secret, if the key is accepted now.
    pub fn accepted(&self, now_s: u64) -> Option<&Secret> {
        let current = self.not_after.is_none_or(|end| now_s <= end);
        self.secret.as_ref().filter(|_| current && self.state != State::Revoked)
    }
}

/// A checked file of clients' keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientKeys {
    path: PathBuf,
    keys: Vec<Key>,
    anonymous: Option<Grant>,
}

impl ClientKeys {
    /// No keys yet; `path` is where [`ClientKeys::save`] puts them.
    pub fn empty(path: &Path) -> ClientKeys {
        ClientKeys { path: path.to_owned(), keys: vec![], anonymous: None }
    }

    /// All that there ever were, by number.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// What clients without a key may do. None: they are not served.
    pub fn anonymous(&self) -> Option<&Grant> {
        self.anonymous.as_ref()
    }

    /// The key with that number.
    ///
    /// # Errors
    /// There is none.
    pub fn key(&self, id: u16) -> Result<&Key, KeysError> {
        self.keys.iter().find(|key| key.id == id).ok_or_else(|| self.unknown(id))
    }

    /// Issues a key. It gets a number that none had, or if all are used up, that of a revoked one.
    ///
    /// # Errors
    /// The grant makes no sense, or all numbers are taken.
    pub fn issue(
        &mut self,
        name: &str,
        grant: Grant,
        not_after: Option<u64>,
    ) -> Result<Identity, KeysError> {
        if let Some((field, problem)) = grant.fault() {
            return Err(self.problem(field, problem));
        }
        let fresh = (1..=KEYS_MAX).find(|id| self.keys.iter().all(|key| key.id != *id));
        let revoked = self.keys.iter().find(|key| key.state == State::Revoked).map(|key| key.id);
        let Some(id) = fresh.or(revoked) else {
            let problem = format!(
                "all {KEYS_MAX} are taken; revoke one that nobody uses (`stateplane kv key revoke`)"
            );
            return Err(self.problem("key", problem));
        };
        let secret = random_secret()?;
        self.keys.retain(|key| key.id != id);
        self.keys.push(Key {
            id,
            name: name.to_owned(),
            state: State::Active,
            secret: Some(secret),
            grant,
            not_after,
        });
        self.keys.sort_by_key(|key| key.id);
        Ok(Identity { id, secret })
    }

    /// Issues a key that takes the place of another one, which is accepted for now: until
    /// `not_after`, or until it is revoked.
    ///
    /// # Errors
    /// There is no such key, or it was revoked; or all numbers are taken.
    pub fn rotate(&mut self, id: u16, not_after: Option<u64>) -> Result<Identity, KeysError> {
        let old = self.key(id)?.clone();
        if old.state == State::Revoked {
            let problem = format!("{id} was revoked; issue a new one");
            return Err(self.problem("key", problem));
        }
        let identity = self.issue(&old.name, old.grant, old.not_after)?;
        for key in self.keys.iter_mut().filter(|key| key.id == id) {
            key.state = State::Retiring;
            key.not_after = not_after.or(key.not_after);
        }
        Ok(identity)
    }

    /// Takes a key's secret away. Its number stays, so that nobody else gets it soon.
    ///
    /// # Errors
    /// There is no such key.
    pub fn revoke(&mut self, id: u16) -> Result<(), KeysError> {
        self.key(id)?;
        for key in self.keys.iter_mut().filter(|key| key.id == id) {
            key.state = State::Revoked;
            key.secret = None;
        }
        Ok(())
    }

    fn unknown(&self, id: u16) -> KeysError {
        self.problem("key", format!("there is no key {id}; `stateplane kv key list` shows them"))
    }

    fn problem(&self, field: &str, problem: String) -> KeysError {
        ConfigError::field(&self.path, (field.to_owned(), problem)).into()
    }
}

#[cfg(test)]
mod tests;
