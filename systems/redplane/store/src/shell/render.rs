//! The server's metrics.

use super::fast::FastPath;
use crate::core::{Node, NodeStatus, Role};
use daemon::metrics::{Kind, Text};
use std::sync::atomic::Ordering;
use wal::Stats;
use wire::Malformed;

/// The server's metrics in Prometheus' text format.
pub fn render(
    server: &Node,
    now_ns: u64,
    send_errors: u64,
    log: Option<&Stats>,
    fast_path: Option<&FastPath>,
) -> String {
    let (status, counters) = (server.status(now_ns), server.counters());
    let mut text = Text::default();
    for (name, help, value) in counters.named() {
        text.single(&format!("stateplane_store_{name}_total"), Kind::Counter, help.trim(), value);
    }
    let mut malformed = text.family(
        "stateplane_store_malformed_total",
        Kind::Counter,
        "Datagrams dropped as malformed, by reason.",
    );
    for (reason, count) in Malformed::ALL.iter().zip(&counters.malformed) {
        malformed.sample(&[("reason", &reason.label())], count);
    }
    text.single(
        "stateplane_store_send_errors_total",
        Kind::Counter,
        "Datagrams that the kernel would not send.",
        send_errors,
    );
    render_objects(&mut text, &status);
    render_backends(&mut text, &status);
    let of_role = |role| server.replicas().filter(|replica| replica.role() == role).count() as u64;
    let serving = server.replicas().filter(|replica| replica.is_serving(now_ns)).count();
    let broken = status.replicas.iter().filter(|replica| replica.state == "broken").count();
    let gauges = [
        (
            "ready",
            "1: the links of all this server's chains are up, and it serves every shard that it \
             heads.",
            u64::from(status.state == "ready"),
        ),
        (
            "views_version",
            "Version of the controller's views that this server has; 0: none.",
            status.version,
        ),
        ("shards", "Shards in whose chain this server is.", server.replicas().count() as u64),
        ("shards_head", "Shards that this server heads.", of_role(Role::Head)),
        ("shards_serving", "Shards that this server heads and takes requests for.", serving as u64),
        ("shards_joining", "Shards whose chain this server is joining.", of_role(Role::Joining)),
        ("shards_broken", "Shards whose replica here cannot go on.", broken as u64),
        ("unacked", "Entries that tails have not confirmed.", status.unacked as u64),
        ("sessions", "Sessions of switches, over all shards.", status.sessions as u64),
        (
            "recalls_out",
            "Flows whose owners are being asked to release them.",
            status.recalls as u64,
        ),
        ("held_requests", "Requests that heads hold at present.", status.held as u64),
    ];
    for (name, help, value) in gauges {
        text.single(&format!("stateplane_store_{name}"), Kind::Gauge, help, value);
    }
    let stalled_ms = status.replicas.iter().map(|replica| replica.stalled_ms).max().unwrap_or(0);
    text.single(
        "stateplane_store_stalled_seconds",
        Kind::Gauge,
        "Longest time since a successor confirmed anything while entries wait.",
        stalled_ms as f64 / 1_000.0,
    );
    if let Some(log) = log {
        render_log(&mut text, server, log);
    }
    if let Some(fast_path) = fast_path {
        fast_path.render(&mut text);
    }
    text.finish()
}

fn render_log(text: &mut Text, server: &Node, log: &Stats) {
    let counters = [
        (
            "batches",
            "Batches of the write-ahead log that were written and synchronised.",
            &log.batches,
        ),
        ("bytes", "Bytes written to the write-ahead log.", &log.bytes),
        (
            "checkpoints",
            "Number of checkpoints: new log files that begin with a description of the state.",
            &log.checkpoints,
        ),
    ];
    for (name, help, value) in counters {
        text.single(
            &format!("stateplane_store_wal_{name}_total"),
            Kind::Counter,
            help,
            value.load(Ordering::Relaxed),
        );
    }
    let disk_bytes = log.disk_bytes.load(Ordering::Relaxed);
    text.single(
        "stateplane_store_wal_disk_bytes",
        Kind::Gauge,
        "Bytes of the write-ahead log's files.",
        disk_bytes,
    );
    let help = "Entries that are applied and not yet durable here.";
    text.single("stateplane_store_wal_waiting_entries", Kind::Gauge, help, server.not_durable());
    let help = "Time to write and synchronise a batch of the write-ahead log.";
    text.histogram("stateplane_store_wal_sync_seconds", help, &log.sync_seconds);
}

fn render_objects(text: &mut Text, status: &NodeStatus) {
    let mut records = text.family("stateplane_store_records", Kind::Gauge, "Records, by object.");
    for object in &status.objects {
        records.sample(&[("object", &object.name)], object.records);
    }
    let help = "External ports in use, per remote end, by object.";
    let mut ports = text.family("stateplane_store_ports_in_use", Kind::Gauge, help);
    for object in &status.objects {
        if let Some(in_use) = object.ports_in_use {
            ports.sample(&[("object", &object.name)], in_use);
        }
    }
}

/// Of each backend: its conversations, its part of new ones, and how it is.
fn render_backends(text: &mut Text, status: &NodeStatus) {
    let all = || {
        status
            .objects
            .iter()
            .flat_map(|object| object.backends.iter().map(move |it| (&object.name, it)))
    };
    let help = "Conversations of a backend that this server's shards have.";
    let mut family = text.family("stateplane_store_backend_conversations", Kind::Gauge, help);
    for (object, backend) in all() {
        family.sample(
            &[("object", object), ("backend", &backend.address.to_string())],
            backend.conversations,
        );
    }
    let help = "1 for the state of a backend: active, drained, down or removed.";
    let mut family = text.family("stateplane_store_backend_state", Kind::Gauge, help);
    for (object, backend) in all() {
        let address = backend.address.to_string();
        for state in ["active", "drained", "down", "removed"] {
            family.sample(
                &[("object", object), ("backend", &address), ("state", &state)],
                u64::from(backend.state == state),
            );
        }
    }
}
