//! p4-ir
