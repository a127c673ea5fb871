//! The host's own addresses, and word from the kernel when they or the interfaces change.

use crate::error::{Error, Result};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::unix::AsyncFd;

/// Every address of every interface of this network namespace, with the broadcasts of their
/// networks: what comes for one is for this host, and nothing comes from one.
pub(crate) fn local() -> Result<(Vec<Ipv4Addr>, Vec<Ipv6Addr>)> {
    let found = nix::ifaddrs::getifaddrs().map_err(|error| Error::System {
        action: "list the host's addresses".into(),
        source: error.into(),
    })?;
    let (mut four, mut six) = (vec![], vec![]);
    for interface in found {
        let Some(address) = interface.address else { continue };
        if let Some(ipv4) = address.as_sockaddr_in() {
            four.push(ipv4.ip());
            let mask =
                interface.netmask.as_ref().and_then(|it| it.as_sockaddr_in()).map(|it| it.ip());
            four.extend(
                mask.and_then(|mask| {
                    dataplane::broadcast_of(ipv4.ip(), u32::from(mask).count_ones())
                }),
            );
        } else if let Some(ipv6) = address.as_sockaddr_in6() {
            six.push(ipv6.ip());
        }
    }
    four.sort();
    four.dedup();
    six.sort();
    six.dedup();
    Ok((four, six))
}

/// A netlink socket that says when addresses or links change.
pub(crate) struct Watch(AsyncFd<OwnedFd>);

impl Watch {
    /// Subscribes. Must be called inside a tokio runtime.
    pub fn new() -> Result<Watch> {
        let failed =
            |source: std::io::Error| Error::System { action: "listen to netlink".into(), source };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let descriptor =
            socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)
                .map_err(|e| failed(e.into()))?;
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        bind(descriptor.as_raw_fd(), &NetlinkAddr::new(0, groups as u32))
            .map_err(|e| failed(e.into()))?;
        // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives, and the
        // `AsyncFd` owns it.
        let registered = unsafe { AsyncFd::register(descriptor) };
        Ok(Watch(registered.map_err(|error| failed(error.into()))?))
    }

    /// Returns when something has changed, having read all that is known by now. What changed is
    /// not said: the caller looks for itself.
    pub async fn changed(&self) {
        let Ok(mut ready) = self.0.readable().await else { return };
        let mut buffer = [0u8; 8192];
        // An overflow (ENOBUFS) is news as well.
        while recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT).is_ok() {}
        ready.clear_ready();
    }
}
