//! Addresses of dead switches on an interface of this host, so that its routing daemon announces
//! them: then a request to a dead switch finds somebody who answers.
//!
//! An interface that is not there is made, as a dummy. It may also be one that has other addresses:
//! those that are no switch's stay. The program takes the packets to these addresses
//! (`Running::own_addresses`).

use nix::ifaddrs::getifaddrs;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The interface.
pub(crate) struct Announced {
    interface: String,
}

impl Announced {
    pub fn on(interface: String) -> Announced {
        Announced { interface }
    }

    /// Those of `others` that it has.
    pub fn present(&self, others: &[Ipv4Addr]) -> BTreeSet<Ipv4Addr> {
        let all = getifaddrs().into_iter().flatten();
        let here = all.filter(|it| it.interface_name == self.interface);
        let here = here.filter_map(|it| Some(it.address?.as_sockaddr_in()?.ip()));
        here.filter(|it| others.contains(it)).collect()
    }

    fn exists(&self) -> bool {
        nix::net::if_::if_nametoindex(self.interface.as_str()).is_ok()
    }

    /// Of `others`, it has these addresses from now on.
    ///
    /// # Errors
    /// `ip` says why; what it did before stays.
    pub fn set(
        &self,
        addresses: &[Ipv4Addr],
        others: &[Ipv4Addr],
    ) -> Result<(), netns::BatchError> {
        let (present, name) = (self.present(others), &self.interface);
        let mut lines = vec![];
        if !self.exists() {
            if addresses.is_empty() {
                return Ok(());
            }
            lines.push(format!("link add {name} type dummy"));
            lines.push(format!("link set {name} up"));
        }
        let gone = present.iter().filter(|it| !addresses.contains(it));
        lines.extend(gone.map(|it| format!("address del {it}/32 dev {name}")));
        let new = addresses.iter().filter(|it| !present.contains(it));
        lines.extend(new.map(|it| format!("address add {it}/32 dev {name}")));
        netns::ip_batch(&lines)
    }
}
