//! `stateplane state`: where a system has what is in its objects, and in which form it gives it.

use manifest::Manifest;
use secrets::SecretsFile;
use serde_json::Value;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Whom to ask.
pub struct Asked {
    /// The daemons, in this order.
    pub stores: Vec<SocketAddrV4>,
    /// The fabric's shared secrets.
    pub secrets: SecretsFile,
    /// How long to wait for an answer.
    pub timeout: Duration,
}

/// Which records.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Only this object's, by its number in the manifest.
    pub object: Option<u16>,
    /// Only those of this switch.
    pub owner: Option<u32>,
    /// Only the one with this key.
    pub key: Option<Vec<u8>>,
}

/// A piece of state.
#[derive(Clone, Debug)]
pub struct Record {
    /// The object's number in the manifest.
    pub object: u16,
    /// The key.
    pub key: Vec<u8>,
    /// The value; `Err`: what is shown in its place.
    pub value: Result<Vec<u8>, String>,
    /// What else a table shows, in the order of [`Source::columns`].
    pub cells: Vec<String>,
    /// What else JSON shows.
    pub fields: Vec<(&'static str, Value)>,
}

/// What was found.
#[derive(Default)]
pub struct Found {
    /// Each key once, in order.
    pub records: Vec<Record>,
    /// There are more than were asked for.
    pub more: bool,
    /// What nobody who was asked has, and what to do.
    pub warning: Option<String>,
}

/// The newest whole snapshot of a record.
pub struct Snapshot {
    /// What JSON shows of it beside its slots.
    pub info: Value,
    /// In words: which it is.
    pub name: String,
    /// The window that the slots are of, where a program's begin anew with each.
    pub window: Option<u64>,
    /// All of them.
    pub slots: Vec<u64>,
}

/// Where a system's objects are found.
pub trait Source: Sync {
    /// Whether an object of a manifest may be found there.
    ///
    /// # Errors
    /// The object's settings are of another version.
    fn has(&self, object: &manifest::StateObject) -> Result<bool, String>;

    /// What a table shows of a record behind object, key and value.
    fn columns(&self) -> &'static [&'static str];

    /// The records that a question is about, `most` of them.
    ///
    /// # Errors
    /// Somebody does not answer.
    fn records(&self, asked: &Asked, question: &Question, most: usize) -> Result<Found, String>;

    /// The newest whole snapshot of a record. `None`: there is none.
    ///
    /// # Errors
    /// Somebody does not answer.
    fn snapshot(
        &self,
        _asked: &Asked,
        _manifest: Option<&Manifest>,
        _record: &Record,
    ) -> Result<Option<Snapshot>, String> {
        Ok(None)
    }
}
