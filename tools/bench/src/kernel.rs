//! BPF system calls that the measurements need beyond the `dataplane` crate's: objects written in
//! C, and timed runs.

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use nix::time::{ClockId, clock_gettime};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// XDP's verdict for a redirect.
pub const XDP_REDIRECT: u32 = 4;

/// An object written in C, loaded.
pub struct CObject {
    object: Object,
    path: String,
}

impl CObject {
    /// Loads an object file; `sizes` are maps that get another number of entries.
    pub fn load(path: &Path, sizes: &[(&str, u32)]) -> Result<CObject> {
        let shown = path.display().to_string();
        let mut open =
            ObjectBuilder::default().open_file(path).with_context(|| format!("open {shown}"))?;
        for (name, entries) in sizes {
            let mut map = open
                .maps_mut()
                .find(|map| map.name() == *name)
                .with_context(|| format!("{shown}: {name}"))?;
            map.set_max_entries(*entries).with_context(|| format!("{shown}: size of {name}"))?;
        }
        let object = open.load().with_context(|| format!("load {shown}"))?;
        Ok(CObject { object, path: shown })
    }

    /// A map by name.
    pub fn map(&self, name: &str) -> Result<MapHandle> {
        let map = self.object.maps().find(|map| map.name() == name);
        MapHandle::try_from(&map.with_context(|| format!("{}: no map {name}", self.path))?)
            .with_context(|| format!("{}: map {name}", self.path))
    }

    /// Calls a function with a program's descriptor.
    pub fn with_program<T>(
        &self,
        name: &str,
        work: impl FnOnce(BorrowedFd<'_>) -> Result<T>,
    ) -> Result<T> {
        let program = self.object.progs().find(|program| program.name() == name);
        work(program.with_context(|| format!("{}: no program {name}", self.path))?.as_fd())
    }

    /// The object itself, for what this type does not do.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Attaches a program to an interface of the calling thread's namespace.
    pub fn attach(&mut self, name: &str, ifindex: u32) -> Result<Link> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let program = program.with_context(|| format!("{}: no program {name}", self.path))?;
        program.attach_xdp(ifindex as i32).with_context(|| format!("{}: attach {name}", self.path))
    }
}

/// Writes an element of a map.
pub fn write(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<()> {
    map.update(key, value, MapFlags::ANY).with_context(|| {
        format!("write map {} (of {} entries)", map.name().to_string_lossy(), map.max_entries())
    })
}

/// Sums the 8-byte word at `offset` of a per-CPU array's first element.
pub fn sum_percpu(map: &MapHandle, offset: usize) -> Result<u64> {
    let values =
        map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?.context("empty per-CPU array")?;
    let word =
        |value: &Vec<u8>| value.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
    Ok(values.iter().filter_map(word).map(u64::from_ne_bytes).sum())
}

/// Puts frames, none longer than `most_bytes` (FRAME_BYTES of the object's source), into the list
/// of an object that includes tools/bench/setups/feed.h; the first comes next.
pub fn write_frames(object: &CObject, frames: &[Vec<u8>], most_bytes: usize) -> Result<()> {
    if let Some(frame) = frames.iter().find(|frame| frame.len() > most_bytes) {
        bail!("a frame of {} bytes is longer than {most_bytes}", frame.len());
    }
    write_heads(object, frames, most_bytes)
}

/// The same for frames of any length, for a program that makes the first bytes of each and leaves
/// the rest zero, but for the length.
///
/// # Errors
/// As [`write_frames`].
pub fn write_heads(object: &CObject, frames: &[Vec<u8>], head_bytes: usize) -> Result<()> {
    let list = object.map("list")?;
    for (index, frame) in frames.iter().enumerate() {
        let mut element = (frame.len() as u32).to_ne_bytes().to_vec();
        element.extend_from_slice(&[0; 4]);
        element.extend_from_slice(&frame[..frame.len().min(head_bytes)]);
        element.resize(8 + head_bytes, 0);
        write(&list, &(index as u32).to_ne_bytes(), &element)?;
    }
    next_frame(object, u32::try_from(frames.len())?, 0)
}

/// Which of so many frames of the list comes next.
pub fn next_frame(object: &CObject, frames: u32, next: u32) -> Result<()> {
    let mut position = frames.to_ne_bytes().to_vec();
    position.extend_from_slice(&next.to_ne_bytes());
    write(&object.map("position")?, &0u32.to_ne_bytes(), &position)
}

/// What a run gave.
pub struct Run {
    /// XDP verdict of the last repetition.
    pub verdict: u32,
    /// The frame as the last repetition left it.
    pub frame: Vec<u8>,
    /// CPU time that this thread took for all of it, in nanoseconds.
    pub cpu_ns: u64,
}

fn cpu_clock_ns() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// BPF_PROG_RUN, `repeat` times on one frame that came in on an interface of the calling thread's
/// namespace.
pub fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    ingress_ifindex: u32,
    repeat: u32,
) -> Result<Run> {
    let mut output = vec![0u8; frame.len() + 256];
    let context =
        sys::xdp_md { data_end: frame.len() as u32, ingress_ifindex, ..Default::default() };
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: output.as_mut_ptr().cast(),
        data_size_out: output.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: i32::try_from(repeat)?,
        ..Default::default()
    };
    let start = cpu_clock_ns()?;
    // SAFETY: every pointer in `options` points to a live buffer of the length said beside it.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    let cpu_ns = cpu_clock_ns()? - start;
    if result < 0 {
        return Err(anyhow!(io::Error::from_raw_os_error(-result)).context("BPF_PROG_RUN"));
    }
    output.truncate(options.data_size_out as usize);
    Ok(Run { verdict: options.retval, frame: output, cpu_ns })
}

/// BPF_PROG_RUN with live frames: the kernel makes `repeat` frames and carries out the program's
/// verdicts. They come in on an interface of the calling thread's namespace that runs an XDP
/// program; 0: on none.
pub fn run_live(
    program: BorrowedFd<'_>,
    frame: &[u8],
    ingress_ifindex: u32,
    repeat: u32,
) -> Result<()> {
    let context =
        sys::xdp_md { data_end: frame.len() as u32, ingress_ifindex, ..Default::default() };
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: i32::try_from(repeat)?,
        flags: sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: 64,
        ..Default::default()
    };
    // SAFETY: every pointer in `options` points to a live buffer of the length said beside it.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(
            anyhow!(io::Error::from_raw_os_error(-result)).context("BPF_PROG_RUN with live frames")
        );
    }
    Ok(())
}

/// Keeps the calling thread on one CPU.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    pin_thread(0, cpu)
}

fn pin_thread(thread: i32, cpu: usize) -> Result<()> {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu)?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(thread), &set)
        .with_context(|| format!("CPU {cpu}"))
}

/// Keeps a thread on one CPU, with this priority.
///
/// # Errors
/// There is no such thread, or the kernel refuses.
pub fn keep_on_cpu(thread: i32, cpu: usize, nice: i32) -> Result<()> {
    pin_thread(thread, cpu)?;
    // SAFETY: a plain system call.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.cast_unsigned(), nice) };
    if done != 0 {
        return Err(io::Error::last_os_error()).with_context(|| format!("thread {thread}"));
    }
    Ok(())
}
