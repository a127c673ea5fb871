//! NetChain in the tools: what `systems/registry` hands to them.
//!
//! It owns: the command `kv`; its messages in a trace; what fuzzers feed bytes to, and its state in
//! generated programs. It must not know: the rules of clients and switches.

#![forbid(unsafe_code)]

mod founding;
mod generated;
mod kv;
mod messages;

use clap::{CommandFactory, FromArgMatches};
use command_line::Plug;
use fuzz_door::{Door, told};
use manifest::Manifest;
use netchain_protocol::Message;
use packet_test::{Backing, Line, Outcome};

/// What the registry lists.
pub struct NetChain;

impl command_line::System for NetChain {
    fn commands(&self) -> Vec<Plug> {
        let run = |arguments: &clap::ArgMatches| match kv::Args::from_arg_matches(arguments) {
            Ok(arguments) => kv::run(arguments),
            Err(error) => error.exit(),
        };
        vec![Plug { under: None, command: kv::Args::command(), run }]
    }
}

/// A switch of a packet test stands alone: roles are entries, and other switches are packets.
impl packet_test::System for NetChain {
    fn keywords(&self) -> &'static [&'static str] {
        &[]
    }

    fn check(&self, _: &Line, _: &[Line]) -> Result<(), packet_test::stf::Wrong> {
        Ok(())
    }

    fn begin(&self, _: &[Line], _: &Manifest) -> Outcome<Option<Box<dyn Backing>>> {
        Ok(None)
    }
}

impl fuzz_door::Doors for NetChain {
    fn doors(&self) -> &'static [Door] {
        &[]
    }

    /// What is decoded and encoded again is decoded to the same.
    fn datagram(&self, data: &[u8]) {
        match Message::decode(data) {
            Ok(message) => {
                let again = message.encode().expect("what was decoded fits");
                assert_eq!(Message::decode(&again), Ok(message));
            }
            Err(error) => told(&error),
        }
    }
}

/// It has no campaign of its own.
impl fuzz_door::Campaigns for NetChain {
    fn state(&self) -> &'static [&'static dyn fuzz_door::StateKind] {
        &[&generated::Slots]
    }
}
