//! Exclusive locks by conditional writes, the same way on all services: a key that is there is
//! taken.

use crate::kv::rivals::Door;
use anyhow::{Result, bail};
use etcd_client::{Compare, CompareOp, KvClient, Txn, TxnOp};
use netchain_client::{AsyncClient, Key, Outcome};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use zookeeper_client::{Acls, CreateMode, Error as ZkError};

/// Clients that take and free locks.
pub struct Lockers {
    /// Where they work: its threads are in the clients' namespace.
    pub runtime: Arc<Runtime>,
    /// One for each server; one for all switches.
    pub all: Vec<Locker>,
}

/// A client of one service.
#[derive(Clone)]
pub enum Locker {
    /// Switches: insert, and delete.
    Switches(AsyncClient),
    /// etcd: a transaction that puts a key that is not there, and delete.
    Etcd(Box<KvClient>),
    /// ZooKeeper: an ephemeral node, and delete.
    ZooKeeper(zookeeper_client::Client),
}

impl Locker {
    /// Of an open door.
    ///
    /// # Errors
    /// Its client has panicked.
    pub fn of(door: &Door) -> Result<Locker> {
        Ok(match door {
            Door::Etcd(client) => Locker::Etcd(client.clone()),
            Door::ZooKeeper(..) => Locker::ZooKeeper(door.client()?),
        })
    }

    /// Takes a lock; whether it was free.
    ///
    /// # Errors
    /// The service does not answer, or nobody can say what became of it.
    pub async fn take(&self, lock: &str, owner: &[u8]) -> Result<bool> {
        match self {
            Locker::Switches(client) => match client.insert(&Key::from_name(lock)?, owner).await? {
                Outcome::Done(_) => Ok(true),
                Outcome::Refused(_) => Ok(false),
                other => bail!("{lock}: {other:?}"),
            },
            Locker::Etcd(client) => {
                let free = Compare::create_revision(lock, CompareOp::Equal, 0);
                let put = TxnOp::put(lock, owner, None);
                let txn = Txn::new().when([free]).and_then([put]);
                Ok(client.clone().txn(txn).await?.succeeded())
            }
            Locker::ZooKeeper(client) => {
                let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
                match client.create(&format!("/{lock}"), owner, &options).await {
                    Ok(_) => Ok(true),
                    Err(ZkError::NodeExists) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Frees a lock that this client holds.
    ///
    /// # Errors
    /// As [`Locker::take`].
    pub async fn free(&self, lock: &str) -> Result<()> {
        match self {
            Locker::Switches(client) => match client.delete(&Key::from_name(lock)?, 0).await? {
                Outcome::Done(_) => Ok(()),
                other => bail!("{lock}: {other:?}"),
            },
            Locker::Etcd(client) => Ok(client.clone().delete(lock, None).await.map(drop)?),
            Locker::ZooKeeper(client) => Ok(client.delete(&format!("/{lock}"), None).await?),
        }
    }

    /// Takes a lock, as often as it needs. How often it was taken already.
    ///
    /// # Errors
    /// As [`Locker::take`]; the lock is not free for long.
    pub async fn take_at_last(&self, lock: &str, owner: &[u8], most: Duration) -> Result<u64> {
        let until = tokio::time::Instant::now() + most;
        let mut refused = 0;
        while !self.take(lock, owner).await? {
            refused += 1;
            if tokio::time::Instant::now() > until {
                bail!("{lock} is not free for {} s", most.as_secs());
            }
        }
        Ok(refused)
    }
}
