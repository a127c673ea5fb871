//! What goes wrong in a round: drawn from the seed, the round's number and what the lab has, and
//! from nothing else, so that it can be drawn again.

use crate::random::Random;
use lab::topology::{Role, Topology, in_mode};
use serde::Serialize;
use simnet::{Cut, Direction, Links};
use std::collections::BTreeSet;
use std::fmt;

/// The faults of a round begin within this time from the round's start, in milliseconds.
const BEGIN_WITHIN_MS: u64 = 800;
/// How long each lasts, in milliseconds.
const LASTS_MS: (u64, u64) = (100, 1_200);

/// Something that goes wrong in a lab. A machine is a node, a process one of its daemons.
pub type Fault = simnet::Fault<String, String>;

/// [`Links::Loss`] as it is drawn: every router loses so much of the state protocol's messages.
pub const LOSS: Fault = Fault::Links(Links::Loss { percent: 1 });

/// A power cut of a node; it returns empty.
pub fn power(node: &str) -> Fault {
    Fault::Crash { machine: node.to_owned(), keeps_state: false }
}

/// SIGKILL to one process; it is started again.
pub fn process(node: &str, daemon: &str) -> Fault {
    Fault::Process { machine: node.to_owned(), process: daemon.to_owned() }
}

/// The link of a switch or store to a router is cut.
pub fn link(node: &str, router: &str, direction: Direction) -> Fault {
    Fault::Cut(Cut { machine: node.to_owned(), peer: Some(router.to_owned()), direction })
}

/// A fault and its time.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Step {
    /// Milliseconds from the round's beginning.
    pub at_ms: u64,
    /// Milliseconds until its repair begins.
    pub lasts_ms: u64,
    /// What.
    #[serde(flatten)]
    pub fault: Fault,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} for {} ms", self.fault, self.at_ms, self.lasts_ms)
    }
}

/// What of a lab can fail.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Site {
    /// Its switches.
    pub switches: Vec<String>,
    /// Links (switch, router).
    pub fabric: Vec<(String, String)>,
    /// Links (store, router).
    pub store_links: Vec<(String, String)>,
    /// Processes (node, daemon) of switches.
    pub agents: Vec<(String, String)>,
    /// Processes (node, daemon) of the store.
    pub stores: Vec<(String, String)>,
    /// Processes (node, daemon) of controllers.
    pub controllers: Vec<(String, String)>,
    /// Store servers that may be dead at once.
    pub f: usize,
}

impl Site {
    /// What a topology has in a mode. Stores may fail only where a controller repairs chains.
    pub fn of(topology: &Topology, mode: &str) -> Self {
        let mut site = Self::default();
        for (name, node) in &topology.node {
            let daemons = node.daemon.iter().filter(|d| in_mode(&d.modes, mode));
            let processes = daemons.map(|d| (name.clone(), d.name.clone()));
            let (controllers, others): (Vec<_>, Vec<_>) =
                processes.partition(|(_, d)| d.starts_with("controller"));
            site.controllers.extend(controllers);
            let routers = topology.ports(name).map(|(far, ..)| far.to_string());
            let is_router =
                |far: &String| topology.node.get(far).is_some_and(|n| n.role == Role::Router);
            let links = routers.filter(is_router).map(|far| (name.clone(), far));
            match node.role {
                Role::Switch => {
                    site.switches.push(name.clone());
                    site.fabric.extend(links);
                    site.agents.extend(others);
                }
                Role::Store if !others.is_empty() => {
                    site.store_links.extend(links);
                    site.stores.extend(others);
                }
                _ => {}
            }
        }
        if !site.controllers.is_empty() {
            // Chains of f + 1 servers, three by default.
            let servers: BTreeSet<&String> = site.stores.iter().map(|(node, _)| node).collect();
            site.f = servers.len().saturating_sub(1).min(2);
        }
        site
    }
}

/// The faults of a round, by time.
///
/// At the most all switches but one are cut off or dead in the same round, and at the most `f`
/// store servers: a repair takes its time, and so what is one after the other on paper would often
/// be at once.
pub fn draw(seed: u64, lab: &str, round: u64, site: &Site) -> Vec<Step> {
    let mut random = Random::new(seed, &format!("{lab} {round}"));
    let wanted = [1, 1, 1, 2, 2, 3].get(random.between(0, 5) as usize).copied().unwrap_or(1);
    let mut drawing =
        Drawing { site, spared: random.pick(&site.switches).cloned(), steps: Vec::new() };
    // A fault that the drawing refuses is drawn again; a small lab may not have enough of them.
    for _ in 0..64 {
        if drawing.steps.len() == wanted {
            break;
        }
        let fault = any_fault(&mut random, site);
        let (at_ms, lasts_ms) =
            (random.between(0, BEGIN_WITHIN_MS), random.between(LASTS_MS.0, LASTS_MS.1));
        if let Some(fault) = fault.filter(|fault| drawing.allows(fault)) {
            drawing.steps.push(Step { at_ms, lasts_ms, fault });
        }
    }
    if random.chance(30) {
        let lasts_ms = BEGIN_WITHIN_MS + LASTS_MS.1;
        drawing.steps.push(Step { at_ms: 0, lasts_ms, fault: LOSS });
    }
    drawing.steps.sort_by_key(|step| step.at_ms);
    drawing.steps
}

fn any_fault(random: &mut Random, site: &Site) -> Option<Fault> {
    let process = |of: Option<&(String, String)>| of.map(|(node, daemon)| process(node, daemon));
    match random.between(0, 12) {
        0..=2 => random.pick(&site.switches).map(|node| power(node)),
        3..=5 => any_link(random, &site.fabric),
        6..=7 => process(random.pick(&site.agents)),
        8..=10 => process(random.pick(&site.stores)),
        11 => any_link(random, &site.store_links),
        _ => process(random.pick(&site.controllers)),
    }
}

fn any_link(random: &mut Random, links: &[(String, String)]) -> Option<Fault> {
    let directions = [Direction::Carrier, Direction::Both, Direction::Into, Direction::OutOf];
    let direction = *random.pick(&directions)?;
    random.pick(links).map(|(node, router)| link(node, router, direction))
}

/// What is drawn already, and what may join it.
struct Drawing<'a> {
    site: &'a Site,
    /// The switch that carries on.
    spared: Option<String>,
    steps: Vec<Step>,
}

impl Drawing<'_> {
    fn allows(&self, fault: &Fault) -> bool {
        let Some(node) = node_of(fault) else { return true };
        let earlier =
            || self.steps.iter().map(|step| &step.fault).filter(|f| node_of(f) == Some(node));
        let is_agent =
            matches!(fault, Fault::Process { .. }) && self.site.switches.iter().any(|s| s == node);
        if self.site.switches.iter().any(|s| s == node) {
            // Without its agent a switch forwards.
            let spared = self.spared.as_deref() == Some(node);
            // One fault a switch; but it may lose several links.
            let both_links = earlier()
                .all(|f| matches!((f, fault), (Fault::Cut(_), Fault::Cut(_)) if f != fault));
            let same_link = earlier().any(|f| same_link(f, fault));
            return (is_agent || !spared) && both_links && !same_link;
        }
        if self.site.stores.iter().chain(&self.site.store_links).any(|(store, _)| store == node)
            && !self.is_controller(fault)
        {
            let dead: BTreeSet<&str> = self
                .steps
                .iter()
                .map(|step| &step.fault)
                .filter(|f| !self.is_controller(f))
                .filter_map(node_of)
                .filter(|n| self.site.stores.iter().any(|(store, _)| store == n))
                .collect();
            return earlier().all(|f| self.is_controller(f)) && dead.len() < self.site.f;
        }
        earlier().next().is_none()
    }

    fn is_controller(&self, fault: &Fault) -> bool {
        matches!(fault, Fault::Process { machine: node, process: daemon } if self.site.controllers.iter().any(|(n, d)| n == node && d == daemon))
    }
}

fn node_of(fault: &Fault) -> Option<&str> {
    fault.machine().map(String::as_str)
}

fn same_link(a: &Fault, b: &Fault) -> bool {
    let ends = |cut: &Cut<String>| (cut.machine.clone(), cut.peer.clone());
    matches!((a, b), (Fault::Cut(one), Fault::Cut(other)) if ends(one) == ends(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn nat() -> Topology {
        Topology::read(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/redplane/lab/nat.toml"),
        )
        .expect("the NAT lab")
    }

    fn with_controller() -> Site {
        let mut site = Site::of(&nat(), "replicated");
        if site.controllers.is_empty() {
            site.controllers.push(("store1".to_string(), "controller".to_string()));
            site.f = 2;
        }
        site
    }

    #[test]
    fn a_site_is_what_the_topology_has() {
        let site = Site::of(&nat(), "replicated");
        assert_eq!(site.switches, ["s1", "s2"]);
        assert_eq!(
            (site.fabric.len(), site.stores.len(), site.agents.len()),
            (4, 3, 2),
            "{site:?}"
        );
        assert_eq!(Site::of(&nat(), "nftables").agents.len(), 0);
    }

    #[test]
    fn with_etcd_each_store_has_three_processes_and_a_round_hurts_two_stores_at_the_most() {
        let site = Site::of(&nat(), "etcd");
        assert_eq!((site.controllers.len(), site.stores.len(), site.f), (3, 6, 2), "{site:?}");
        let mut killed = BTreeSet::new();
        for round in 0..2_000 {
            let steps = draw(3, "nat", round, &site);
            let deciders = |fault: &&Fault| matches!(fault, Fault::Process { process: daemon, .. } if daemon == "controller");
            let others = steps.iter().map(|step| &step.fault).filter(|fault| !deciders(fault));
            let stores: BTreeSet<&str> =
                others.filter_map(node_of).filter(|node| node.starts_with("store")).collect();
            assert!(stores.len() <= 2, "{steps:?}");
            killed.extend(steps.iter().filter_map(|step| match &step.fault {
                Fault::Process { machine: node, process: daemon } if node.starts_with("store") => {
                    Some(format!("{node} {daemon}"))
                }
                _ => None,
            }));
        }
        assert_eq!(killed.len(), 9, "{killed:?}");
    }

    #[test]
    fn a_seed_gives_the_same_faults_again_and_rounds_differ() {
        let site = with_controller();
        let all = |seed| (1..=50).map(|round| draw(seed, "nat", round, &site)).collect::<Vec<_>>();
        assert_eq!(all(3), all(3));
        assert_ne!(all(3), all(4));
        let different: BTreeSet<String> = all(3).iter().map(|steps| format!("{steps:?}")).collect();
        assert!(different.len() > 45, "{} different rounds", different.len());
    }

    #[test]
    fn no_round_takes_more_than_what_must_be_survived() {
        let site = with_controller();
        let mut kinds = BTreeSet::new();
        for round in 0..5_000 {
            let steps = draw(round * 17, "nat", round, &site);
            assert!(!steps.is_empty() && steps.len() <= 4, "{steps:?}");
            let nodes = |wanted: fn(&Fault) -> bool, of: &str| -> BTreeSet<String> {
                let of_kind =
                    steps.iter().map(|s| &s.fault).filter(|f| wanted(f)).filter_map(node_of);
                of_kind.filter(|n| n.starts_with(of)).map(str::to_string).collect()
            };
            let lost = nodes(|f| !matches!(f, Fault::Process { .. }), "s").into_iter();
            let switches: BTreeSet<String> = lost.filter(|n| !n.starts_with("store")).collect();
            assert!(switches.len() <= 1, "{steps:?}");
            let stores = nodes(
                |f| !matches!(f, Fault::Process { process: daemon, .. } if daemon.starts_with("controller")),
                "store",
            );
            assert!(stores.len() <= 2, "{steps:?}");
            kinds.extend(steps.iter().map(|s| format!("{}", s.fault)));
        }
        // Every fault there is, that is 2 + 4 × 4 + 2 + 3 + 3 × 4 + 1 + 1.
        let controllers = site.controllers.len();
        assert_eq!(kinds.len(), 36 + controllers, "{kinds:?}");
    }

    #[test]
    fn without_a_controller_no_store_is_hurt() {
        let site = Site { controllers: Vec::new(), f: 0, ..with_controller() };
        for round in 0..1_000 {
            let steps = draw(1, "nat", round, &site);
            assert!(
                steps.iter().all(|s| !node_of(&s.fault).is_some_and(|n| n.starts_with("store"))),
                "{steps:?}"
            );
        }
    }
}
