//! The kernel's routes that nat.p4 and load_balancer.p4 ask for: a network namespace of the
//! thread's own, in which everything goes to one neighbour out of one link.

use std::cell::Cell;

/// Where the routed packets leave.
pub(crate) const LINK: &str = "sim3";
const COMMANDS: [&str; 7] = [
    "link set lo up",
    "link add sim3 address 02:00:00:00:00:03 type veth peer name simpeer",
    "link set simpeer up",
    "link set sim3 up",
    "address add 192.0.2.1/24 dev sim3",
    "neighbor replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev sim3 nud permanent",
    "route add default via 192.0.2.2 dev sim3",
];

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
    netns::unshare_thread().map_err(|error| error.to_string())?;
    netns::forward().map_err(|error| error.to_string())?;
    netns::ip_batch(&COMMANDS).map_err(|error| error.to_string())?;
    let index = nix::net::if_::if_nametoindex(LINK).map_err(|error| format!("{LINK}: {error}"))?;
    ENTERED.set(Some(index));
    Ok(index)
}
