//! The registry: all systems whose state objects the compiler knows. Nothing else names them.

mod redplane;

use crate::system::Systems;

impl Systems {
    /// All of them.
    pub const ALL: Systems = Systems(&[&redplane::RedPlane]);
}

impl Default for Systems {
    fn default() -> Systems {
        Systems::ALL
    }
}
