//! `stateplane kv import` goes on while a switch dies.

use crate::cluster::{CLUSTER, Cluster};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};

/// Enough to be under way for some failovers' time.
const KEYS: usize = 30_000;

/// An import under way.
pub struct Import {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Import {
    pub fn start(cluster: &Cluster) -> Import {
        let folder = tempfile::tempdir().expect("a folder");
        let (config, file) = (folder.path().join("kv.toml"), folder.path().join("keys.jsonl"));
        let identity = cluster.identity();
        let text = format!("cluster = {CLUSTER:?}\nidentity = {identity:?}\ndeadline_ms = 5000\n");
        std::fs::write(&config, text).expect("kv.toml");
        let mut lines = String::new();
        for number in 0..KEYS {
            writeln!(lines, "{{\"key\": \"import-{number}\", \"value\": \"v\"}}").expect("a line");
        }
        std::fs::write(&file, lines).expect("keys.jsonl");
        let mut command = cluster.command(Path::new(env!("CARGO_BIN_EXE_stateplane")));
        command.args(["kv", "--json", "--config"]).arg(&config).arg("import").arg(&file);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("import");
        Import { child, _folder: folder }
    }

    /// It is still under way.
    pub fn goes_on(&mut self) -> bool {
        self.child.try_wait().expect("a process").is_none()
    }

    /// All keys were written; of a few it may be unknown.
    pub fn end(self) -> String {
        let ended = self.child.wait_with_output().expect("a process");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let all = said + &String::from_utf8_lossy(&ended.stderr);
        let told: Value =
            all.lines().next().and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
        let count = |what: &str| told[what].as_u64().unwrap_or_default();
        assert_eq!(count("written") + count("unknown"), KEYS as u64, "{all}");
        assert!(count("unknown") <= 10, "{all}");
        format!("{} keys imported, {} unknown", count("written"), count("unknown"))
    }
}
