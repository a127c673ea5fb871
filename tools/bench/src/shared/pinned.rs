//! One CPU for all packets that come to a namespace: the kernel's threads for its interfaces run
//! there. (By itself the kernel polls a veth on the CPU that filled it.)

use crate::kernel::keep_on_cpu;
use anyhow::{Context, Result, ensure};
use lab::netns::Netns;
use std::collections::BTreeSet;
use std::process::Command;

/// Of the threads: what they do is done before everything else without them.
const NICE: i32 = -20;

/// The kernel's threads that poll interfaces.
fn threads() -> Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").context("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // (It may have ended since.)
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.starts_with("napi/") {
            found.insert(pid);
        }
    }
    Ok(found)
}

/// What comes to these interfaces, which run XDP programs, is handled on this CPU from now on.
///
/// # Errors
/// The kernel has no threads for them, or refuses.
pub fn pin_links(netns: &Netns, links: &[String], cpu: usize) -> Result<()> {
    let before = threads()?;
    for link in links {
        let file = format!("/sys/class/net/{link}/threaded");
        // (It mounts the namespace's /sys.)
        let mut command = Command::new("ip");
        command.args(["netns", "exec", netns.name(), "sh", "-c", &format!("echo 1 > {file}")]);
        let output = command.output().context("ip netns exec")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{file} in {}: {}", netns.name(), said.trim());
    }
    let mut pinned = 0;
    for pid in threads()?.difference(&before) {
        keep_on_cpu(*pid, cpu, NICE)?;
        pinned += 1;
    }
    ensure!(pinned >= links.len(), "{pinned} threads poll {} links", links.len());
    Ok(())
}
