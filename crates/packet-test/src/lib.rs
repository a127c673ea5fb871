//! packet-test
