//! Maps that become empty again, as they were when the object was loaded.

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::sys::{self, Update};
use libbpf_rs::{MapCore, MapFlags, MapType};

impl Dataplane {
    /// Empties a map: an array, a hash map or a queue. Packets must not use it meanwhile.
    ///
    /// # Errors
    /// There is no such map, or the kernel refuses.
    pub fn empty(&self, name: &str) -> Result<()> {
        let map = self.required_map(name, "runtime")?;
        let failed = |error| Error::libbpf(format!("empty {name}"), error);
        match map.map_type() {
            MapType::Hash => {
                // (A key that is gone meanwhile is as good.)
                for key in map.keys().collect::<Vec<_>>() {
                    if map.lookup(&key, MapFlags::ANY).map_err(failed)?.is_some() {
                        map.delete(&key).map_err(failed)?;
                    }
                }
            }
            MapType::Queue => while let Ok(Some(_)) = map.lookup_and_delete(&[]) {},
            _ => {
                let empty = vec![0; map.value_size() as usize];
                for index in 0..map.max_entries() {
                    let key = index.to_ne_bytes();
                    // (Most elements are: writing is what costs.)
                    let now = map.lookup(&key, MapFlags::ANY).map_err(failed)?;
                    if now.is_some_and(|it| it != empty) {
                        sys::map_update(map, &key, &empty, Update::Any)
                            .map_err(|error| Error::kernel(format!("empty {name}"), error))?;
                    }
                }
            }
        }
        Ok(())
    }
}
