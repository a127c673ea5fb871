//! Key-value services side by side: keys that switches serve ([`switches`]), and etcd and ZooKeeper
//! on three servers ([`servers`]).
//!
//! It owns: their labs, the load of native clients ([`workload`]), what was acknowledged and is
//! there no more ([`ledger`]), CPU time of the whole machine ([`cpu`]), and the demonstration
//! ([`demo`]). It must not know: how any of these services works.

pub mod cpu;
pub mod demo;
pub mod echo;
pub mod fabric;
pub mod failure;
pub mod figure;
pub mod labs;
pub mod ledger;
pub mod lockers;
pub mod picture;
pub mod rivals;
pub mod servers;
pub mod store;
pub mod switches;
pub mod workload;

use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use workload::{Measured, Workload};

/// The services.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum System {
    /// Switches that answer in their data plane: NetChain.
    Switches,
    /// etcd.
    Etcd,
    /// ZooKeeper.
    ZooKeeper,
    /// RedPlane's store, behind a switch.
    Store,
}

impl System {
    /// Those that are compared, in the order in which they are shown.
    pub const ALL: [System; 3] = [System::Switches, System::Etcd, System::ZooKeeper];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            System::Switches => "stateplane",
            System::Etcd => "etcd",
            System::ZooKeeper => "zookeeper",
            System::Store => "RedPlane's store",
        }
    }

    /// What dies in the demonstration.
    pub fn victim(self) -> &'static str {
        match self {
            System::Switches | System::Store => "head",
            System::Etcd | System::ZooKeeper => "leader",
        }
    }
}

/// A service that runs, with its clients.
pub trait Service {
    /// Which one.
    fn system(&self) -> System;

    /// Its network.
    fn network(&self) -> &labs::Network;

    /// Writes so many keys once, so that reads find values of this length.
    ///
    /// # Errors
    /// A write fails.
    fn fill(&mut self, keys: usize, value_bytes: usize) -> Result<()>;

    /// Runs a load on keys that [`Service::fill`] wrote.
    ///
    /// # Errors
    /// The client, or the machine, cannot be asked.
    fn run(&mut self, load: &Workload) -> Result<Measured>;

    /// Clients that take locks.
    ///
    /// # Errors
    /// They cannot begin.
    fn lockers(&self) -> Result<lockers::Lockers>;

    /// Runs a load at a fixed rate, in whose middle a machine is killed and comes back.
    ///
    /// # Errors
    /// The client or the lab fails.
    fn fail(
        &mut self,
        plan: &failure::Plan,
        live: &Arc<failure::Live>,
    ) -> Result<failure::Recorded>;
}

/// A runtime whose thread is in the clients' namespace: sockets are made where their thread is. One
/// thread does all of it: more of them cost more for each request.
fn runtime(network: &labs::Network) -> Result<tokio::runtime::Runtime> {
    let netns = network.lab().netns("client")?;
    let entered = Arc::new(AtomicBool::new(true));
    let note = Arc::clone(&entered);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .on_thread_start(move || {
            if netns.enter_thread().is_err() {
                note.store(false, Ordering::Relaxed);
            }
        })
        .build()?;
    runtime.block_on(runtime.spawn(async {}))?;
    ensure!(entered.load(Ordering::Relaxed), "the clients' namespace cannot be entered");
    Ok(runtime)
}

/// Brings a service up, in a network of its own.
///
/// # Errors
/// A program is missing (the error names its package), or the lab does not come up.
pub fn up(site: &labs::Site, system: System, groups: u16) -> Result<Box<dyn Service>> {
    Ok(match system {
        System::Switches => Box::new(switches::Switches::up(site, groups)?),
        System::Store => Box::new(store::Store::up(site)?),
        System::Etcd | System::ZooKeeper => Box::new(servers::Servers::up(site, system)?),
    })
}
