//! Clients' keys on a switch: from the file to the data plane (`bpf/netchain/stateplane_tags.h`),
//! and what it dropped of whom.

use crate::{MESSAGE_TAG, SYSTEM};
use c_layout::{CStruct, Member};
use dataplane::Dataplane;
use manifest::Manifest;
use netchain_keys::{ClientKeys, Grant};
use netchain_protocol::layouts::{ClientDropsValue, ClientKeyValue, KEY_PLACES};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use switch_agent::{Error, Result};
use wire::Secret;

/// The array of one map with all keys.
const KEYS: &str = "sp_client_keys";
/// Drops by key.
const KEY_DROPS: &str = "sp_client_drops";
/// Drops by reason.
const DROPS: &str = "sp_tags_drops";

/// A key as the data plane has it. `secret`: None of clients without a key.
fn key_value(secret: Option<&Secret>, grant: &Grant) -> ClientKeyValue {
    let words = |number: u128| [(number >> 64) as u64, number as u64];
    let (prefix, mask) = grant.prefix_and_mask();
    let (interval_ns, ahead_ns) = grant.pace_ns();
    ClientKeyValue {
        secret: secret.map_or([0; 2], Secret::words),
        prefix: words(prefix),
        mask: words(mask),
        interval_ns,
        ahead_ns,
        rights: grant.rights.bits(),
    }
}

/// When a file was changed last; one that is replaced has another inode.
type Stamp = (u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec()))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// Who may ask this switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Clients with a key in this file.
    File(PathBuf),
    /// Everybody.
    Everybody,
}

/// The keys of a loaded object.
pub struct Keys {
    dataplane: Arc<Dataplane>,
    source: Source,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file's, as it was read last.
    keys: Option<ClientKeys>,
    stamp: Option<Stamp>,
    /// The numbers that the data plane accepts.
    accepted: Vec<u16>,
    /// Why the file could not be read last.
    fault: Option<String>,
}

/// What was dropped of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientDrops {
    /// The key's number; 0: of clients without a key.
    pub key: u16,
    /// The key's name.
    pub name: String,
    /// Messages whose tag the key does not make.
    pub forged: u64,
    /// Messages that ask for what the client may not do.
    pub denied: u64,
    /// Messages over the client's rate.
    pub over_rate: u64,
}

/// What `stateplane status` is told of clients' keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysLoad {
    /// Keys that are accepted.
    pub accepted: usize,
    /// Everybody may read and write.
    pub open_to_all: bool,
    /// Why the file could not be read last; the keys read before hold.
    pub fault: Option<String>,
    /// Clients of whom something was dropped.
    pub dropped: Vec<ClientDrops>,
}

impl Keys {
    pub(crate) fn new(dataplane: Arc<Dataplane>, source: Source) -> Keys {
        Keys { dataplane, source, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file, and hands the data plane what it says. If the file is at fault, the keys
    /// read before stay.
    pub(crate) fn read(&self) -> Result<()> {
        let mut state = self.state();
        let outcome = self.read_into(&mut state);
        state.fault = outcome.as_ref().err().map(ToString::to_string);
        outcome
    }

    fn read_into(&self, state: &mut State) -> Result<()> {
        let Source::File(path) = &self.source else {
            return Keys::exchange(&self.dataplane, &[(0, None, &Grant::ALL)]);
        };
        state.stamp = stamp(path); // before: a change while it is read is seen at the next look
        let keys = ClientKeys::load(path).map_err(|error| Error::Other(error.to_string()))?;
        self.accept(&keys, state)?;
        state.keys = Some(keys);
        Ok(())
    }

    /// Hands the data plane the keys that are accepted now.
    fn accept(&self, keys: &ClientKeys, state: &mut State) -> Result<()> {
        let now = now_s();
        let mut places: Vec<(u16, Option<&Secret>, &Grant)> =
            keys.anonymous().map(|grant| (0, None, grant)).into_iter().collect();
        for key in keys.keys() {
            if let Some(secret) = key.accepted(now) {
                places.push((key.id, Some(secret), &key.grant));
            }
        }
        Keys::exchange(&self.dataplane, &places)?;
        state.accepted = places.iter().map(|(id, ..)| *id).filter(|id| *id != 0).collect();
        Ok(())
    }

    /// Takes keys that are out of date away, and reads the file again if it has changed.
    pub(crate) fn look(&self) {
        let Source::File(path) = &self.source else { return };
        let mut state = self.state();
        if stamp(path) != state.stamp {
            drop(state);
            match self.read() {
                Ok(()) => tracing::info!("client keys: read {}", path.display()),
                Err(error) => tracing::error!(
                    "client keys: {error}; the keys read before stay in \
                                               use"
                ),
            }
            return;
        }
        let now = now_s();
        let Some(keys) = state.keys.clone() else { return };
        let current = keys.keys().iter().filter(|key| key.accepted(now).is_some());
        if !current.map(|key| key.id).eq(state.accepted.iter().copied())
            && let Err(error) = self.accept(&keys, &mut state)
        {
            tracing::error!("client keys: {error}");
        }
    }

    /// Does a program check tags?
    pub fn needed(manifest: &Manifest) -> bool {
        manifest.state_objects.iter().any(|it| it.system == SYSTEM && it.kind == MESSAGE_TAG)
    }

    /// Exchanges all keys as one: number (0: clients without a key), secret, what the client may
    /// do. When it returns no packet sees an earlier one.
    ///
    /// # Errors
    /// The kernel refuses; the earlier ones stay.
    pub fn exchange(
        dataplane: &Dataplane,
        places: &[(u16, Option<&Secret>, &Grant)],
    ) -> Result<()> {
        let values = places.iter().map(|(id, secret, grant)| {
            (u32::from(*id), key_value(*secret, grant).to_bytes().to_vec())
        });
        let bytes = ClientKeyValue::BYTES as u32;
        Ok(dataplane.exchange_array(KEYS, "sp_keys", bytes, KEY_PLACES, values)?)
    }

    /// Messages dropped for a reason (SP_TAG_), over all CPUs. 0: those of members.
    pub(crate) fn dropped(&self, reason: u32) -> u64 {
        self.dataplane.read_count(DROPS, reason).unwrap_or_default()
    }

    /// Clients of whom something was dropped.
    pub(crate) fn dropped_by_client(&self) -> Vec<ClientDrops> {
        let state = self.state();
        let known = state.keys.as_ref().map_or(&[][..], ClientKeys::keys);
        let all = std::iter::once((0, "")).chain(known.iter().map(|it| (it.id, it.name.as_str())));
        all.filter_map(|(key, name)| {
            let per_cpu = self.dataplane.read_per_cpu(KEY_DROPS, key.into()).unwrap_or_default();
            let all: Vec<_> = per_cpu.iter().map(|it| ClientDropsValue::from_bytes(it)).collect();
            let sum = |of: fn(&ClientDropsValue) -> u64| all.iter().map(of).sum::<u64>();
            let (forged, denied) = (sum(|it| it.forged), sum(|it| it.denied));
            let over_rate = sum(|it| it.over_rate);
            let name = name.to_owned();
            (forged + denied + over_rate > 0).then_some(ClientDrops {
                key,
                name,
                forged,
                denied,
                over_rate,
            })
        })
        .collect()
    }

    pub(crate) fn load(&self) -> KeysLoad {
        let dropped = self.dropped_by_client();
        let state = self.state();
        KeysLoad {
            accepted: state.accepted.len(),
            open_to_all: self.source == Source::Everybody,
            fault: state.fault.clone(),
            dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchain_keys::Rights;

    #[test]
    fn a_key_is_as_the_data_plane_has_it() {
        let grant = Grant { rights: Rights::Write, prefix: "ab".into(), rate_per_s: 10, burst: 3 };
        let secret = Secret(std::array::from_fn(|at| at as u8));
        let value = key_value(Some(&secret), &grant);
        assert_eq!(value.secret, [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        assert_eq!((value.prefix, value.mask), ([0x6162 << 48, 0], [0xffff << 48, 0]));
        let pace = (value.interval_ns, value.ahead_ns, value.rights);
        assert_eq!(pace, (100_000_000, 200_000_000, 2));
    }
}
