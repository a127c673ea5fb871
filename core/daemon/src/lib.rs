//! What every daemon has in common: it reads a configuration, tells systemd how it is, and gives
//! Prometheus its metrics.
//!
//! Owns the form of these; fields, metrics and the moment of readiness belong to the daemon.

pub mod config;
pub mod metrics;
pub mod service;
