//! From an object file to loaded programs and maps.

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::sys;
use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{AsRawLibbpf, Btf, MapCore, MapHandle, ObjectBuilder, OpenObject, PrintLevel};
use manifest::Manifest;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};

/// Room for a verifier's log; the kernel keeps the end when it is not enough.
const LOG_BYTES: usize = 4 << 20;

/// What the object's settings (its constants) are before it is loaded: branches that a setting
/// rules out vanish from the loaded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// Packets come from a test, verdicts go to the test (map `sp_test`).
    pub test_mode: bool,
    /// ARP, neighbour discovery and packets for the host's own addresses go to the kernel before
    /// the P4 program sees them.
    pub host_traffic: bool,
    /// Time comes from map `sp_test`.
    pub virtual_clock: bool,
}

/// An object file that is opened and not yet loaded.
pub struct Object {
    path: PathBuf,
    manifest: Manifest,
    open: OpenObject,
}

/// libbpf's warnings since the last look: they say what its error numbers don't.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
            if let Ok(mut warnings) = WARNINGS.lock() {
                // Bounded: nobody may ever look.
                if warnings.len() < 64 {
                    warnings.push(text.trim().to_owned());
                }
            }
        })));
    });
    take_warnings();
}

fn take_warnings() -> Vec<String> {
    WARNINGS.lock().map(|mut warnings| std::mem::take(&mut *warnings)).unwrap_or_default()
}

impl Object {
    /// Opens an object file; `manifest` must be the one that was made with it.
    pub fn open(path: &Path, manifest: Manifest) -> Result<Object> {
        keep_warnings();
        let shown = path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(|error| Error::Object { path: shown.clone(), reason: error.to_string() })?;
        // From memory: libbpf's own error for a missing or foreign file says less.
        let open = ObjectBuilder::default().open_memory(&bytes).map_err(|error| Error::Object {
            path: shown.clone(),
            reason: format!("not a BPF object ({error}); compile it with `stateplane compile`"),
        })?;
        if !open.progs().any(|program| program.name() == "sp_main") {
            let reason =
                "it has no program `sp_main`; compile it with `stateplane compile`".to_owned();
            return Err(Error::Object { path: shown, reason });
        }
        Ok(Object { path: path.to_owned(), manifest, open })
    }

    /// Sets the settings that the object has.
    pub fn set(&mut self, settings: Settings) -> Result<()> {
        self.set_constant("sp_test_mode", u32::from(settings.test_mode))?;
        self.set_constant("sp_host_traffic", u32::from(settings.host_traffic))?;
        self.set_constant("sp_virtual_clock", u32::from(settings.virtual_clock))?;
        let ordered = cfg!(target_arch = "x86_64");
        self.set_constant("sp_total_store_order", u32::from(ordered))?;
        Ok(())
    }

    /// Sets a `const volatile __u32` of the object; false if it has none of that name.
    pub fn set_constant(&mut self, name: &str, value: u32) -> Result<bool> {
        let Some(offset) = self.constant_offset(name)? else { return Ok(false) };
        for mut map in self.open.maps_mut() {
            if !map.name().to_string_lossy().ends_with(".rodata") {
                continue;
            }
            if let Some(bytes) =
                map.initial_value_mut().and_then(|data| data.get_mut(offset..offset + 4))
            {
                bytes.copy_from_slice(&value.to_ne_bytes());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where in `.rodata` a constant lies.
    fn constant_offset(&self, name: &str) -> Result<Option<usize>> {
        let no_types =
            |reason: String| Error::Object { path: self.path.display().to_string(), reason };
        // SAFETY: the pointer is to the object that `self.open` owns, and the reference does not
        // outlive this function.
        let raw = unsafe { self.open.as_libbpf_object().as_ref() };
        let btf = Btf::from_bpf_object(raw)
            .map_err(|error| no_types(format!("its type information cannot be read: {error}")))?
            .ok_or_else(|| {
                no_types("it has no type information (BTF); compile it with -g".to_owned())
            })?;
        let Some(section) = btf.type_by_name::<DataSec<'_>>(".rodata") else { return Ok(None) };
        let found = section.iter().find(|variable| {
            btf.type_by_id::<Var<'_>>(variable.ty)
                .is_some_and(|var| var.name().is_some_and(|found| found == name))
        });
        Ok(found.map(|variable| variable.offset as usize))
    }

    /// Gives a map another size before loading.
    pub fn set_map_size(&mut self, name: &str, entries: u32) -> Result<bool> {
        for mut map in self.open.maps_mut() {
            if map.name() == name {
                map.set_max_entries(entries)
                    .map_err(|error| Error::libbpf(format!("size of map {name}"), error))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Opens and loads an object in a thread that gets less CPU time than others: the kernel
    /// verifies a large program for seconds, and what the machine does already goes first.
    /// `prepare` may set constants and sizes.
    pub fn open_and_load(
        path: &Path,
        manifest: Manifest,
        prepare: impl FnOnce(&mut Object) -> Result<()> + Send,
    ) -> Result<Dataplane> {
        let work = || {
            let mut object = Object::open(path, manifest)?;
            prepare(&mut object)?;
            object.load()
        };
        let done = std::thread::scope(|scope| scope.spawn(|| sys::behind_others(work)).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Loads programs and maps into the kernel, and fills in the tables' default actions and
    /// initial entries.
    pub fn load(mut self) -> Result<Dataplane> {
        let path = self.path.display().to_string();
        let mut log = vec![0u8; LOG_BYTES];
        for program in self.open.progs_mut() {
            // SAFETY: the program belongs to `self.open`; `log` outlives the load below, after
            // which libbpf no longer writes to it.
            let result = unsafe {
                libbpf_rs::libbpf_sys::bpf_program__set_log_buf(
                    program.as_libbpf_object().as_ptr(),
                    log.as_mut_ptr().cast(),
                    log.len() as _,
                )
            };
            if result != 0 {
                return Err(Error::kernel(
                    "verifier log",
                    std::io::Error::from_raw_os_error(-result),
                ));
            }
        }
        take_warnings();
        let object = self.open.load().map_err(|error| load_error(&path, &log, error))?;
        let mut dataplane = Dataplane::description_only(self.manifest);
        for map in object.maps() {
            let name = map.name().to_string_lossy().into_owned();
            let handle = MapHandle::try_from(&map)
                .map_err(|error| Error::libbpf(format!("map {name}"), error))?;
            dataplane.maps.insert(name, handle);
        }
        for program in object.progs() {
            let name = program.name().to_string_lossy().into_owned();
            let descriptor = program
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| Error::kernel(format!("program {name}"), error))?;
            dataplane.programs.insert(name, descriptor);
        }
        dataplane.initialise()?;
        Ok(dataplane)
    }
}

/// Why a load failed: the verifier, missing rights, or something else.
fn load_error(path: &str, log: &[u8], error: libbpf_rs::Error) -> Error {
    let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default())
        .into_owned();
    let warnings = take_warnings();
    // "prog 'sp_main': failed to load: -EACCES" is libbpf's; a verifier log without missing rights
    // is a rejection.
    let failed = warnings
        .iter()
        .find_map(|line| line.strip_prefix("libbpf: prog '")?.split_once('\'')?.0.into());
    if !text.trim().is_empty() {
        let program = failed.map_or_else(|| "?".to_owned(), |name: &str| name.to_owned());
        return Error::Verifier { path: path.to_owned(), program, log: text };
    }
    if matches!(error.kind(), libbpf_rs::ErrorKind::PermissionDenied) {
        return Error::NotPermitted { action: format!("{path}: load") };
    }
    let mut reason = format!("cannot be loaded: {error:#}");
    for line in warnings.iter().take(8) {
        reason += "\n  ";
        reason += line;
    }
    Error::Object { path: path.to_owned(), reason }
}
