//! switch-agent
