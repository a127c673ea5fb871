//! What every daemon has in common: it reads a configuration, tells systemd how it is, gives
//! Prometheus its metrics, and answers tools ([`ask`]).
//!
//! Owns the form of these; fields, metrics and the moment of readiness belong to the daemon.

pub mod ask;
pub mod config;
pub mod metrics;
pub mod service;
