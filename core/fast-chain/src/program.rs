//! The program: loads it into the kernel, and puts it on interfaces.

use crate::count::Count;
use crate::layouts::{FastConfig, FastRecord, FastShard, LINE_ENTRIES};
use crate::map::Mapping;
use crate::memory::{Area, Memory, Shape, words_of};
use crate::route::let_routes_be_looked_up;
use c_layout::Member;
use libbpf_rs::libbpf_sys::{self as sys, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// As a file of ELF must lie.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/fast_chain.o")));

const PROGRAM: &str = "sp_fast_chain";
const COUNTS: &str = "sp_fast_counts";
/// In the order of [`Memory`]'s areas, each with the bytes of a value.
const MAPS: [(&str, usize); 4] = [
    ("sp_fast_config", FastConfig::BYTES),
    ("sp_fast_shards", FastShard::BYTES),
    ("sp_fast_records", FastRecord::BYTES),
    ("sp_fast_lines", LINE_ENTRIES * size_of::<u64>()),
];

/// What went wrong with the program.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The process may not use BPF.
    #[error(
        "{tried}: not permitted; run as root, or with CAP_BPF and CAP_NET_ADMIN, on Linux 6.1 or \
         later"
    )]
    NotPermitted {
        /// What was tried.
        tried: String,
    },
    /// The kernel has no room.
    #[error("{tried}: no memory; ask for fewer records")]
    NoMemory {
        /// What was tried.
        tried: String,
    },
    /// An interface has a program already.
    #[error("{tried}: it has another XDP program; take that off: ip link set dev NAME xdp off")]
    Taken {
        /// What was tried.
        tried: String,
    },
    /// The interface's driver does not do what the program needs.
    #[error("{tried}: the driver cannot {lacks}; use the generic mode")]
    Driver {
        /// What was tried.
        tried: String,
        /// What the driver cannot.
        lacks: &'static str,
    },
    /// A setting of the kernel cannot be changed.
    #[error("{setting}: {source}; set it to 1, or let this process write it")]
    Setting {
        /// Its file.
        setting: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel refuses for another reason.
    #[error("{tried}: {source}")]
    Kernel {
        /// What was tried.
        tried: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl LoadError {
    pub(crate) fn new(tried: impl Into<String>, source: io::Error) -> LoadError {
        let tried = tried.into();
        match source.raw_os_error() {
            Some(libc::EPERM) => LoadError::NotPermitted { tried },
            Some(libc::ENOMEM | libc::E2BIG) => LoadError::NoMemory { tried },
            Some(libc::EBUSY | libc::EEXIST) => LoadError::Taken { tried },
            Some(libc::EOPNOTSUPP) => LoadError::Driver { tried, lacks: "run XDP programs" },
            _ => LoadError::Kernel { tried, source },
        }
    }

    fn of_libbpf(tried: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> LoadError {
        move |error| {
            let source = match error.kind() {
                ErrorKind::PermissionDenied => io::Error::from_raw_os_error(libc::EPERM),
                ErrorKind::OutOfMemory => io::Error::from_raw_os_error(libc::ENOMEM),
                _ => io::Error::other(error),
            };
            LoadError::new(tried, source)
        }
    }
}

/// Where in the receive path the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, if that can also send what the program sends; else generic.
    Best,
    /// In the driver.
    Native,
    /// After the kernel made its packet buffer: works on every interface, slower.
    Generic,
}

/// The loaded program and its memory.
pub struct Program {
    object: Object,
    memory: Arc<Memory>,
}

impl Program {
    /// Loads the program, with memory of this shape.
    ///
    /// # Errors
    /// The process may not, or the kernel cannot.
    pub fn load(shape: Shape) -> Result<Program, LoadError> {
        let tried = format!("loading the chain's fast path for {} records", shape.records);
        let failed = || LoadError::of_libbpf(tried.clone());
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(failed())?;
        let words = words_of(&shape);
        for mut map in open.maps_mut() {
            let at = MAPS.iter().position(|(name, _)| map.name() == *name);
            let Some(at) = at else { continue };
            let values = u32::try_from(words[at] * size_of::<u64>() / MAPS[at].1);
            let values = values.map_err(|_| LoadError::NoMemory { tried: tried.clone() })?;
            map.set_max_entries(values).map_err(failed())?;
        }
        let object = open.load().map_err(failed())?;
        let mut areas = Vec::new();
        for ((name, _), words) in MAPS.iter().zip(words) {
            let mapping = map(&object, name).and_then(|map| Mapping::new(&map, words));
            areas.push(Area::Mapped(mapping.map_err(|error| LoadError::new(&tried, error))?));
        }
        let areas = areas.try_into().map_err(|_| LoadError::NoMemory { tried })?;
        Ok(Program { object, memory: Memory::of(areas, shape) })
    }

    /// What it shares with user space.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn program(&self) -> io::Result<libbpf_rs::Program<'_>> {
        self.object.progs().find(|it| it.name() == PROGRAM).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Puts the program on an interface of the calling thread's network namespace, until the
    /// [`Link`] is dropped. Routes of that namespace can be looked up from now on
    /// (`net.ipv4.conf.lo.forwarding`, which concerns no other traffic).
    ///
    /// # Errors
    /// The process may not, the driver cannot, or the interface has a program.
    pub fn attach(&self, ifindex: u32, mode: Mode) -> Result<Link, LoadError> {
        let_routes_be_looked_up()?;
        match mode {
            Mode::Generic => self.link(ifindex, XDP_FLAGS_SKB_MODE, "generic").map(Link),
            Mode::Native => self.native(ifindex),
            Mode::Best => match self.native(ifindex) {
                Err(LoadError::Driver { .. }) => self.attach(ifindex, Mode::Generic),
                other => other,
            },
        }
    }

    fn native(&self, ifindex: u32) -> Result<Link, LoadError> {
        let link = self.link(ifindex, XDP_FLAGS_DRV_MODE, "native")?;
        // Some drivers send such frames only while they have a program: asked afterwards. Frames
        // that the program redirects to others would be lost without a word.
        if can_send(ifindex)? {
            return Ok(Link(link));
        }
        let tried = format!("attaching to interface {ifindex}, native");
        Err(LoadError::Driver { tried, lacks: "send what XDP programs redirect" })
    }

    fn link(&self, ifindex: u32, flags: u32, mode: &str) -> Result<OwnedFd, LoadError> {
        let tried = || format!("attaching to interface {ifindex}, {mode}");
        let failed = |error| LoadError::new(tried(), error);
        let program = self.program().map_err(failed)?;
        let number = i32::try_from(ifindex).map_err(|_| failed(io::ErrorKind::NotFound.into()))?;
        let options = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as _,
            flags,
            ..Default::default()
        };
        let program = program.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open, `options` outlives the call and says its own size.
        let link = unsafe { sys::bpf_link_create(program, number, sys::BPF_XDP, &options) };
        if link < 0 {
            return Err(failed(io::Error::from_raw_os_error(-link)));
        }
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Link(unsafe { OwnedFd::from_raw_fd(link) }).0)
    }

    /// What the program counted, on all CPUs.
    ///
    /// # Errors
    /// The kernel refuses to tell.
    pub fn counts(&self) -> io::Result<Vec<(Count, u64)>> {
        let map = map(&self.object, COUNTS)?;
        let of = |count: &Count| {
            let values = map.lookup_percpu(&(*count as u32).to_ne_bytes(), MapFlags::ANY);
            let values = values.map_err(io::Error::other)?.unwrap_or_default();
            let numbers = values.iter().filter_map(|value| value.as_chunks().0.first());
            Ok((*count, numbers.map(|number| u64::from_ne_bytes(*number)).sum()))
        };
        Count::ALL.iter().map(of).collect()
    }

    /// A frame through the program, without an interface, for tests and measurements: the last of
    /// `repeat` runs. The frame of each run but the first is what the run before left.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn run(&mut self, frame: &[u8], repeat: u32) -> io::Result<Run> {
        let mut after = vec![0; frame.len()];
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut after),
            repeat,
            ..Default::default()
        };
        let mut programs = self.object.progs_mut();
        let program = programs.find(|it| it.name() == PROGRAM).ok_or(io::ErrorKind::NotFound)?;
        let output = program.test_run(input).map_err(io::Error::other)?;
        let bytes = output.data.map_or(0, |data| data.len());
        let (action, ns) = (output.return_value, output.duration.as_nanos() as u64);
        after.truncate(bytes);
        Ok(Run { action, frame: after, ns })
    }
}

/// What a run of the program gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The action of XDP: 2 passes to user space, 4 redirects.
    pub action: u32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// A run's time on the average.
    pub ns: u64,
}

/// The program on an interface: dropped, it takes the program off.
#[derive(Debug)]
pub struct Link(#[allow(dead_code, reason = "is held, not read")] OwnedFd);

fn map(object: &Object, name: &str) -> io::Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name).ok_or(io::ErrorKind::NotFound)?;
    MapHandle::try_from(&map).map_err(io::Error::other)
}

/// Whether the driver sends frames that XDP programs redirect to it. Kernels before 6.3 do not say.
fn can_send(ifindex: u32) -> Result<bool, LoadError> {
    const NDO_XMIT: u64 = 1 << 2; // NETDEV_XDP_ACT_NDO_XMIT
    const BASIC: u64 = 1;
    let tried = format!("asking what the driver of interface {ifindex} can");
    let number = i32::try_from(ifindex)
        .map_err(|_| LoadError::new(&tried, io::ErrorKind::NotFound.into()))?;
    let mut options = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: `options` outlives the call and says its own size.
    let result = unsafe { sys::bpf_xdp_query(number, 0, &mut options) };
    if result < 0 {
        return Err(LoadError::new(tried, io::Error::from_raw_os_error(-result)));
    }
    let features = options.feature_flags;
    Ok(features & BASIC == 0 || features & NDO_XMIT != 0)
}
