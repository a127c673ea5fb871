//! Chain replication of any state machine, without IO: `(now, message) → datagrams`.
//!
//! A [`Replica`] keeps one [`StateMachine`] in one place of one chain. It owns order, views, links,
//! copies to joining replicas, and what must be durable before anything leaves. The system around
//! it ([`Shard`]) owns the state machine, and decides, at the head, which effects are ordered. A
//! [`Node`] is a server process with shards of many chains. The crate knows no system's state, no
//! sockets, clocks or files. Time is the caller's, in ns of any clock that does not go back. The
//! README names the page with the rules.

mod copy;
mod counters;
mod door;
mod durable;
mod journal;
mod link;
mod log;
mod machine;
mod mutation;
mod node;
mod out_of_order;
mod output;
mod receive;
mod replica;
mod touched;
mod view;

pub use counters::Counters;
pub use journal::{BadJournal, Item, Restored, RestoredReplica};
pub use machine::{DoesNotApply, StateMachine};
pub use mutation::Mutation;
#[cfg(feature = "mutations")]
pub use mutation::plant;
pub use node::{Node, NodeCounters, NodeSettings, Shard, System};
pub use output::{BrokenReason, Event, Outputs, Role, Run};
pub use replica::{Replica, Settings};
pub use touched::Touched;
pub use view::{Adopted, Steady};

use std::net::{Ipv4Addr, SocketAddrV4};

/// Where an entry goes that answers nobody.
pub const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// One entry of a chain of such state machines.
type Entry<'a, S> = wire::Entry<'a, <S as StateMachine>::Effect<'a>>;

/// The entries of a message, in order, each with its own bytes.
type Entries<'a, S> = wire::Entries<'a, <S as StateMachine>::Effect<'a>>;
