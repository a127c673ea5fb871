//! One module a subcommand: each parses its own arguments and calls one crate. Systems add others
//! (`command_line::System`).

pub mod check;
pub mod compile;
pub mod controller;
pub mod counter;
pub mod demo;
pub mod keys;
pub mod lab;
mod merges;
mod messages;
pub mod ports;
pub mod register;
pub mod state;
pub mod status;
pub mod switch;
pub mod table;
pub mod test;
pub mod trace;
pub mod traffic;
