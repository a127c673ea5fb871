//! The controller's metrics.

use crate::rules::Switches;
use crate::status::{SwitchStatus, status};
use controller::shell::Kept;
use daemon::metrics::{Kind, Text};

/// See `SwitchStatus::standing`.
const STANDINGS: [&str; 8] =
    ["member", "joining", "excluded", "silent", "absent", "leaving", "left", "other_layout"];

/// In Prometheus' text format.
pub(crate) fn render(rules: &Switches, kept: &Kept, now_ns: u64, bad_tag: u64) -> String {
    let mut text = Text::default();
    let page = status(rules, kept, now_ns);
    let mut metric = |name: &str, kind: Kind, help: &str, value: u64| {
        text.single(&format!("stateplane_shared_controller_{name}"), kind, help, value);
    };
    let gauges = [
        ("leading", "Whether this controller decides.", u64::from(page.leading)),
        (
            "cannot_decide",
            "Whether the controller has been unable to decide for a second.",
            u64::from(page.cannot_decide.is_some()),
        ),
        ("version", "Version of the decision; 0: there is none yet.", page.version),
        (
            "settled",
            "Whether all switches share their groups of variables.",
            u64::from(page.settled),
        ),
    ];
    for (name, help, value) in gauges {
        metric(name, Kind::Gauge, help, value);
    }
    let counters = [
        ("decisions_total", "Decisions that were made persistent.", rules.decisions),
        ("deaths_total", "Members that did not report any more.", rules.deaths),
        ("slow_total", "Members that were removed as they held up all others.", rules.slow),
        ("losses_total", "Groups that began anew, as all members were gone.", rules.losses),
        ("malformed_total", "Messages that are none of a switch.", rules.malformed),
        ("bad_tag_total", "Messages that are not genuine.", bad_tag),
    ];
    for (name, help, value) in counters {
        metric(name, Kind::Counter, help, value);
    }
    let help = "Switches of a group, by whether they share it.";
    let mut family = text.family("stateplane_shared_controller_switches", Kind::Gauge, help);
    for group in &page.groups {
        for standing in STANDINGS {
            let of = |it: &&SwitchStatus| it.standing == standing;
            let count = group.switches.iter().filter(of).count() as u64;
            family.sample(&[("group", &group.group), ("standing", &standing)], count);
        }
    }
    let help = "Whether switches are in a newer view than the database has: nothing is decided.";
    let mut family = text.family("stateplane_shared_controller_behind", Kind::Gauge, help);
    for group in &page.groups {
        family.sample(&[("group", &group.group)], u64::from(group.stage == "behind"));
    }
    let help = "How long the window of a group has stood still.";
    let mut family = text.family("stateplane_shared_controller_still_seconds", Kind::Gauge, help);
    for group in &page.groups {
        family.sample(&[("group", &group.group)], group.still_ms as f64 / 1000.0);
    }
    let help = "Pairs of members of which one lacks messages of the other.";
    let mut family = text.family("stateplane_shared_controller_held_up", Kind::Gauge, help);
    for group in &page.groups {
        family.sample(&[("group", &group.group)], group.held_up.len() as u64);
    }
    text.finish()
}
