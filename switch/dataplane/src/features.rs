//! What an interface's driver can do with XDP.

use crate::sys;

/// `enum netdev_xdp_act` of the kernel's netdev family.
const NDO_XMIT: u64 = 1 << 2;

/// What an interface's driver can do with XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Frames that an XDP program redirects to it are sent.
    pub redirect_target: bool,
}

/// As the driver says. `None`: it says nothing (kernels before 6.3, and drivers without native
/// XDP).
pub fn xdp_features(ifindex: u32) -> Option<XdpFeatures> {
    let flags = sys::xdp_feature_flags(ifindex).ok().filter(|flags| *flags != 0)?;
    Some(XdpFeatures { redirect_target: flags & NDO_XMIT != 0 })
}
