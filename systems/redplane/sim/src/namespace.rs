//! The kernel's routes that nat.p4 and load_balancer.p4 ask for: a network namespace of the
//! thread's own, in which everything goes to one neighbour out of one link.

use nix::sched::{CloneFlags, unshare};
use std::cell::Cell;
use std::io::Write;
use std::process::{Command, Stdio};

/// Where the routed packets leave.
pub(crate) const LINK: &str = "sim3";
const COMMANDS: &str = "link set lo up
link add sim3 address 02:00:00:00:00:03 type veth peer name simpeer
link set simpeer up
link set sim3 up
address add 192.0.2.1/24 dev sim3
neighbor replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev sim3 nud permanent
route add default via 192.0.2.2 dev sim3
";

thread_local! {
    /// The index of `LINK`, once this thread has its namespace.
    static ENTERED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Moves the calling thread to a namespace of its own, unless it is there already; the index of
/// `LINK`. The kernel removes the namespace with the thread.
pub(crate) fn enter() -> Result<u32, String> {
    if let Some(index) = ENTERED.get() {
        return Ok(index);
    }
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|error| format!("making a network namespace: {error}; that needs root"))?;
    // Before there are links: they inherit it. `lo` is where test packets come from.
    let forward = "/proc/sys/net/ipv4/ip_forward";
    std::fs::write(forward, "1").map_err(|error| format!("{forward}: {error}"))?;
    let failed = |error: std::io::Error| format!("running `ip` (iproute2): {error}");
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = ip.stdin.take() {
        input.write_all(COMMANDS.as_bytes()).map_err(failed)?;
    }
    let output = ip.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(format!("`ip -batch`: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let index = nix::net::if_::if_nametoindex(LINK).map_err(|error| format!("{LINK}: {error}"))?;
    ENTERED.set(Some(index));
    Ok(index)
}
