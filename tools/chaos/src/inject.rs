//! Faults done and undone.

use crate::plan::Fault;
use lab::error::{Error, Result};
use lab::instance::Lab;
use lab::netns::Netns;
use lab::process;
use lab::topology::Role;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use simnet::{Cut, Direction, Links};

/// The daemon that each node with BGP has.
const ROUTING: &str = "bird";

/// Makes it go wrong.
///
/// # Errors
/// The lab refuses: then the run is worth nothing.
pub fn begin(lab: &Lab, fault: &Fault) -> Result<()> {
    match fault {
        Fault::Crash { machine, keeps_state: false } => lab.fail(machine),
        Fault::Cut(Cut { machine, peer: Some(router), direction: Direction::Carrier }) => {
            lab.set_link(machine, router, false)
        }
        Fault::Cut(Cut { machine, peer: Some(router), direction }) => {
            let table = table(machine);
            let hook = |hook: &str| {
                let filter = format!(
                    "type filter hook {hook} device \"{machine}\" priority 0; policy drop;"
                );
                format!("add chain netdev {table} {hook} {{ {filter} }}")
            };
            // At the router, whose interface is called after the node.
            let mut rules = vec![format!("add table netdev {table}")];
            if *direction != Direction::OutOf {
                rules.push(hook("egress"));
            }
            if *direction != Direction::Into {
                rules.push(hook("ingress"));
            }
            nft(&lab.netns(router)?, &rules.join("; "))
        }
        Fault::Process { machine, process } => lab.kill_daemon(machine, process),
        Fault::Freeze { machine } => signal(lab, machine, Signal::SIGSTOP),
        Fault::Links(Links::Loss { percent }) => {
            for netns in routers(lab)? {
                lose(&netns, PORT, *percent)?;
            }
            Ok(())
        }
        _ => Err(not_in_a_lab(fault)),
    }
}

/// Repairs it, as far as a repair goes at once: see [`crate::whole`].
///
/// # Errors
/// Something does not come back.
pub fn end(lab: &Lab, fault: &Fault) -> Result<()> {
    match fault {
        Fault::Crash { machine, keeps_state: false } => lab.restore(machine),
        Fault::Cut(Cut { machine, peer: Some(router), direction: Direction::Carrier }) => {
            lab.set_link(machine, router, true)
        }
        Fault::Cut(Cut { machine, peer: Some(router), .. }) => {
            nft(&lab.netns(router)?, &format!("delete table netdev {}", table(machine)))
        }
        Fault::Process { machine, process } => lab.restart_daemon(machine, process),
        Fault::Freeze { machine } => signal(lab, machine, Signal::SIGCONT),
        Fault::Links(Links::Loss { .. }) => {
            for netns in routers(lab)? {
                lose_none(&netns)?;
            }
            Ok(())
        }
        _ => Err(not_in_a_lab(fault)),
    }
}

/// To all daemons of a node but its routing. (A lab's nodes share one kernel, which does not stand
/// still for one of them: neither do routes and programs on ports.)
fn signal(lab: &Lab, node: &str, signal: Signal) -> Result<()> {
    for (daemon, identity) in lab.daemons(node) {
        if daemon == ROUTING {
            continue;
        }
        match kill(Pid::from_raw(identity.pid), signal) {
            // It has ended.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => {
                let command = format!("{signal} to {daemon} of {node}");
                return Err(Error::Command { command, reason: error.to_string() });
            }
        }
    }
    Ok(())
}

/// Only a simulation can do it.
fn not_in_a_lab(fault: &Fault) -> Error {
    Error::Command {
        command: fault.to_string(),
        reason: "only a simulation has this fault".to_string(),
    }
}

fn table(node: &str) -> String {
    format!("chaos_{}", node.replace('-', "_"))
}

/// Of requests, replies and the chain's own messages.
const PORT: u16 = 5407;

/// From now on a router loses this share, in percent, of the UDP datagrams from or to a port. A
/// router loses those of one port at a time.
///
/// # Errors
/// nftables refuses.
pub fn lose(router: &Netns, port: u16, percent: u8) -> Result<()> {
    let lose = format!("numgen random mod 100 < {percent} counter drop");
    let forward = "ip chaos_loss forward";
    // (Messages between two such ports are counted once.)
    let rules = [
        "add table ip chaos_loss".to_owned(),
        format!("add chain {forward} {{ type filter hook forward priority 0; }}"),
        format!("add rule {forward} udp dport {port} {lose}"),
        format!("add rule {forward} udp sport {port} udp dport != {port} {lose}"),
    ];
    nft(router, &rules.join("; "))
}

/// Ends it.
///
/// # Errors
/// The router loses nothing.
pub fn lose_none(router: &Netns) -> Result<()> {
    nft(router, "delete table ip chaos_loss")
}

fn routers(lab: &Lab) -> Result<Vec<Netns>> {
    let routers = lab.topology().node.iter().filter(|(_, node)| node.role == Role::Router);
    routers.map(|(name, _)| lab.netns(name)).collect()
}

fn nft(netns: &Netns, rules: &str) -> Result<()> {
    let (good, said) = process::run(Some(netns), &["nft".to_string(), rules.to_string()])?;
    if good {
        return Ok(());
    }
    Err(Error::Command { command: format!("nft '{rules}' (in {})", netns.name()), reason: said })
}
