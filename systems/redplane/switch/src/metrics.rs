//! RedPlane's metrics of a switch.

use crate::events::events;
use crate::held::pending;
use crate::load::SessionLoad;
use crate::system::Switch;
use daemon::metrics::Kind::{Counter, Gauge};
use daemon::metrics::Text;
use std::sync::atomic::Ordering;

pub(crate) fn write(switch: &Switch, text: &mut Text) {
    let (shards, sessions) = switch.sessions();
    text.single("stateplane_shards", Gauge, "Shards of the store that the switch knows of", shards);
    let live = sessions.iter().filter(|session| session.left_ms > 0).count();
    text.single(
        "stateplane_sessions",
        Gauge,
        "Shards with which the switch has a session whose lease is not over",
        live,
    );
    let help = "1: lease_margin_us is no less than the store's lease, so that no lease ever begins, and packets that need one are dropped";
    let short = switch.short_lease_us(&sessions).is_some();
    text.single("stateplane_switch_lease_too_short", Gauge, help, u8::from(short));
    type Get = fn(&SessionLoad) -> f64;
    let families: [(&str, &str, Get); 3] = [
        (
            "stateplane_shard_round_trip_seconds",
            "Smoothed time from a request to its answer; 0: nothing measured",
            |it| it.round_trip_us as f64 / 1e6,
        ),
        (
            "stateplane_shard_resend_timeout_seconds",
            "Time-out after which an unanswered message is sent again",
            |it| it.resend_timeout_us as f64 / 1e6,
        ),
        (
            "stateplane_shard_outstanding",
            "Requests that are not answered; window_packets at the most",
            |it| it.outstanding as f64,
        ),
    ];
    for (name, help, get) in families {
        let mut family = text.family(name, Gauge, help);
        for session in &sessions {
            family.sample(&[("shard", &session.shard)], get(session));
        }
    }
    let pending = pending(&switch.dataplane);
    text.single(
        "stateplane_updates_pending",
        Gauge,
        "Updates and releases that are not acknowledged yet",
        pending,
    );
    let swept = switch.swept.load(Ordering::Relaxed);
    text.single(
        "stateplane_flows_swept_total",
        Counter,
        "Idle flows removed from this switch's tables",
        swept,
    );
    let help = "Events of the FlowState runtime: messages sent and accepted, packets dropped and the reason";
    let mut family = text.family("stateplane_flow_events_total", Counter, help);
    for (event, count) in events(&switch.dataplane).unwrap_or_default() {
        family.sample(&[("event", &event)], count);
    }
}
