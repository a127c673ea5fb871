//! A switch without a controller: its peers are in its configuration, its own address and ring in
//! its tables.

use crate::peers::Peers;
use dataplane::Dataplane;
use std::net::Ipv4Addr;
use switch_agent::Result;

/// The table and the action that say what this switch is.
const TABLE: &str = "NetChainIngress.destinations";
const ACTION: &str = "serve";

/// This switch's address and ring.
fn own(dataplane: &Dataplane) -> Result<Option<(Ipv4Addr, u32)>> {
    let table = dataplane.table(TABLE)?;
    for listed in table.list()? {
        let call = &listed.entry.action;
        let named = table.action_name(call.action);
        let (Some(address), Some(ring)) = (listed.entry.matches.first(), call.arguments.first())
        else {
            continue;
        };
        if named.rsplit('.').next() == Some(ACTION) {
            return Ok(Some((Ipv4Addr::from(address.value() as u32), *ring as u32)));
        }
    }
    Ok(None)
}

/// Sets the peers, once the switch has an address; or again, as a new one may have come.
pub(crate) fn set(dataplane: &Dataplane, peers: &Peers, all: &[Ipv4Addr]) {
    let outcome = own(dataplane).and_then(|own| match own {
        Some((address, ring)) => peers.set(address, ring, all),
        None => Ok(()),
    });
    if let Err(error) = outcome {
        tracing::warn!("peers: {error}");
    }
}
