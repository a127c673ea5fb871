//! state-protocol
