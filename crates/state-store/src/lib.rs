//! state-store
