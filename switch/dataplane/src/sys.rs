//! The BPF system calls that libbpf-rs does not offer: pins, XDP links with flags, test runs with a
//! context. No policy.

use libbpf_rs::libbpf_sys as sys;
use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// libbpf's functions return a negative errno.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// What the driver of an interface says that it can do with XDP (NETDEV_XDP_ACT_*); 0: nothing, or
/// it says nothing.
pub(crate) fn xdp_feature_flags(ifindex: u32) -> io::Result<u64> {
    let index = i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut options = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: libbpf writes no more than `sz` bytes to a struct of that size, which outlives the
    // call.
    check(unsafe { sys::bpf_xdp_query(index, 0, &mut options) })?;
    Ok(options.feature_flags)
}

/// Pins a map, program or link on a bpffs.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the descriptor is open and the path is a NUL-terminated string that outlives the
    // call.
    check(unsafe { sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens a pinned map, program or link.
pub(crate) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    let descriptor = check(unsafe { sys::bpf_obj_get(path.as_ptr()) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Fetches up to `batch` entries of a hash map from `place` on (`None`: from its beginning): how
/// many, and whether these were the last. `next` becomes the place after them.
pub(crate) fn map_lookup_batch(
    map: BorrowedFd<'_>,
    place: Option<&[u8]>,
    next: &mut [u8],
    keys: &mut [u8],
    values: &mut [u8],
    batch: usize,
) -> io::Result<(usize, bool)> {
    let options = sys::bpf_map_batch_opts {
        sz: size_of::<sys::bpf_map_batch_opts>() as _,
        ..Default::default()
    };
    let mut count =
        u32::try_from(batch).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the map is open; the kernel reads a place (4 bytes, for a hash map) from `place`,
    // writes one to `next`, and at most `batch` keys and values to buffers that the caller made for
    // as many.
    let result = unsafe {
        sys::bpf_map_lookup_batch(
            map.as_raw_fd(),
            place.map_or(std::ptr::null_mut(), |place| place.as_ptr().cast_mut().cast()),
            next.as_mut_ptr().cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &mut count,
            &options,
        )
    };
    match check(result) {
        Ok(_) => Ok((count as usize, false)),
        // The end: what was found before it counts.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok((count as usize, true)),
        Err(error) => Err(error),
    }
}

/// Attaches an XDP program to an interface by a link; `flags` are `XDP_FLAGS_*`.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: all-zero bytes are a valid value of this C struct of integers and pointers.
    let mut options: sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of::<sys::bpf_link_create_opts>() as _;
    options.flags = flags;
    let ifindex =
        i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the descriptor is open, `options` outlives the call and says its own size.
    let descriptor = check(unsafe {
        sys::bpf_link_create(program.as_raw_fd(), ifindex, sys::BPF_XDP, &options)
    })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Puts another program under a link, atomically.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; null options are allowed.
    check(unsafe { sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) })
        .map(drop)
}

/// Detaches a link from its interface, pinned or not.
pub(crate) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { sys::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

/// The interface index (0: detached) and program id of an XDP link.
pub(crate) fn link_info(link: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    // SAFETY: all-zero bytes are a valid value of this C struct of integers and unions of integers.
    let mut info: sys::bpf_link_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<sys::bpf_link_info>() as u32;
    // SAFETY: `info` has room for `length` bytes, and both outlive the call.
    check(unsafe {
        sys::bpf_obj_get_info_by_fd(link.as_raw_fd(), (&raw mut info).cast(), &raw mut length)
    })?;
    // SAFETY: every variant of the union is plain integers, so reading the XDP one is defined
    // whatever the kernel wrote.
    let ifindex = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    Ok((ifindex, info.prog_id))
}

/// A program's id.
pub(crate) fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = sys::bpf_prog_info::default();
    let mut length = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: `info` has room for `length` bytes, asks for no arrays, and both outlive the call.
    check(unsafe {
        sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut length)
    })?;
    Ok(info.id)
}

/// What one test run gave.
pub(crate) struct TestRun {
    /// The XDP verdict.
    pub verdict: u32,
    /// Bytes written to the output buffer.
    pub bytes: usize,
    /// Nanoseconds a run.
    pub duration_ns: u32,
}

/// BPF_PROG_TEST_RUN on one frame. `output` must hold the frame as the program leaves it.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    ingress_ifindex: u32,
    repeat: u32,
    output: &mut [u8],
) -> io::Result<TestRun> {
    let length =
        u32::try_from(frame.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let context = sys::xdp_md { data_end: length, ingress_ifindex, ..Default::default() };
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: length,
        data_out: output.as_mut_ptr().cast(),
        data_size_out: u32::try_from(output.len()).unwrap_or(u32::MAX),
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: i32::try_from(repeat).unwrap_or(i32::MAX),
        ..Default::default()
    };
    // SAFETY: every pointer in `options` points to a live buffer of the length said beside it.
    check(unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok(TestRun {
        verdict: options.retval,
        bytes: options.data_size_out as usize,
        duration_ns: options.duration,
    })
}

/// BPF_PROG_TEST_RUN with live frames: the kernel makes `repeat` frames out of `frame`, as if they
/// came in on the interface, and carries out the program's verdicts. This is the packet generator.
pub(crate) fn test_run_live(
    program: BorrowedFd<'_>,
    frame: &[u8],
    ingress_ifindex: u32,
    repeat: u32,
    batch: u32,
) -> io::Result<()> {
    let length =
        u32::try_from(frame.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let context = sys::xdp_md { data_end: length, ingress_ifindex, ..Default::default() };
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: length,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: i32::try_from(repeat).unwrap_or(i32::MAX),
        flags: sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
        ..Default::default()
    };
    // SAFETY: every pointer in `options` points to a live buffer of the length said beside it.
    check(unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) }).map(drop)
}

/// BPF_PROG_TEST_RUN with one live frame behind metadata (a multiple of four bytes, 32 at most).
pub(crate) fn test_run_once_live(
    program: BorrowedFd<'_>,
    metadata: &[u8],
    frame: &[u8],
    ingress_ifindex: u32,
) -> io::Result<()> {
    let input = [metadata, frame].concat();
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let length = u32::try_from(input.len()).map_err(invalid)?;
    let begin = u32::try_from(metadata.len()).map_err(invalid)?;
    let context =
        sys::xdp_md { data: begin, data_end: length, ingress_ifindex, ..Default::default() };
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        data_in: input.as_ptr().cast(),
        data_size_in: length,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: 1,
        flags: sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        ..Default::default()
    };
    // SAFETY: every pointer in `options` points to a live buffer of the length said beside it.
    check(unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) }).map(drop)
}

/// How an update treats an element that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// Create or replace.
    Any = 0,
    /// Only create.
    Create = 1,
    /// Only replace.
    Replace = 2,
}

/// Writes an element; the lengths must be the map's own (checked by the caller).
fn map_update_raw(map: BorrowedFd<'_>, key: &[u8], value: &[u8], how: Update) -> io::Result<()> {
    // SAFETY: key and value are as long as the map's (the caller checks), and outlive the call.
    check(unsafe {
        sys::bpf_map_update_elem(
            map.as_raw_fd(),
            key.as_ptr().cast(),
            value.as_ptr().cast(),
            how as u64,
        )
    })
    .map(drop)
}

/// Writes an element of a map that is not per-CPU.
pub(crate) fn map_update(
    map: &libbpf_rs::MapHandle,
    key: &[u8],
    value: &[u8],
    how: Update,
) -> io::Result<()> {
    use libbpf_rs::MapCore;
    use std::os::fd::AsFd;
    if key.len() != map.key_size() as usize
        || value.len() != map.value_size() as usize
        || map.map_type().is_percpu()
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "key of {} and value of {} bytes, but the map has {} and {}",
                key.len(),
                value.len(),
                map.key_size(),
                map.value_size()
            ),
        ));
    }
    map_update_raw(map.as_fd(), key, value, how)
}

/// Nice value of work that others should not wait for.
const BEHIND_OTHERS: i8 = 3;
/// Where a kernel that groups tasks by session keeps the nice value of this one: a thread's own
/// counts within the session only.
const SESSION: &str = "/proc/self/autogroup";

/// Does work that gets half of the CPU time of other work that wants the CPU, and all of it when
/// none does. (With much less, switches that start on a busy machine come too late for a cluster
/// that begins.) The thread stays behind others: it should end soon.
pub(crate) fn behind_others<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the call has no pointers; 0 is the calling thread. Without it the work is done as
    // well.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, BEHIND_OTHERS.into()) };
    // ("/autogroup-NUMBER nice VALUE"; there is none in a control group.)
    let before = std::fs::read_to_string(SESSION).ok();
    let before = before.as_deref().and_then(|text| text.trim().rsplit_once(' '));
    let before = before.and_then(|(_, nice)| nice.parse::<i8>().ok());
    let before = before.filter(|nice| *nice < BEHIND_OTHERS);
    let set = |nice: i8| drop(std::fs::write(SESSION, nice.to_string()));
    before.iter().for_each(|_| set(BEHIND_OTHERS));
    let done = work();
    before.into_iter().for_each(set);
    done
}

/// Whether it may.
fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one struct, which outlives the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}

/// From now on the calling thread gets a CPU before all threads that do not ask for the same: for
/// one that has little to do, which cannot wait, and for those that hold locks that it takes.
/// Threads that it starts get none of it. False: it has no right to (CAP_SYS_NICE), and nothing
/// changes.
pub fn before_others() -> bool {
    schedule(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1)
}

/// Does work that may take long, in a thread that [`before_others`] was called in, as any other
/// thread would.
pub fn among_others<T>(work: impl FnOnce() -> T) -> T {
    schedule(libc::SCHED_OTHER, 0);
    let done = work();
    before_others();
    done
}
