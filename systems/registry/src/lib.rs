//! The registry: the systems that this build has. Nothing else lists them.
//!
//! It owns: which systems there are. It must not know: what they do.

#![forbid(unsafe_code)]

use p4_interpreter::object::Objects;
use xdp_backend::Systems;

/// Those whose state objects the compiler knows.
pub fn compiler() -> Systems {
    Systems(&[&redplane_compiler::RedPlane, &netchain_compiler::NetChain])
}

/// Those whose state objects the interpreters run.
pub fn interpreter() -> Objects {
    Objects(&[&redplane_compiler::Meaning, &netchain_compiler::Meaning])
}

/// Those of which a switch may run state.
pub fn switch() -> &'static [&'static dyn switch_agent::System] {
    &[&redplane_switch::RedPlane, &netchain_switch::NetChain]
}
