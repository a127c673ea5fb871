//! An object without entries, of which a program can have one.

use crate::SYSTEM;
use manifest::{Home, Layout, Settings, StateObject};
use p4_ir::ExternInstance;
use xdp_backend::system::Generator;

/// The object, once it is declared.
#[derive(Default)]
pub(crate) struct Single {
    c_name: Option<String>,
}

/// What a kind of such an object is.
pub(crate) struct Kind {
    /// As programs and manifests name it.
    pub name: &'static str,
    /// The runtime's map.
    pub map: &'static str,
    /// Entries of the map that the manifest tells; 0: none.
    pub capacity: u32,
    /// Why one object is enough.
    pub help: &'static str,
}

impl Single {
    pub(crate) fn is_empty(&self) -> bool {
        self.c_name.is_none()
    }

    pub(crate) fn is(&self, c_name: &str) -> bool {
        self.c_name.as_deref() == Some(c_name)
    }

    /// Puts the object into the manifest. A second one is an error.
    pub(crate) fn declare(
        &mut self,
        kind: &Kind,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        id: u16,
    ) {
        generator.manifest.state_objects.push(StateObject {
            id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: kind.name.into(),
            map: kind.map.into(),
            slots_map: None,
            capacity: kind.capacity,
            home: Home::ThisSwitch,
            key: vec![],
            key_bytes: 0,
            value: Layout::Fields { fields: vec![], bytes: 0, offset: 0 },
            settings: Settings::new(),
        });
        if let Some(first) = self.c_name.replace(instance.c_name.clone()) {
            let message = format!(
                "a second {}, {}, beside {first}: a program has at most one",
                kind.name, instance.name
            );
            generator.error(instance.location, &message, Some(kind.help));
        }
    }
}
