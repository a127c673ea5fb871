//! Faults done and undone.

use crate::chaos::plan::{Cut, Fault, LOSS_PERCENT};
use crate::error::{Error, Result};
use crate::instance::Lab;
use crate::netns::Netns;
use crate::process;
use crate::topology::Role;

/// Makes it go wrong.
///
/// # Errors
/// The lab refuses: then the run is worth nothing.
pub fn begin(lab: &Lab, fault: &Fault) -> Result<()> {
    match fault {
        Fault::Power { node } => lab.fail(node),
        Fault::Link { node, router, cut: Cut::Carrier } => lab.set_link(node, router, false),
        Fault::Link { node, router, cut } => {
            let hook = |hook: &str| {
                format!(
                    "add chain netdev {table} {hook} {{ type filter hook {hook} device \"{node}\" priority 0; policy drop; }}",
                    table = table(node)
                )
            };
            // At the router, whose interface is called after the node.
            let mut rules = vec![format!("add table netdev {}", table(node))];
            if *cut != Cut::OutOf {
                rules.push(hook("egress"));
            }
            if *cut != Cut::Into {
                rules.push(hook("ingress"));
            }
            nft(&lab.netns(router)?, &rules.join("; "))
        }
        Fault::Process { node, daemon } => lab.kill_daemon(node, daemon),
        Fault::Loss => {
            for netns in routers(lab)? {
                nft(&netns, &lossy())?;
            }
            Ok(())
        }
    }
}

/// Repairs it, as far as a repair goes at once: see [`crate::chaos::whole`].
///
/// # Errors
/// Something does not come back.
pub fn end(lab: &Lab, fault: &Fault) -> Result<()> {
    match fault {
        Fault::Power { node } => lab.restore(node),
        Fault::Link { node, router, cut: Cut::Carrier } => lab.set_link(node, router, true),
        Fault::Link { node, router, .. } => nft(&lab.netns(router)?, &format!("delete table netdev {}", table(node))),
        Fault::Process { node, daemon } => lab.restart_daemon(node, daemon),
        Fault::Loss => {
            for netns in routers(lab)? {
                nft(&netns, "delete table ip chaos_loss")?;
            }
            Ok(())
        }
    }
}

fn table(node: &str) -> String {
    format!("chaos_{}", node.replace('-', "_"))
}

/// Requests, replies and the chain's own messages all have a 5407 in them.
fn lossy() -> String {
    let lose = format!("numgen random mod 100 < {LOSS_PERCENT} counter drop");
    format!(
        "add table ip chaos_loss; add chain ip chaos_loss forward {{ type filter hook forward priority 0; }}; \
         add rule ip chaos_loss forward udp dport 5407 {lose}; add rule ip chaos_loss forward udp sport 5407 udp dport != 5407 {lose}"
    )
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
