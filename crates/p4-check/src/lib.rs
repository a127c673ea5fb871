//! p4-check
