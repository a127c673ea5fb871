//! Listening for reports and views in the place of a controller that lost its database, and writing
//! down what it goes on with.

use crate::config::{Config, Keep};
use crate::core::{Rebuild, RebuildProblem};
use crate::shell::database::DecisionFile;
use crate::shell::etcd::{Etcd, Told};
use crate::shell::{Input, RunError, etcd_client};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};
use thiserror::Error;
use wire::{KeyRing, Views};

/// Every server reports twenty times in this time.
const LISTEN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

/// Why the database was not rebuilt. Nothing was changed then.
#[derive(Debug, Error)]
pub enum RebuildError {
    /// What any controller needs is not there.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The servers' views are not enough.
    #[error(transparent)]
    Views(#[from] RebuildProblem),
    /// There is nothing to do.
    #[error(
        "the database has views {own}, and the servers have none above {servers}: it is not lost; start the controller"
    )]
    NotLost {
        /// The version in the database.
        own: u64,
        /// The highest that a server has.
        servers: u64,
    },
    /// etcd was not read or written.
    #[error("etcd: {0}")]
    Etcd(String),
}

/// Rebuilds the database of a configuration from what the servers have, and gives back the views
/// that are in it now. Must not run beside a controller: the address and the database are the
/// controller's, and servers that hear another one tell nothing. Waits for `patience` at the most.
pub fn rebuild(
    config: &Config,
    without: &[SocketAddrV4],
    patience: Duration,
) -> Result<Views, RebuildError> {
    let (mut database, own) = Database::open(config)?;
    let keys = config.keys().map_err(RunError::Secrets)?;
    let bind = |source| RunError::Bind { address: SocketAddr::V4(config.shell.listen), source };
    let socket = UdpSocket::bind(config.shell.listen).map_err(bind)?;
    socket
        .set_read_timeout(Some(LOOK))
        .map_err(|source| RunError::System { what: "the socket", source })?;
    let mut heard = Rebuild::default();
    let start = Instant::now();
    while start.elapsed() < patience
        && (start.elapsed() < LISTEN || heard.verdict(without).is_err())
    {
        take(&socket, &keys, *config.shell.listen.ip(), &mut heard);
    }
    let found = heard.verdict(without)?;
    if own.version >= heard.version() {
        return Err(RebuildError::NotLost { own: own.version, servers: heard.version() });
    }
    database.write(&found)?;
    Ok(found)
}

/// Takes a datagram, if one comes.
fn take(socket: &UdpSocket, keys: &KeyRing, own: std::net::Ipv4Addr, heard: &mut Rebuild) {
    let mut buffer = vec![0; 65_536];
    // Nothing in time, or an earlier answer's "connection refused".
    let Ok((count, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) else { return };
    let bytes = &buffer[..count];
    if keys.verify(bytes, *from.ip(), own).is_err() {
        tracing::warn!(%from, "a message that is not genuine: does its sender have other secrets?");
        return;
    }
    if let Some(mut answer) = heard.datagram(from, bytes) {
        keys.sign(&mut answer, own, *from.ip());
        // What is lost is asked again at the next report.
        let _ = socket.send_to(&answer, from);
    }
}

/// Where decisions are kept, opened so that no controller has it meanwhile, or changes it unseen.
enum Database {
    File(DecisionFile<Views>),
    Etcd(Box<Etcd<Views>>),
}

impl Database {
    /// Opens it; with what it has.
    fn open(config: &Config) -> Result<(Database, Views), RebuildError> {
        match &config.shell.keep {
            Keep::Database(path) => {
                let (file, views) = DecisionFile::open(path).map_err(RunError::Database)?;
                Ok((Database::File(file), views))
            }
            Keep::Etcd(kept) => {
                let mut etcd =
                    etcd_client::<Views>(kept, format!("{} rebuilds", config.shell.name))?;
                let views = etcd.read().map_err(RebuildError::Etcd)?.unwrap_or_default();
                Ok((Database::Etcd(Box::new(etcd)), views))
            }
        }
    }

    fn write(&mut self, views: &Views) -> Result<(), RebuildError> {
        match self {
            Database::File(file) => Ok(file.write(views).map_err(RunError::Database)?),
            Database::Etcd(etcd) => match etcd.write(views) {
                Told::Input(Input::Persisted) => Ok(()),
                Told::Refused { why, .. } => {
                    Err(RebuildError::Etcd(format!("{why}; is a controller running?")))
                }
                _ => Err(RebuildError::Etcd(
                    "it changed meanwhile; is a controller running?".to_owned(),
                )),
            },
        }
    }
}
