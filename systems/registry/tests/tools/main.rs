//! The systems' parts for the tools: a toy system, a counter that gossips, beside those of the
//! registry at each seam, and the pages that list what systems bring.

mod packet_tests_page;
mod trace_messages;

/// What a registry with the toy would list.
pub struct Toy;
