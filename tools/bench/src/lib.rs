//! The measurements behind `make bench`: the evaluations of RedPlane (§7) and NetChain (§8) on this
//! machine, and what compiled P4 costs beside programs written by hand.
//!
//! It owns: the experiments ([`experiments`]), the systems that are compared, the traffic, the
//! rounds, the statistics, and the page. It must not know: how P4 is compiled (it runs `stateplane
//! compile`), how FlowState works, or what a lab's daemons do (it brings up topologies and watches
//! traffic).
//!
//! What experiments measure with:
//! - [`per_packet`]: nanoseconds of CPU a packet, one program at a time, by BPF_PROG_RUN over a
//!   list of frames.
//! - [`traffic`]: packets a second through veth links and a network namespace, which is also what
//!   nftables can be compared with.
//! - [`probe`]: round-trip times through a switch of a lab, taken in the kernel.
//! - [`line`]: packets a second through a switch of a lab, at an offered rate.
//! - [`moves`]: how long a steady stream is silent while a link moves.
//! - [`churn`]: real TCP connections that come at a rate, and which of them break.
//! - [`kv`]: key-value services of switches, etcd and ZooKeeper side by side; also `stateplane demo
//!   kv`.
//! - [`shared`]: an attack that is spread over four switches; also `stateplane demo shared`.

pub mod apps;
pub mod build;
pub mod churn;
pub mod contention;
pub mod controller;
pub mod experiments;
pub mod flows;
pub mod frame;
pub mod kernel;
pub mod kv;
pub mod labs;
pub mod line;
pub mod markdown;
pub mod messages;
pub mod model;
pub mod moves;
pub mod network;
pub mod packets;
pub mod page;
pub mod per_packet;
pub mod probe;
pub mod report;
pub mod requests;
pub mod results;
pub mod shared;
pub mod sides;
pub mod statistics;
pub mod systems;
pub mod trace;
pub mod traffic;
pub mod xdp_time;
