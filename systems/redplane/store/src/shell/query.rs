//! Asking a running server for its status, and for what it has.

use crate::core::{NodeStatus, StateAnswer, StateQuery};
pub use daemon::ask::{QueryError, query};
use std::net::SocketAddrV4;
use std::time::Duration;
use wire::{KeyRing, ToolType};

/// Asks a server how it is.
///
/// # Errors
/// There is no answer in time, or none of a store.
pub fn query_status(
    address: SocketAddrV4,
    keys: &KeyRing,
    timeout: Duration,
) -> Result<NodeStatus, QueryError> {
    query(address, keys, timeout)
}

/// Asks a server for some of what it has.
///
/// # Errors
/// There is no answer in time, or none of a store.
pub fn query_state(
    question: &StateQuery,
    address: SocketAddrV4,
    keys: &KeyRing,
    timeout: Duration,
) -> Result<StateAnswer, QueryError> {
    let json = serde_json::to_vec(question).map_err(|error| QueryError::BadAnswer {
        address,
        problem: format!("the question: {error}"),
    })?;
    daemon::ask::ask(ToolType::StateRequest, &json, address, keys, timeout)
}
