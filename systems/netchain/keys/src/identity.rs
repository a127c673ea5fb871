//! A client's own key.

use crate::KeysError;
use crate::file::read;
use daemon::config::ConfigError;
use netchain_protocol::{ClientKey, KEYS_MAX};
use secrets::{create_private, from_hex, to_hex};
use serde::Deserialize;
use std::path::Path;
use wire::Secret;

/// A client's part of a key: what `stateplane kv --identity` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The key's number.
    pub id: u16,
    /// What tags are made with.
    pub secret: Secret,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    id: u16,
    hex: String,
}

impl Identity {
    /// Reads a file. Refuses one that others than its owner can read.
    ///
    /// # Errors
    /// The file, the field, the remedy.
    pub fn load(path: &Path) -> Result<Identity, KeysError> {
        let remedy = "the operator of the switches issues one: `stateplane kv key issue KEYS --out \
                      FILE`";
        Identity::parse(path, &read(path, remedy)?)
    }

    /// Checks a file's text; `path` is for messages.
    ///
    /// # Errors
    /// The field and the remedy.
    pub fn parse(path: &Path, text: &str) -> Result<Identity, KeysError> {
        let file: File = daemon::config::parse(path, text)?;
        let fault = |field: &str, problem: String| {
            KeysError::from(ConfigError::field(path, (field.to_owned(), problem)))
        };
        if !(1..=KEYS_MAX).contains(&file.id) {
            let problem = format!("{} is out of range; a key has 1 to {KEYS_MAX}", file.id);
            return Err(fault("id", problem));
        }
        let problem = || "needs 32 hexadecimal digits, as the key was issued".to_owned();
        let secret = from_hex(&file.hex).ok_or_else(|| fault("hex", problem()))?;
        Ok(Identity { id: file.id, secret })
    }

    /// The file's text.
    pub fn text(&self) -> String {
        format!("id = {}\nhex = \"{}\"\n", self.id, to_hex(&self.secret))
    }

    /// Makes a file that only its owner can read. Never overwrites one.
    ///
    /// # Errors
    /// It cannot be written, or is there.
    pub fn create(&self, path: &Path) -> Result<(), KeysError> {
        Ok(create_private(path, &self.text())?)
    }

    /// To sign and verify with.
    pub fn key(&self) -> ClientKey {
        ClientKey { id: self.id, secret: self.secret }
    }
}
