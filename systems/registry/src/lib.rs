//! The registry: the systems that this build has. Nothing else lists them.
//!
//! It owns: which systems there are. It must not know: what they do.

#![forbid(unsafe_code)]

use p4_interpreter::object::Objects;
use xdp_backend::Systems;

/// Makes a function of each seam, which gives the systems that plug into it.
macro_rules! systems {
    ($([$compiler:path, $meaning:path, $switch:path, $tools:path, $fuzz:path];)*) => {
        /// Those whose state objects the compiler knows.
        pub fn compiler() -> Systems {
            Systems(&[$(&$compiler),*])
        }

        /// Those whose state objects the interpreters run.
        pub fn interpreter() -> Objects {
            Objects(&[$(&$meaning),*])
        }

        /// Those of which a switch may run state.
        pub fn switch() -> &'static [&'static dyn switch_agent::System] {
            &[$(&$switch),*]
        }

        /// Those whose messages traces show.
        pub fn messages() -> trace::Systems {
            trace::Systems(&[$(&$tools),*])
        }

        /// Those with lines of their own in packet tests.
        pub fn packet_tests() -> packet_test::Systems {
            packet_test::Systems(&[$(&$tools),*])
        }

        /// Those with doors that fuzzers feed.
        pub fn doors() -> &'static [&'static dyn fuzz_door::Doors] {
            &[$(&$tools),*]
        }

        /// Those that `stateplane-fuzz` runs something of.
        pub fn campaigns() -> &'static [&'static dyn fuzz_door::Campaigns] {
            &[$(&$fuzz),*]
        }

        /// Those that the command line knows.
        pub fn command_line() -> &'static [&'static dyn command_line::System] {
            &[$(&$tools),*]
        }
    };
}

// One line each: in the compiler, its meaning on one node, in the switch, in the tools, under
// random inputs.
systems! {
    [redplane_compiler::RedPlane, redplane_compiler::Meaning, redplane_switch::RedPlane, redplane_tools::RedPlane, redplane_fuzz::RedPlane];
    [netchain_compiler::NetChain, netchain_compiler::Meaning, netchain_switch::NetChain, netchain_tools::NetChain, netchain_tools::NetChain];
    [swish_compiler::SwiSh, swish_compiler::Meaning, swish_switch::SwiSh, swish_tools::SwiSh, swish_tools::SwiSh];
}
