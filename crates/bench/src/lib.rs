//! The measurements behind `make bench`: ratios, each from one run, of the NAT written in P4 against the same NAT without fault tolerance, a NAT written
//! by hand in C, and the kernel's own.
//!
//! It owns: the systems that are compared, the packets, the rounds, the statistics, and the report. It must not know: how P4 is compiled (it runs
//! `stateplane compile`) or how FlowState works (it writes finished bindings with long leases into the maps).
//!
//! Two measurements:
//! - [`per_packet`]: nanoseconds of CPU a packet, one program at a time, by BPF_PROG_RUN over a list of frames.
//! - [`traffic`]: packets a second through veth links and a network namespace, which is also what nftables can be compared with.

pub mod build;
pub mod flows;
pub mod frame;
pub mod kernel;
pub mod namespace;
pub mod network;
pub mod per_packet;
pub mod report;
pub mod statistics;
pub mod systems;
pub mod traffic;
