//! A SlotState in C.

use crate::{SLOT_STATE, SYSTEM};
use manifest::{Home, Layout, Settings, StateObject};
use netchain_protocol::layouts::{SCRATCH_VALUE_BYTES, slot_value_offset};
use p4_ir::{Argument, ExternInstance};
use xdp_backend::system::{Generator, ObjectCall, Writer};

const MAX_KEY_BYTES: u32 = 64;

/// An object as the generator needs it.
pub(crate) struct SlotObject {
    pub(crate) c_name: String,
    id: u16,
    size: u32,
    key_bytes: u32,
    value_bytes: u32,
}

impl SlotObject {
    pub(crate) fn declare(
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        id: u16,
    ) -> SlotObject {
        let size = generator.size_of(instance);
        let [(key, key_bytes), (value, value_bytes)] =
            generator.wire_key_and_value(instance, [MAX_KEY_BYTES, SCRATCH_VALUE_BYTES]);
        let c_name = instance.c_name.clone();
        generator.manifest.state_objects.push(StateObject {
            id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: SLOT_STATE.into(),
            map: c_name.clone(),
            slots_map: Some(format!("{c_name}_slots")),
            capacity: size,
            home: Home::Peers,
            key,
            key_bytes,
            value: Layout::Fields {
                fields: value,
                bytes: value_bytes,
                offset: slot_value_offset(key_bytes),
            },
            settings: Settings::new(),
        });
        SlotObject { c_name, id, size, key_bytes, value_bytes }
    }

    pub(crate) fn call(&self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { method, arguments, result, location, .. } = *call;
        if let ("copied", [Argument::In(slot), Argument::In(part), Argument::In(view)]) =
            (method, arguments)
        {
            let [slot, part, view] = [slot, part, view].map(|it| generator.expr(it));
            generator.out.line(format!("{}_copied({slot}, {part}, {view});", self.c_name));
            return;
        }
        if method == "next" {
            return self.next(generator, call);
        }
        let Some(Argument::In(key)) = arguments.first() else {
            generator.internal(location, "a method of a SlotState without a key");
            return;
        };
        generator.open("");
        generator.wire_buffer("sp_key", self.key_bytes, Some(key));
        let name = &self.c_name;
        // Another packet changed the slot: the program runs again on this one.
        const AGAIN: &str = "if (slots.again) return sp_slots_run_again(xdp, &slots);";
        if method == "free" {
            generator.out.line(format!("{name}_give_back(&slots, sp_key);"));
            generator.out.line(AGAIN);
            generator.out.line("}");
            return;
        }
        generator.out.line("struct sp_slots_scratch *sp_scratch = sp_slots_get_scratch();");
        generator.out.line("if (!sp_scratch) return XDP_ABORTED;");
        generator.out.line("__u8 *sp_value = sp_scratch->value;");
        if let (true, Some(Argument::In(value))) = (method == "write", arguments.get(1)) {
            generator.wire_store("sp_value", value);
        }
        let access = match (method, arguments.get(2)) {
            ("write", Some(Argument::In(part))) => {
                let part = generator.expr(part);
                format!("{name}_write(&slots, sp_key, sp_value, {part})")
            }
            _ => format!("{name}_read(&slots, sp_key)"),
        };
        generator.out.line(format!("__u32 sp_result = {access};"));
        generator.out.line(AGAIN);
        if let Some(Argument::Out(target) | Argument::InOut(target)) = arguments.get(1) {
            generator.read_wire(target, self.value_bytes, location);
        }
        if let Some(target) = result {
            generator.store(target, "sp_result");
        }
        generator.out.line("}");
    }
}

impl SlotObject {
    /// A step of a walk: what is wanted goes into the scratch, and a key comes back in it.
    fn next(&self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { arguments, result, location, .. } = *call;
        let [
            Argument::In(part),
            Argument::In(prefix),
            Argument::In(mask),
            Argument::In(hidden),
            Argument::In(at),
            Argument::Out(key),
            Argument::Out(next),
        ] = arguments
        else {
            generator.internal(location, "other arguments of SlotState.next");
            return;
        };
        generator.open("");
        generator.out.line("struct sp_slots_scratch *sp_scratch = sp_slots_get_scratch();");
        generator.out.line("if (!sp_scratch) return XDP_ABORTED;");
        generator.out.line("__u8 *sp_value = sp_scratch->value;");
        generator.out.line(format!("__u8 *sp_mask = sp_value + SP_ROUND8({});", self.key_bytes));
        // (Padding counts for nothing.)
        generator
            .out
            .line(format!("__builtin_memset(sp_value, 0, 2 * SP_ROUND8({}));", self.key_bytes));
        generator.wire_store("sp_value", prefix);
        generator.wire_store("sp_mask", mask);
        let (part, hidden, at) = (generator.expr(part), generator.expr(hidden), generator.expr(at));
        let name = &self.c_name;
        generator.out.line(format!("__u64 sp_step = {name}_next({at}, {part}, {hidden});"));
        generator.read_wire(key, self.key_bytes, location);
        generator.store(next, "(__u32)sp_step");
        if let Some(target) = result {
            generator.store(target, "(__u32)(sp_step >> 32)");
        }
        generator.out.line("}");
    }
}

/// Maps and functions of all objects.
pub(crate) fn includes(objects: &[SlotObject], text: &mut Writer) {
    if !objects.is_empty() {
        text.line("/* name, object id, size, key bytes, value bytes */");
        let objects = objects.iter().map(|it| {
            let SlotObject { c_name, id, size, key_bytes, value_bytes } = it;
            format!(" X({c_name}, {id}, {size}, {key_bytes}, {value_bytes})")
        });
        text.line(format!("#define SP_SLOTS_OBJECTS(X){}", objects.collect::<String>()));
    }
    text.line("#include \"stateplane_slots.h\"");
}
