//! What applications build on keys: locks, semaphores, barriers, elections, membership, counters,
//! transactions.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use netchain_recipes::{Blocking, Lock, wait};
//! use std::time::Duration;
//! let store = Blocking::open("kv.toml".as_ref())?;
//! let lock = Lock::new(&store, "backup", Duration::from_secs(5))?;
//! let held = wait(lock.take(None))?.ok_or("nobody waits for ever")?;
//! println!("mine until {:?} from now; fencing token {}", held.left(), held.token());
//! wait(held.release())?;
//! # Ok(())
//! # }
//! ```
//!
//! # Leases
//!
//! No switch's clock decides. Who holds something writes again (`refresh`) before its lease is
//! over, and counts the lease from the moment at which it **sent** its last write that is known to
//! be done. Who waits counts from the moment at which it first **heard** of that write, and takes
//! over after the lease and [`DRIFT`] more without another write, by compare-and-set on the version
//! that it saw. So the holder stops believing before anybody takes over, if the clocks' rates
//! differ by less than [`DRIFT`]. Clocks count while the machine is suspended (CLOCK_BOOTTIME).
//!
//! A process may be stopped between its look at the clock and what it does then. So what is
//! protected should compare fencing tokens: a later holder has a larger one.
//!
//! # Keys
//!
//! A name is its bytes, with zero bytes behind them to 16. Longer names are refused, never hashed.
//!
//! | recipe | bytes of a name | keys |
//! | --- | --- | --- |
//! | [`Lock`], [`RwLock`], [`Semaphore`], [`Election`], [`Counter`], [`Barrier`] | 16 | the name |
//! | [`Membership`] | 13 | name, zeros to 14, number of the place from 1 on (2 bytes, big-endian) |
//! | [`Transaction`] | 14 | the name; its lock: name, zeros to 14, bytes ff 4c |
//!
//! Values begin with a letter of their recipe (but for counters, whose value is the number), so a
//! name that serves two purposes is found out ([`Error::NotOurs`]).

#![forbid(unsafe_code)]

mod barrier;
mod cell;
mod counter;
mod election;
mod lock;
mod membership;
mod mutation;
mod names;
mod seats;
mod store;
mod transaction;

pub use barrier::Barrier;
pub use cell::Error;
pub use counter::{Counted, Counter};
pub use election::{Election, Leader, Leads};
pub use lock::{Lock, RwLock, Semaphore};
pub use membership::{Member, Membership, Observer};
pub use mutation::Mutation;
#[cfg(feature = "mutations")]
pub use mutation::plant;
pub use seats::Seat;
pub use store::{Answer, Blocking, Store, wait};
pub use transaction::{Transaction, Values};

/// How much the rates of two clocks may differ: one part in a hundred.
pub const DRIFT: f64 = 0.01;

/// The lease as those count who judge it.
fn judged_us(lease_us: u64) -> u64 {
    lease_us + (lease_us as f64 * DRIFT).ceil() as u64
}
