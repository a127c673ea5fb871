//! Clients of etcd and ZooKeeper: the libraries that are kept for them in Rust.

use crate::kv::System;
use crate::kv::workload::Reading;
use anyhow::{Context, Result, anyhow, bail, ensure};
use etcd_client::{Compare, CompareOp, ConnectOptions, KvClient, Txn, TxnOp};
use std::net::Ipv4Addr;
use std::sync::RwLock;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_client::{Acls, CreateMode, Error as ZkError, SessionState};

/// Servers of a service.
pub const SERVERS: usize = 3;

/// A session ends after so long without its server.
const SESSION: Duration = Duration::from_millis(2000);
/// Waiting for one to begin.
const CONNECT: Duration = Duration::from_secs(20);

/// The address of a server.
pub fn address(server: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, server as u8 + 1)
}

/// A connection by way of one server.
pub enum Door {
    /// One HTTP/2 connection.
    Etcd(Box<KvClient>),
    /// One session. It begins at this door's server, and may move to others. The lock is of the
    /// task that begins it again: others wait, and find a session.
    ZooKeeper(String, RwLock<zookeeper_client::Client>, tokio::sync::Mutex<()>),
}

/// Tries to connect until it works: libraries give up when no server answers at once, and a leader
/// may not be there yet.
async fn connected<T, E, F>(what: &str, mut connect: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T, E>>,
    Result<T, E>: Context<T, E>,
{
    let until = tokio::time::Instant::now() + CONNECT;
    loop {
        let result = connect().await;
        if result.is_ok() || tokio::time::Instant::now() > until {
            return result.with_context(|| what.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn session(servers: &str) -> Result<zookeeper_client::Client> {
    let connector = zookeeper_client::Client::connector()
        .with_session_timeout(SESSION)
        .with_connection_timeout(SESSION / 4);
    connected(&format!("ZooKeeper at {servers}"), || connector.clone().connect(servers)).await
}

impl Door {
    /// Opens the door of a server.
    ///
    /// # Errors
    /// No server answers.
    pub async fn open(system: System, server: usize) -> Result<Door> {
        match system {
            System::Switches | System::Store => bail!("{} has no doors", system.name()),
            System::Etcd => {
                let options =
                    ConnectOptions::new().with_connect_timeout(Duration::from_millis(200));
                let endpoint = format!("{}:2379", address(server));
                let connect = || etcd_client::Client::connect([&endpoint], Some(options.clone()));
                let client = connected(&format!("etcd at {endpoint}"), connect).await?;
                Ok(Door::Etcd(Box::new(client.kv_client())))
            }
            System::ZooKeeper => {
                let mut all: Vec<String> =
                    (0..SERVERS).map(|it| format!("{}:2181", address(it))).collect();
                all.rotate_left(server);
                let servers = all.join(",");
                let client = session(&servers).await?;
                Ok(Door::ZooKeeper(servers, RwLock::new(client), tokio::sync::Mutex::default()))
            }
        }
    }

    /// A value and its revision; None: there is none.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub async fn get(&self, key: &str, reading: Reading) -> Result<Option<(Vec<u8>, i64)>> {
        match self {
            Door::Etcd(client) => {
                let answer = client.clone().get(key, None).await?;
                Ok(answer.kvs().first().map(|pair| (pair.value().to_vec(), pair.mod_revision())))
            }
            Door::ZooKeeper(..) => {
                let client = self.client()?;
                // Both are sent at once: a session's requests are carried out in their order.
                let (synced, read) = match reading {
                    Reading::Newest => tokio::join!(client.sync(key), client.get_data(key)),
                    Reading::Plain => (Ok(()), client.get_data(key).await),
                };
                synced?;
                match read {
                    Ok((bytes, stat)) => Ok(Some((bytes, i64::from(stat.version)))),
                    Err(ZkError::NoNode) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Writes a value of a key that is there.
    ///
    /// # Errors
    /// As [`Door::get`].
    pub async fn put(&self, key: &str, value: Vec<u8>) -> Result<()> {
        match self {
            Door::Etcd(client) => {
                client.clone().put(key, value, None).await?;
            }
            Door::ZooKeeper(..) => {
                self.client()?.set_data(key, &value, None).await?;
            }
        }
        Ok(())
    }

    /// Writes a value over the one of a revision. The new revision; None: the key has another one.
    ///
    /// # Errors
    /// As [`Door::get`].
    pub async fn put_over(&self, key: &str, value: Vec<u8>, revision: i64) -> Result<Option<i64>> {
        match self {
            Door::Etcd(client) => {
                let same = Compare::mod_revision(key, CompareOp::Equal, revision);
                let txn = Txn::new().when([same]).and_then([TxnOp::put(key, value, None)]);
                let answer = client.clone().txn(txn).await?;
                let now = answer.header().context("etcd's answer has no header")?.revision();
                Ok(answer.succeeded().then_some(now))
            }
            Door::ZooKeeper(..) => {
                let version = i32::try_from(revision)?;
                match self.client()?.set_data(key, &value, Some(version)).await {
                    Ok(stat) => Ok(Some(i64::from(stat.version))),
                    Err(ZkError::BadVersion) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Writes a key that may be new.
    ///
    /// # Errors
    /// As [`Door::get`].
    pub async fn create(&self, key: &str, value: Vec<u8>) -> Result<()> {
        if let Door::ZooKeeper(..) = self {
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            match self.client()?.create(key, &value, &options).await {
                Ok(_) => return Ok(()),
                Err(ZkError::NodeExists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.put(key, value).await
    }

    /// ZooKeeper's client, if its session is connected. (One that is not would keep requests, and
    /// send those that were given up, too: thousands at once when it is connected again.)
    ///
    /// # Errors
    /// It is etcd's door, the session is not connected, or a client has panicked.
    pub fn client(&self) -> Result<zookeeper_client::Client> {
        let client = self.session()?;
        let state = client.state();
        ensure!(state == SessionState::SyncConnected, "the session is {state}");
        Ok(client)
    }

    /// Whether requests can be sent. (etcd's client keeps its connection by itself.)
    pub fn is_connected(&self) -> bool {
        matches!(self, Door::Etcd(_)) || self.client().is_ok()
    }

    fn session(&self) -> Result<zookeeper_client::Client> {
        match self {
            Door::ZooKeeper(_, client, _) => {
                Ok(client.read().map_err(|_| anyhow!("a client panicked"))?.clone())
            }
            Door::Etcd(_) => bail!("etcd has no sessions"),
        }
    }

    /// Begins another session, if this one is over. (Connections begin again by themselves.)
    ///
    /// # Errors
    /// No server answers.
    pub async fn renew(&self) -> Result<()> {
        let Door::ZooKeeper(servers, place, turn) = self else { return Ok(()) };
        let _turn = turn.lock().await;
        if self.session()?.state().is_terminated() {
            let client = session(servers).await?;
            *place.write().map_err(|_| anyhow!("a client panicked"))? = client;
        }
        Ok(())
    }
}

/// The leader's number, once there is one.
///
/// # Errors
/// There is none for long.
pub async fn leader(system: System) -> Result<usize> {
    let until = tokio::time::Instant::now() + CONNECT;
    loop {
        for server in 0..SERVERS {
            let leads = match system {
                System::ZooKeeper => zookeeper_leads(server).await.unwrap_or(false),
                _ => etcd_leads(server).await.unwrap_or(false),
            };
            if leads {
                return Ok(server);
            }
        }
        ensure!(tokio::time::Instant::now() < until, "{}: no leader", system.name());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn etcd_leads(server: usize) -> Result<bool> {
    let endpoint = format!("{}:2379", address(server));
    let mut client = etcd_client::Client::connect([endpoint], None).await?;
    let status = client.status().await?;
    Ok(status.header().is_some_and(|header| header.member_id() == status.leader()))
}

/// What `srvr` says (ZooKeeper's four-letter words).
async fn zookeeper_leads(server: usize) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((address(server), 2181)).await?;
    stream.write_all(b"srvr").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.contains("Mode: leader"))
}
