//! The controller's metrics.

use super::watch::Watch;
use crate::core::Controller;
use crate::shell::Kept;
use daemon::metrics::{Kind, Text};
use wire::Reporter;

/// The controller's metrics in Prometheus' text format.
pub fn render(core: &Controller, watch: &Watch, kept: &Kept, now_ns: u64, bad_tag: u64) -> String {
    let mut text = Text::default();
    let mut metric = |name: &str, kind: Kind, help: &str, value: u64| {
        text.single(&format!("stateplane_controller_{name}"), kind, help, value);
    };
    let counters = core.counters();
    let (mut servers, mut switches, mut behind) = (0, 0, 0);
    for (_, seen) in core.peers().filter(|(_, seen)| core.is_alive(now_ns, seen)) {
        match seen.reporter {
            Reporter::Server => servers += 1,
            Reporter::Switch { .. } => switches += 1,
        }
        behind += u64::from(seen.version < core.views().version);
    }
    let shards = &core.views().shards;
    let joining = shards.iter().filter(|view| view.joining.is_some()).count() as u64;
    let shortest = shards.iter().map(|view| view.members.len()).min().unwrap_or(0) as u64;
    metric(
        "leading",
        Kind::Gauge,
        "Whether this controller decides.",
        u64::from(core.is_leading()),
    );
    metric(
        "cannot_decide",
        Kind::Gauge,
        "Whether the controller has been unable to decide for a second: its database is lost or \
         old, or refuses decisions.",
        u64::from(kept.cannot_decide(now_ns, watch.behind()).is_some()),
    );
    metric(
        "switch_id_conflicts",
        Kind::Gauge,
        "Values of switch_id that two switches have at the same time.",
        watch.twins(now_ns),
    );
    metric(
        "views_version",
        Kind::Gauge,
        "Version of the views; 0: the cluster has not begun.",
        core.views().version,
    );
    metric("servers", Kind::Gauge, "Servers that report.", servers);
    metric("switches", Kind::Gauge, "Switches that report.", switches);
    metric(
        "behind",
        Kind::Gauge,
        "Servers and switches that do not have the newest views yet.",
        behind,
    );
    metric("shards", Kind::Gauge, "Shards.", shards.len() as u64);
    metric("shards_joining", Kind::Gauge, "Shards with a server that catches up.", joining);
    metric("shortest_chain", Kind::Gauge, "Servers in the shortest chain.", shortest);
    let chain_length = core.settings().chain_length as u64;
    metric(
        "chain_length",
        Kind::Gauge,
        "Servers that each chain should have: one more than may die at once.",
        chain_length,
    );
    metric("reports_total", Kind::Counter, "Reports taken.", counters.reports);
    metric(
        "reports_old_total",
        Kind::Counter,
        "Reports older than one that the controller used already.",
        counters.reports_old,
    );
    metric("malformed_total", Kind::Counter, "Datagrams that are not reports.", counters.malformed);
    metric("bad_tag_total", Kind::Counter, "Datagrams that are not genuine.", bad_tag);
    metric(
        "switches_refused_total",
        Kind::Counter,
        "Reports of switches that were refused: another switch has the switch_id.",
        counters.switches_refused,
    );
    metric("decisions_total", Kind::Counter, "Decisions made persistent.", counters.decisions);
    metric(
        "decisions_refused_total",
        Kind::Counter,
        "Decisions that the database refused, and that were not made.",
        kept.decisions_refused,
    );
    metric(
        "state_lost_total",
        Kind::Counter,
        "Shards that began anew, empty, because all servers with their state died.",
        watch.state_lost,
    );
    metric("views_sent_total", Kind::Counter, "Views sent.", counters.views_sent);
    text.finish()
}
