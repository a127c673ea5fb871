//! The raw-packet suite: see `lab_packets.rs`.

pub mod cases;
pub mod packet;
pub mod system;
pub mod table;
pub mod talk;
pub mod verdict;
pub mod view;
pub mod wire;
