//! The real store through the controller's scenarios: five servers, a controller and three model
//! switches on a network that loses, repeats, delays, reorders and cuts. Everything follows from
//! one seed, which a failure prints; `SIMULATION_SEED=n` replays it, `CHAIN_SEEDS=n` tries so many
//! (12), `SIMULATION_TRACE=flow` prints everything about that flow, and all events and decisions.

#[path = "../../../../core/controller/tests/scenarios/mod.rs"]
mod scenarios;
#[path = "cluster/mod.rs"]
mod store;
#[path = "../../../../core/controller/tests/world/mod.rs"]
mod world;
