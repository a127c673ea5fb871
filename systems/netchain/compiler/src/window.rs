//! A RequestWindow in C.

use crate::{REQUEST_WINDOW, SYSTEM};
use manifest::{Home, Layout, Settings, StateObject};
use netchain_protocol::layouts::{WINDOW_CELLS, window_cells_offset};
use p4_ir::{Argument, ExternInstance};
use xdp_backend::system::{Generator, ObjectCall, Writer};

const MAX_KEY_BYTES: u32 = 32;

/// An object as the generator needs it.
pub(crate) struct WindowObject {
    pub(crate) c_name: String,
    id: u16,
    size: u32,
    key_bytes: u32,
}

impl WindowObject {
    pub(crate) fn declare(
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        id: u16,
    ) -> WindowObject {
        let size = generator.size_of(instance);
        let (key, key_bytes) =
            generator.wire_struct(instance, 0, "client", "a struct as client", MAX_KEY_BYTES);
        let c_name = instance.c_name.clone();
        generator.manifest.state_objects.push(StateObject {
            id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: REQUEST_WINDOW.into(),
            map: c_name.clone(),
            slots_map: Some(format!("{c_name}_windows")),
            capacity: size,
            home: Home::ThisSwitch,
            key,
            key_bytes,
            value: Layout::Slots {
                count: WINDOW_CELLS,
                width: 32,
                slot_bytes: 4,
                map_slot_bytes: 4,
                offset: window_cells_offset(key_bytes),
            },
            settings: Settings::new(),
        });
        WindowObject { c_name, id, size, key_bytes }
    }

    pub(crate) fn call(&self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { method, arguments, result, location, .. } = *call;
        let name = &self.c_name;
        match (method, arguments) {
            ("settle", [Argument::In(verdict)]) => {
                let verdict = generator.expr(verdict);
                generator.out.line(format!("{name}_settle(&slots, {verdict});"));
            }
            ("claim", [Argument::In(client), Argument::In(number)]) => {
                generator.open("");
                generator.wire_buffer("sp_key", self.key_bytes, Some(client));
                let number = generator.expr(number);
                let claim = format!("{name}_claim(&slots, sp_key, {number})");
                generator.out.line(format!("__u32 sp_result = {claim};"));
                if let Some(target) = result {
                    generator.store(target, "sp_result");
                }
                generator.out.line("}");
            }
            _ => {
                generator.internal(location, "an unknown method of a RequestWindow");
            }
        }
    }
}

/// Maps and functions of all objects.
pub(crate) fn includes(objects: &[WindowObject], text: &mut Writer) {
    if !objects.is_empty() {
        text.line("/* name, object id, size, key bytes */");
        let objects = objects.iter().map(|it| {
            let WindowObject { c_name, id, size, key_bytes } = it;
            format!(" X({c_name}, {id}, {size}, {key_bytes})")
        });
        text.line(format!("#define SP_WINDOWS_OBJECTS(X){}", objects.collect::<String>()));
    }
    text.line("#include \"stateplane_window.h\"");
}
