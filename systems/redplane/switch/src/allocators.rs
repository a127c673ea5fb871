//! What allocators in the switch draw from: addresses and ports of a NAT, backends of a load
//! balancer.

use c_layout::{Be16, CStruct};
use dataplane::{Dataplane, Result};
use state_protocol::layouts::{BACKEND_PLACES, Backend, MAX_POOL_ADDRESSES, NatPool};
use std::net::{Ipv4Addr, SocketAddrV4};

/// [`crate::runtime::FlowRuntime::set_nat_pool`]
pub(crate) fn set_nat_pool(
    dataplane: &Dataplane,
    addresses: &[Ipv4Addr],
    low: u16,
    high: u16,
) -> Result<()> {
    if !dataplane.has_map("sp_nat_pool") {
        return Ok(());
    }
    let at = |index| addresses.get(index).copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
    let pool = NatPool {
        count: addresses.len().min(MAX_POOL_ADDRESSES) as u32,
        port_low: low,
        port_high: high,
        address: std::array::from_fn(at),
    };
    dataplane.write_array("sp_nat_pool", 0, &pool.to_bytes())
}

/// [`crate::runtime::FlowRuntime::set_backends`]
pub(crate) fn set_backends(dataplane: &Dataplane, backends: &[(SocketAddrV4, u32)]) -> Result<()> {
    if !dataplane.has_map("sp_backends") {
        return Ok(());
    }
    for (slot, backend) in (0u32..).zip(backend_places(backends)) {
        let to = backend.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let value = Backend { address: *to.ip(), port: Be16(to.port()), reserved: 0 };
        dataplane.write_array("sp_backends", slot, &value.to_bytes())?;
    }
    Ok(())
}

/// What stands in each place of `sp_backends`: a place belongs to the backend in whose part of the
/// summed weights its middle lies.
fn backend_places(backends: &[(SocketAddrV4, u32)]) -> [Option<SocketAddrV4>; BACKEND_PLACES] {
    let total: u64 = backends.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut places = [None; BACKEND_PLACES];
    for (index, place) in places.iter_mut().enumerate() {
        let middle = (2 * index as u64 + 1) * total; // in 1 / (2 * BACKEND_PLACES) of a weight of 1
        let mut sum = 0;
        *place = backends.iter().find_map(|(address, weight)| {
            sum += u64::from(*weight) * 2 * BACKEND_PLACES as u64;
            (middle < sum).then_some(*address)
        });
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_shared_out_by_weight() {
        let backend = |last, weight| (SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 80), weight);
        let count = |places: &[Option<SocketAddrV4>], last| {
            places.iter().flatten().filter(|to| to.ip().octets()[3] == last).count()
        };
        let places = backend_places(&[backend(1, 1), backend(2, 0), backend(3, 3)]);
        assert_eq!([1, 2, 3].map(|last| count(&places, last)), [256, 0, 768]);
        let places =
            backend_places(&[backend(1, u32::MAX), backend(2, u32::MAX), backend(3, u32::MAX)]);
        assert_eq!(places.iter().flatten().count(), BACKEND_PLACES);
        assert!(
            [1, 2, 3].iter().all(|last| count(&places, *last).abs_diff(BACKEND_PLACES / 3) <= 1)
        );
        assert_eq!(backend_places(&[backend(1, 0)]), [None; BACKEND_PLACES]);
        assert_eq!(backend_places(&[]), [None; BACKEND_PLACES]);
    }
}
