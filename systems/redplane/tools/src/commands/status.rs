//! `stateplane status`: sessions and rings of a switch, and how a store is.

use command_line::{StoreView, SwitchView};
use redplane_switch::{Load, SessionLoad};
use serde::Deserialize;
use serde_json::{Map, Value};
use state_store::core::NodeStatus;

/// What a switch tells. A program without state in the store has the fields all the same.
pub(super) fn switch(told: &Map<String, Value>) -> Result<SwitchView, serde_json::Error> {
    let load = Load::deserialize(told)?;
    let short = load.short_lease_us.map(|lease_us| {
        format!(
            "lease_margin_us is no less than the store's lease of {lease_us} us: no lease ever begins, and packets that need one are dropped; write a smaller margin, or a longer lease_ms at the store"
        )
    });
    let alive = load.sessions.iter().filter(|session| session.left_ms > 0).count();
    Ok(SwitchView {
        sessions: (alive, load.shards as usize),
        pending: load.pending,
        fault: load.short_lease_us.map(|_| "no leases"),
        notes: short.into_iter().collect(),
        more: round_trips(&load.sessions).into_iter().collect(),
        fields: match serde_json::to_value(&load)? {
            Value::Object(fields) => fields,
            _ => Map::new(),
        },
    })
}

/// How long the store takes for this switch's requests: of the slowest shard.
fn round_trips(sessions: &[SessionLoad]) -> Option<String> {
    let slowest =
        sessions.iter().filter(|it| it.round_trip_us > 0).max_by_key(|it| it.round_trip_us)?;
    let outstanding: u64 = sessions.iter().map(|session| session.outstanding).sum();
    Some(format!(
        "round trip to the store {:.2} ms, sent again after {:.1} ms (shard {}, the slowest); {outstanding} requests not answered",
        slowest.round_trip_us as f64 / 1e3,
        slowest.resend_timeout_us as f64 / 1e3,
        slowest.shard
    ))
}

/// What a store answers.
pub(super) fn store(answer: &Value) -> Option<StoreView> {
    let status = NodeStatus::deserialize(answer).ok()?;
    let broken = |replica: &state_store::core::ReplicaStatus| {
        let reason = replica.reason.as_ref()?;
        Some(format!("shard {} is broken: {reason}", replica.shard))
    };
    let mut notes: Vec<String> = status.replicas.iter().filter_map(broken).collect();
    if status.malformed > 0 {
        notes.push(format!("{} malformed datagrams", status.malformed));
    }
    Some(StoreView {
        ready: status.state == "ready",
        columns: vec![
            ("head of shards", format!("{} of {}", status.heads, status.shards)),
            (StoreView::STATE, status.state),
            ("records", status.records.to_string()),
            ("sessions", status.sessions.to_string()),
            ("recalls", status.recalls.to_string()),
            ("held", status.held.to_string()),
            ("unacked", status.unacked.to_string()),
            ("lag", format!("{} ms", status.stalled_ms)),
        ],
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Scripts read `stateplane status --json`: a program without state has the same fields.
    #[test]
    fn a_switch_has_the_same_fields_whatever_its_program() {
        let shown = |told: Value| {
            let told = told.as_object().cloned().unwrap_or_default();
            switch(&told).expect("as agents tell")
        };
        let own = json!({ "shards": 8, "pending": 5, "short_lease_us": 300, "sessions": [], "events": [["acks", 1]] });
        let (with, without) = (shown(own), shown(json!({})));
        assert!(with.fields.keys().eq(without.fields.keys()));
        assert_eq!(
            (&with.fields["shards"], &with.fields["events"]),
            (&json!(8), &json!([["acks", 1]]))
        );
        assert_eq!((with.sessions, with.pending, with.fault), ((0, 8), 5, Some("no leases")));
        let zero = ["shards", "pending", "sessions"].map(|name| without.fields[name].clone());
        assert_eq!(zero, [json!(0), json!(0), json!([])]);
        assert_eq!((without.fault, without.notes.len()), (None, 0));
    }
}
