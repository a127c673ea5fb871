//! What the commands that run daemons have in common: logs, and the question how one is.

use secrets::SecretsFile;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::io::IsTerminal;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

/// Logs to standard error; `RUST_LOG` says how much.
pub fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let color = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(color);
    // Someone else's logger, if there is one, will do.
    let _ = log.with_target(false).try_init();
}

/// Whom `status` asks, and how.
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    /// Its address.
    #[arg(long, value_name = "IP:PORT")]
    pub address: SocketAddrV4,
    /// The fabric's shared secrets (`stateplane keys`): it answers nobody without them.
    #[arg(long, value_name = "FILE")]
    secrets: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// How long to wait for an answer.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout_ms: u64,
}

impl StatusArgs {
    /// Asks, and prints the answer: as JSON, or by `print`.
    pub fn ask<S: DeserializeOwned + Serialize>(&self, print: impl Fn(&S)) -> Result<S, Box<dyn Error>> {
        let secrets = SecretsFile::load(&self.secrets)?;
        let status: S =
            state_store::shell::query(self.address, secrets.ring(), Duration::from_millis(self.timeout_ms))?;
        if self.json {
            outln!("{}", super::table::json(&status));
        } else {
            print(&status);
        }
        Ok(status)
    }
}
