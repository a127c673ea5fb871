//! The demonstration's JSON files: `failover.json` (the result) and `timeline.json` (everything
//! measured).

use crate::demo::Config;
use crate::demo::analysis::{BIN_S, Series};
use crate::demo::run::Outcome;
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Writes both files into `config.out`.
///
/// # Errors
/// A file cannot be written.
pub fn write(config: &Config, outcomes: &[Outcome]) -> Result<()> {
    std::fs::create_dir_all(&config.out).map_err(Error::io(&config.out))?;
    let mut result = Map::new();
    let mut timeline = Map::new();
    for outcome in outcomes {
        let name = outcome.kind.name().to_string();
        result.insert(name.clone(), summary(config, outcome));
        timeline.insert(name, details(config, outcome));
    }
    result.insert("lease_ms".to_string(), lease_ms(config));
    result.insert("kernel".to_string(), json!(kernel()));
    timeline.insert("bin_ms".to_string(), json!((BIN_S * 1000.0).round()));
    save(&config.out.join("failover.json"), &Value::Object(result))?;
    save(&config.out.join("timeline.json"), &Value::Object(timeline))
}

fn summary(config: &Config, outcome: &Outcome) -> Value {
    let series = Series::new(&outcome.samples);
    json!({
        "connections": outcome.connections,
        "connections_broken": outcome.broken,
        "recovery_fail_s": outcome.recovery_fail_s.map(thousandths),
        "recovery_return_s": outcome.recovery_return_s.map(thousandths),
        "goodput_mbps": rounded(&series.bins(config.seconds)),
    })
}

fn details(config: &Config, outcome: &Outcome) -> Value {
    let series = Series::new(&outcome.samples);
    let via: Map<String, Value> = config
        .cast
        .switches
        .iter()
        .enumerate()
        .map(|(i, name)| (name.clone(), json!(rounded(&series.bins_via(i, config.seconds)))))
        .collect();
    json!({
        "normal_mbps": thousandths(outcome.normal_mbps),
        "failed_at_s": outcome.failed_at.map(thousandths),
        "restored_at_s": outcome.restored_at.map(thousandths),
        "returned_at_s": outcome.returned_at.map(thousandths),
        "events": outcome.events,
        "exchanges": outcome.exchanges,
        "via_mbps": via,
    })
}

/// The lease period that the topology's variable `lease_ms` sets; null if it has none.
fn lease_ms(config: &Config) -> Value {
    config
        .vars
        .get("lease_ms")
        .or_else(|| config.topology.vars.get("lease_ms"))
        .and_then(|v| v.parse::<u64>().ok())
        .map_or(Value::Null, |v| json!(v))
}

/// The kernel's release.
pub fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_string(), |r| format!("Linux {}", r.trim()))
}

fn thousandths(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

fn rounded(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| (v * 10.0).round() / 10.0).collect()
}

fn save(path: &Path, value: &Value) -> Result<()> {
    let mut text =
        serde_json::to_string(value).map_err(|e| Error::io(path)(std::io::Error::other(e)))?;
    text.push('\n');
    std::fs::write(path, text).map_err(Error::io(path))
}
