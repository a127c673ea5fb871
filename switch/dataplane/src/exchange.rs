//! Tables whose entries are exchanged as one (`stateplane_exchange`).
//!
//! The kernel uses an element of a hash map again at once, while a packet may still read the action
//! data in it. So the entries of such a table are in a map of their own, which nobody writes to
//! once packets can find it. A change fills another map, and puts that in the place of the first
//! one, the only element of an array of maps. The kernel returns from that update when no running
//! program has the earlier map any more (a grace period): the return is the confirmation.
//!
//! The kernel's number of the map is the version of the entries. It changes with the entries, in
//! the same step, and needs no place of its own. A pin of each map is made before the exchange and
//! that of the earlier one removed after it, so a new process finds the map whichever moment the
//! last one died in. (A map's number alone would not do: opening one by its number takes
//! CAP_SYS_ADMIN.)

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::grace::create;
use crate::sys::{self, Update};
use crate::table::{Entry, TableRef, write_value};
use libbpf_rs::libbpf_sys::BPF_F_NO_PREALLOC;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use manifest::{Table, TableKind};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the maps with entries are pinned, as `TABLE'S MAP/VERSION`.
const DIRECTORY: &str = "entries";
/// The only element of an array of maps.
const FIRST: [u8; 4] = 0u32.to_ne_bytes();
/// As long as a map's name may be.
const NAME_BYTES: usize = 15;

/// The version of a table's entries. It is another one after each exchange, and the same for a new
/// agent that takes the maps over.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct TableVersion(pub u32);

impl fmt::Display for TableVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The maps that packets find entries in now.
#[derive(Default)]
pub(crate) struct Exchanged {
    current: Mutex<BTreeMap<String, Arc<MapHandle>>>,
    /// Held from reading entries to exchanging them.
    changes: Mutex<()>,
    /// Where the object is pinned.
    pins: Mutex<Option<PathBuf>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A map with a table's entries that packets do not find yet; dropping it changes nothing.
pub struct Filled<'a> {
    table: TableRef<'a>,
    map: MapHandle,
    expected: Option<TableVersion>,
}

impl<'a> TableRef<'a> {
    /// Are the entries exchanged as one?
    pub fn is_exchanged(&self) -> bool {
        self.table.exchange
    }

    /// The name of the array of maps.
    fn array_name(&self) -> Result<&'a str> {
        match &self.table.kind {
            TableKind::Exact { map, .. } | TableKind::Lpm { map, .. } if self.table.exchange => {
                Ok(map)
            }
            _ => self.fail(
                "its entries are not exchanged as one; write `stateplane_exchange = true;` in the P4 table, or change one entry after the other",
            ),
        }
    }

    fn array(&self) -> Result<&'a MapHandle> {
        let owner = format!("table {}", self.table.name);
        self.dataplane.required_map(self.array_name()?, &owner)
    }

    /// The map that packets find entries in now.
    pub(crate) fn current_map(&self) -> Result<Arc<MapHandle>> {
        let name = self.array_name()?;
        let found = lock(&self.dataplane.exchanged.current).get(name).cloned();
        found.map_or_else(|| self.fail("it has no entries yet"), Ok)
    }

    /// The version of the entries. The next exchange has another.
    pub fn version(&self) -> Result<TableVersion> {
        version_of(&*self.current_map()?)
    }

    /// Makes a map with exactly these entries. Packets find them after [`Filled::exchange`].
    ///
    /// # Errors
    /// An entry does not fit, two match the same, or there are too many: nothing is changed.
    pub fn fill(&self, entries: &[Entry]) -> Result<Filled<'a>> {
        let map = self.new_map()?;
        for entry in entries {
            self.check(entry)?;
            let (key, value) = self.key_and_value(entry)?;
            let written = write_value(&map, &key, value, Update::Create, None);
            written.or_else(|error| match error.raw_os_error() {
                Some(libc::EEXIST) => self.fail(format!(
                    "two of the entries match the same: {}",
                    crate::spec::keys_text(self.table, entry)
                )),
                _ => self.refused(error),
            })?;
        }
        Ok(Filled { table: *self, map, expected: None })
    }

    /// Makes these the table's entries, as one, and returns when no running program has the earlier
    /// ones any more.
    ///
    /// # Errors
    /// As [`TableRef::fill`] and [`Filled::exchange`].
    pub fn replace(&self, entries: &[Entry]) -> Result<TableVersion> {
        self.fill(entries)?.exchange()
    }

    /// Exchanges the entries for a copy that `change` has changed.
    pub(crate) fn change(&self, change: impl FnOnce(&MapHandle) -> Result<()>) -> Result<()> {
        let _one_at_a_time = lock(&self.dataplane.exchanged.changes);
        let (before, map) = (self.current_map()?, self.new_map()?);
        for key in before.keys() {
            if let Some(value) = crate::table::lookup(&before, &key, &self.table.name)? {
                sys::map_update(&map, &key, &value, Update::Any).or_else(|e| self.refused(e))?;
            }
        }
        change(&map)?;
        self.put_in_place(map).map(drop)
    }

    /// A map as the program's own, without entries.
    fn new_map(&self) -> Result<MapHandle> {
        let (kind, key_bytes, flags) = match self.table.kind {
            TableKind::Lpm { key_bytes, .. } => (MapType::LpmTrie, key_bytes, BPF_F_NO_PREALLOC),
            TableKind::Exact { key_bytes, .. } => (MapType::Hash, key_bytes, 0),
            _ => return self.fail("its entries are not in one map"),
        };
        let size = u32::try_from(self.table.size).unwrap_or(u32::MAX);
        let name = short(self.array_name()?);
        create(kind, name, key_bytes, self.table.value_bytes, size, flags, None)
            .map_err(|error| Error::kernel(format!("table {}: a new map", self.table.name), error))
    }

    /// The exchange itself; whoever calls it holds `changes`.
    fn put_in_place(&self, map: MapHandle) -> Result<TableVersion> {
        let (name, array) = (self.array_name()?, self.array()?);
        let version = version_of(&map)?;
        let failed = |error| Error::kernel(format!("table {}: exchange", self.table.name), error);
        let pins = lock(&self.dataplane.exchanged.pins).clone();
        if let Some(directory) = &pins {
            pin(directory, name, &map, version)?;
        }
        if let Err(error) = put(array, &map) {
            if let Some(directory) = &pins {
                // The first error is the one to report.
                let _ = std::fs::remove_file(path(directory, name, version));
            }
            return Err(failed(error));
        }
        let earlier =
            lock(&self.dataplane.exchanged.current).insert(name.to_owned(), Arc::new(map));
        if let (Some(directory), Some(earlier)) = (&pins, earlier) {
            let path = path(directory, name, version_of(&earlier)?);
            // One that stays is removed by the next process that opens the pins.
            let _ = std::fs::remove_file(path);
        }
        Ok(version)
    }

    /// After [`Dataplane::open_pinned`]: finds the map that the array has among the pinned ones.
    fn find_pinned(&self, directory: &Path) -> Result<()> {
        let (name, array) = (self.array_name()?, self.array()?);
        let failed = |error| Error::libbpf(format!("table {}", self.table.name), error);
        let found = array.lookup(&FIRST, MapFlags::ANY).map_err(failed)?;
        let number = found.map_or(0, |bytes| crate::layout::u32_at(&bytes, 0));
        let file = path(directory, name, TableVersion(number));
        let map = MapHandle::from_pinned_path(&file)
            .map_err(|error| Error::libbpf(format!("open pin {}", file.display()), error))?;
        for other in std::fs::read_dir(directory.join(DIRECTORY).join(name)).into_iter().flatten() {
            // Of a process that died between pinning a map and unpinning another.
            if let Some(other) = other.ok().map(|it| it.path()).filter(|it| *it != file) {
                let _ = std::fs::remove_file(other);
            }
        }
        if version_of(&map)? != TableVersion(number) {
            return self.fail("its pin is of another map");
        }
        lock(&self.dataplane.exchanged.current).insert(name.to_owned(), Arc::new(map));
        Ok(())
    }
}

impl Filled<'_> {
    /// [`Filled::exchange`] fails if the entries have another version then.
    #[must_use]
    pub fn expecting(mut self, version: Option<TableVersion>) -> Self {
        self.expected = version;
        self
    }

    /// Makes these the table's entries, as one. It returns when no running program has the earlier
    /// ones any more; frames that such a program has sent may still be on their way.
    ///
    /// # Errors
    /// The entries have another version than expected, or the kernel refuses: nothing is changed.
    pub fn exchange(self) -> Result<TableVersion> {
        let Filled { table, map, expected } = self;
        {
            let _one_at_a_time = lock(&table.dataplane.exchanged.changes);
            table.check_version(expected)?;
            table.put_in_place(map)?;
        }
        table.tell_all_own()?;
        table.version()
    }
}

impl TableRef<'_> {
    /// Is this the version of the entries? None fits all.
    ///
    /// # Errors
    /// It is not: names both.
    pub fn check_version(&self, expected: Option<TableVersion>) -> Result<()> {
        let Some(expected) = expected else { return Ok(()) };
        let version = self.version()?;
        if version != expected {
            return self.fail(format!(
                "its entries have version {version}, not {expected}: somebody changed them; read them again"
            ));
        }
        Ok(())
    }
}

impl Dataplane {
    fn exchanged_tables(&self) -> impl Iterator<Item = TableRef<'_>> {
        let exchanged = |table: &&Table| table.exchange;
        self.manifest
            .tables
            .iter()
            .filter(exchanged)
            .map(|table| TableRef { dataplane: self, table })
    }

    /// Pins the maps with entries, and each that follows.
    pub(crate) fn pin_exchanged(&self, directory: &Path) -> Result<()> {
        for table in self.exchanged_tables() {
            let map = table.current_map()?;
            pin(directory, table.array_name()?, &map, version_of(&map)?)?;
        }
        *lock(&self.exchanged.pins) = Some(directory.to_owned());
        Ok(())
    }

    /// Finds the maps with entries that another process pinned.
    pub(crate) fn open_exchanged(&self, directory: &Path) -> Result<()> {
        *lock(&self.exchanged.pins) = Some(directory.to_owned());
        self.exchanged_tables().try_for_each(|table| table.find_pinned(directory))
    }
}

impl Dataplane {
    /// Exchanges the map in the array of one map `array` for an array called `name` of `size`
    /// elements of `value_bytes` bytes each. `values`: index and bytes; other elements are zero. It
    /// returns when no running program has the earlier map any more. Nothing pins the new map: the
    /// array keeps it.
    ///
    /// # Errors
    /// The object has no such array, an index is out of range, or the kernel refuses: nothing is
    /// changed.
    pub fn exchange_array(
        &self,
        array: &str,
        name: &str,
        value_bytes: u32,
        size: u32,
        values: impl IntoIterator<Item = (u32, Vec<u8>)>,
    ) -> Result<()> {
        let failed = |error| Error::kernel(format!("exchange {array}"), error);
        let outer = self.required_map(array, "runtime")?;
        let map = create(MapType::Array, name, 4, value_bytes, size, 0, None).map_err(failed)?;
        for (index, value) in values {
            sys::map_update(&map, &index.to_ne_bytes(), &value, Update::Any).map_err(failed)?;
        }
        put(outer, &map).map_err(failed)
    }
}

/// Puts a map in the place of the one that an array of one map has. The kernel returns when no
/// running program has the earlier one any more.
fn put(array: &MapHandle, map: &MapHandle) -> io::Result<()> {
    sys::map_update(array, &FIRST, &map.as_fd().as_raw_fd().to_ne_bytes(), Update::Any)
}

fn path(directory: &Path, name: &str, version: TableVersion) -> PathBuf {
    directory.join(DIRECTORY).join(name).join(version.to_string())
}

fn pin(directory: &Path, name: &str, map: &MapHandle, version: TableVersion) -> Result<()> {
    let path = path(directory, name, version);
    let failed = |error: io::Error| Error::kernel(format!("pin {}", path.display()), error);
    std::fs::create_dir_all(directory.join(DIRECTORY).join(name)).map_err(failed)?;
    sys::pin(map.as_fd(), &path).map_err(failed)
}

/// The kernel's number of a map.
fn version_of(map: &MapHandle) -> Result<TableVersion> {
    let info = map.info().map_err(|error| Error::libbpf("a map's number", error))?;
    Ok(TableVersion(info.info.id))
}

fn short(name: &str) -> &str {
    let end = (0..=NAME_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    &name[..end.unwrap_or(0)]
}
