//! The controller's metrics.

use crate::rules::Switches;
use crate::status::{Status, status};
use controller::shell::Kept;
use daemon::metrics::{Kind, Text};

/// In Prometheus' text format.
pub(crate) fn render(rules: &Switches, kept: &Kept, now_ns: u64, bad_tag: u64) -> String {
    let mut text = Text::default();
    let mut metric = |name: &str, kind: Kind, help: &str, value: u64| {
        text.single(&format!("stateplane_kv_controller_{name}"), kind, help, value);
    };
    let page = status(rules, kept, now_ns);
    let Status { leading, version, settled, paused, lost, short, joining, to_move, .. } = page;
    let reports = |ms: Option<u64>| ms.is_some_and(|ms| ms < rules.config.dead_ms);
    let reporting = page.switches.iter().filter(|it| reports(it.report_ms));
    let behind = reporting.clone().filter(|it| it.applied < version).count() as u64;
    let dead = page.switches.iter().filter(|it| it.standing == "dead").count() as u64;
    let groups = rules.state().map_or(&[][..], |state| &state.groups);
    let session_most = groups.iter().map(|it| u64::from(it.session)).max().unwrap_or(0);
    let gauges = [
        ("leading", "Whether this controller decides.", u64::from(leading)),
        (
            "cannot_decide",
            "Whether the controller has been unable to decide for a second: its database is lost \
             or old, or refuses decisions.",
            u64::from(page.cannot_decide.is_some()),
        ),
        ("settled", "Whether all chains are whole and serve.", u64::from(settled)),
        ("version", "Version of the decision; 0: there is none yet.", version),
        ("groups", "Groups.", page.groups as u64),
        ("groups_paused", "Groups whose members wait for each other.", paused as u64),
        (
            "paused_seconds",
            "How long the group has not answered that waits longest.",
            rules.longest_pause_ns(now_ns) / 1_000_000_000,
        ),
        ("groups_lost", "Groups without a member that has their keys.", lost as u64),
        ("groups_short", "Groups with fewer members than they should have.", short as u64),
        ("groups_joining", "Groups to which a new member is being added.", joining as u64),
        (
            "groups_to_move",
            "Groups for which a better switch serves than a member is.",
            to_move as u64,
        ),
        (
            "session_most",
            "Highest session of a group: its heads and collections so far; it can have 65535.",
            session_most,
        ),
        ("switches", "Switches that report.", reporting.count() as u64),
        ("switches_dead", "Switches that most others do not hear.", dead),
        (
            "switches_behind",
            "Switches that report, but do not have the newest decision yet.",
            behind,
        ),
    ];
    for (name, help, value) in gauges {
        metric(name, Kind::Gauge, help, value);
    }
    let counted = rules.reports.counters;
    let counters = [
        ("reports_total", "Reports taken.", counted.reports),
        (
            "reports_old_total",
            "Old reports that were ignored: overtaken, recorded, or of an earlier incarnation of \
             the switch.",
            counted.old,
        ),
        (
            "reports_of_others_total",
            "Reports of switches that have another founding file, or are not in this controller's.",
            counted.other_cluster,
        ),
        ("malformed_total", "Datagrams that are not reports.", counted.malformed),
        ("bad_tag_total", "Datagrams that are not genuine.", bad_tag),
        ("deaths_total", "Switches that most others did not hear any more.", rules.deaths),
        ("mute_total", "Switches that did not report, though others heard them.", rules.mute),
        ("collections_total", "Times that a group's tombstones were collected.", rules.collections),
        ("moves_total", "Times that a better switch began to join a whole chain.", rules.moves),
        ("lost_total", "Groups that lost all members with their keys.", rules.losses),
        ("decisions_total", "Decisions made persistent.", rules.decisions),
        (
            "decisions_refused_total",
            "Decisions that the database refused, and that were not made.",
            kept.decisions_refused,
        ),
        (
            "decision_write_microseconds_total",
            "Time that writing decisions to the database's file took.",
            kept.writing_ns / 1_000,
        ),
    ];
    for (name, help, value) in counters {
        metric(name, Kind::Counter, help, value);
    }
    text.finish()
}
