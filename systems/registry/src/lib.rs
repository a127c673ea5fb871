//! The registry: which systems there are. A new system adds a line to each list.

/// Systems of which a switch may run state.
pub fn switch() -> &'static [&'static dyn switch_agent::System] {
    &[&redplane_switch::RedPlane]
}
