//! Five servers, a controller and three clients on a network that loses, repeats, delays, reorders
//! and cuts. Servers crash and come back empty (never all that have a shard's state), the
//! controller crashes between a decision and its sending, links are cut. The servers keep counters.
//! Everything follows from one seed, which a failure prints; `SIMULATION_SEED=n` replays it,
//! `CHAIN_SEEDS=n` tries so many (12), `SIMULATION_TRACE=1` prints faults, decisions and what
//! servers make of them.
//!
//! A system's real servers go through the same scenarios in the system's own tests.

mod scenarios;
mod store;
mod world;
