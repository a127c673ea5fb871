//! xdp-backend
