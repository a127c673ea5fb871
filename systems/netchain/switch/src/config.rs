//! NetChain's part of `switch.toml`.

use crate::keys::Source;
use netchain_keys::ClientKeys;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use switch_agent::Result;
use switch_agent::config::Config;

pub(crate) const FIELDS: [&str; 2] = ["client_keys", "open_to_all"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    /// The file of clients' keys, relative to the configuration file.
    client_keys: Option<PathBuf>,
    /// Everybody may read and write.
    #[serde(default)]
    open_to_all: bool,
}

/// Who may ask a switch whose program checks tags.
///
/// # Errors
/// The configuration does not say, or contradicts itself.
pub(crate) fn source(config: &Config) -> Result<Source> {
    let own: Own = config.part(&FIELDS)?;
    match (own.client_keys, own.open_to_all) {
        (Some(file), false) => {
            let folder = config.file.parent().unwrap_or(Path::new(""));
            Ok(Source::File(folder.join(file)))
        }
        (None, true) => Ok(Source::Everybody),
        (None, false) => config.fault(
            "client_keys",
            "is needed: who may read and write? Name the file of clients' keys (`stateplane kv \
             key issue FILE` makes one), or write `open_to_all = true`",
        ),
        (Some(_), true) => config.fault(
            "open_to_all",
            "contradicts client_keys; remove one (the file's [anonymous] says what clients \
             without a key may do)",
        ),
    }
}

/// Checks it, and the file.
pub(crate) fn check(config: &Config) -> Result<()> {
    if config.secrets.is_none() {
        let remedy = "is needed: members of a chain tag what they send each other; name the \
                      fabric's file of secrets (`stateplane keys generate FILE` makes one)";
        return config.fault("secrets", remedy);
    }
    match source(config)? {
        Source::Everybody => Ok(()),
        Source::File(path) => ClientKeys::load(&path)
            .map(drop)
            .or_else(|error| config.fault("client_keys", error.to_string())),
    }
}
