//! Structs that BPF programs in C and user space in Rust share, each defined once: [`c_struct!`]
//! makes the Rust type and describes the C one ([`Layout`]), [`Header`] writes the C file.
//!
//! It owns: C's rules for size, alignment and padding; the text of headers. It must not know: any
//! struct.

#![forbid(unsafe_code)]

mod header;
mod layout;
mod member;

pub use header::{Header, Number};
pub use layout::{CStruct, Layout, MemberLayout, c_struct_support};
pub use member::{Be16, Be32, Be64, Member, SpinLock};
