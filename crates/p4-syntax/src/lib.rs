//! p4-syntax
