//! How long a switch's XDP program runs for a packet, as the kernel counts it (BPF_ENABLE_STATS):
//! with all that it tail-calls, whatever else the machine does.

use crate::labs::Running;
use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys as sys;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The kernel counts as long as this lives. (It costs each run two looks at the clock, alike for
/// all programs.)
pub struct Counting(
    #[expect(dead_code, reason = "counting ends when the descriptor is closed")] OwnedFd,
);

fn owned(descriptor: i32, what: &str) -> Result<OwnedFd> {
    if descriptor < 0 {
        return Err(std::io::Error::from_raw_os_error(-descriptor)).context(what.to_owned());
    }
    // SAFETY: just opened by the kernel, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl Counting {
    /// Begins.
    ///
    /// # Errors
    /// Not allowed.
    pub fn begin() -> Result<Counting> {
        // SAFETY: takes an integer, returns a descriptor or a negative errno.
        owned(
            unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) },
            "counting the time of BPF programs",
        )
        .map(Counting)
    }
}

/// The XDP programs of a switch's interfaces: that of its ports, and that of the loop by which
/// copies of frames come in, if packets wait in the switch.
pub struct Programs(Vec<OwnedFd>);

impl Programs {
    /// Finds them.
    ///
    /// # Errors
    /// No interface has a program.
    pub fn of(lab: &Running, switch: &str) -> Result<Programs> {
        let text = lab.run(switch, &["ip", "-json", "link", "show"])?;
        let links: serde_json::Value = serde_json::from_str(&text).context("ip -json link")?;
        let ids: BTreeSet<u64> = links
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|link| link["xdp"]["prog"]["id"].as_u64())
            .collect();
        anyhow::ensure!(!ids.is_empty(), "{switch}: no XDP on any interface");
        let open = |id: u64| {
            // SAFETY: takes an integer, returns a descriptor or a negative errno.
            owned(unsafe { sys::bpf_prog_get_fd_by_id(u32::try_from(id)?) }, "a switch's program")
        };
        ids.into_iter().map(open).collect::<Result<_>>().map(Programs)
    }

    /// Time of all their runs so far, in ns.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn run_ns(&self) -> Result<u64> {
        self.0.iter().map(|program| Ok(information(program.as_fd())?.run_time_ns)).sum()
    }
}

/// What the kernel tells of a program.
///
/// # Errors
/// It tells nothing.
pub fn information(program: BorrowedFd<'_>) -> Result<sys::bpf_prog_info> {
    let mut information = sys::bpf_prog_info::default();
    let mut bytes = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: the structure and its length are live for the call, which writes no more than that
    // many bytes.
    let result = unsafe {
        sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            (&raw mut information).cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error()).context("program information");
    }
    Ok(information)
}
