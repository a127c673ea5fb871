//! SharedRegister, SharedTable and SharedSet with EWO in C: of each key the last writer wins.

use crate::object::{group_of, is_group_name, number_of, written};
use crate::store_result;
use manifest::{Home, Layout, StateObject};
use p4_ir::{Argument, ExternInstance, Location};
use swish_protocol::layouts::GROUPS;
use swish_protocol::lww::{KEY_WORDS, RECORD_HEAD_BYTES, VALUE_WORDS, WRITES};
use swish_protocol::memory::listed;
use swish_protocol::objects::{Consistency, LastSettings, REGISTER, SET, SYSTEM};
use xdp_backend::system::{Generator, ObjectCall, Writer, round_up};

/// Records of all objects at the most.
const RECORDS_MAX: u32 = 1 << 22;
/// Objects of a program at the most.
const OBJECTS_MAX: usize = 32;
/// Writes of one packet at the most.
const WRITES_MAX: usize = WRITES as usize;
/// Bytes of a register's index as a key.
const INDEX_BYTES: u32 = 4;

/// An object as the generator needs it.
struct Object {
    c_name: String,
    described: String,
    location: Location,
    id: u16,
    is_register: bool,
    size: u32,
    key_bytes: u32,
    value_bytes: u32,
    group: String,
    group_number: u32,
}

/// The objects of one program.
#[derive(Default)]
pub(crate) struct Records {
    objects: Vec<Object>,
    /// Calls that write, in the program's text.
    writes: usize,
}

impl Records {
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(crate) fn has(&self, c_name: &str) -> bool {
        self.objects.iter().any(|it| it.c_name == c_name)
    }

    pub(crate) fn is_first(&self, c_name: &str) -> bool {
        self.objects.first().is_some_and(|it| it.c_name == c_name)
    }

    /// What the first object is called, and where it is declared.
    pub(crate) fn first(&self) -> Option<(&str, Location)> {
        self.objects.first().map(|it| (it.described.as_str(), it.location))
    }

    /// Reads and checks a declaration.
    pub(crate) fn declare(
        &mut self,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        id: u16,
        groups: &mut Vec<String>,
    ) {
        let is_register = instance.extern_type == REGISTER;
        let size = generator.size_of(instance);
        let needs = match instance.extern_type.as_str() {
            REGISTER => "a struct as value",
            SET => "a struct as key",
            _ => "structs as key and value",
        };
        let (key, key_bytes) = if is_register {
            (vec![], INDEX_BYTES)
        } else {
            generator.wire_struct(instance, 0, "key", needs, 8 * KEY_WORDS as u32)
        };
        let (value, value_bytes) = if instance.extern_type == SET {
            (vec![], 0)
        } else {
            let at = usize::from(!is_register);
            generator.wire_struct(instance, at, "value", needs, 8 * VALUE_WORDS as u32)
        };
        let group = group_of(instance);
        let object = Object {
            c_name: instance.c_name.clone(),
            described: format!("{} {}", instance.extern_type, instance.name),
            location: instance.location,
            id,
            is_register,
            size,
            key_bytes,
            value_bytes,
            group_number: number_of(&group, groups),
            group,
        };
        self.check_declared(generator, &object);
        generator.manifest.state_objects.push(StateObject {
            id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: instance.extern_type.clone(),
            map: "sp_lww_records".into(),
            slots_map: None,
            capacity: size,
            home: Home::Peers,
            key,
            key_bytes,
            value: Layout::Fields { fields: value, bytes: value_bytes, offset: 0 },
            settings: manifest::Settings::new(),
        });
        self.objects.push(object);
    }

    fn check_declared(&self, generator: &mut Generator<'_>, object: &Object) {
        let Object { group, .. } = object;
        let faults = [
            (
                self.objects.len() >= OBJECTS_MAX,
                format!("it is one of more than {OBJECTS_MAX} with Shared.EWO"),
                "join tables with the same key",
            ),
            (
                !is_group_name(group),
                format!("@group({group:?}) is no name of a group"),
                "write 1 to 32 letters, digits, '-' or '_' between quotes",
            ),
            (
                object.group_number >= GROUPS,
                format!("group {group:?} is one of more than {GROUPS}"),
                "put more variables into one group",
            ),
        ];
        for (is_fault, message, help) in faults {
            if is_fault {
                let message = format!("{}: {message}", object.described);
                generator.error(object.location, &message, Some(help));
            }
        }
    }

    /// Objects with their numbers and first records: a group's lie side by side.
    fn placed(&self) -> Vec<(&Object, u32, u32)> {
        let mut in_order: Vec<&Object> = self.objects.iter().collect();
        in_order.sort_by_key(|object| object.group_number);
        let mut next = 0u32;
        let mut found = vec![];
        for (number, object) in (0..).zip(in_order) {
            found.push((object, number, next));
            next = next.saturating_add(object.size);
        }
        found
    }

    fn all(&self) -> u32 {
        self.objects.iter().map(|it| it.size).fold(0, u32::saturating_add)
    }

    /// Of the longest key, and of the longest value.
    fn words(&self) -> (u32, u32) {
        let words = |bytes: u32| round_up(bytes, 8) / 8;
        let of = |it: &Object| (words(it.key_bytes), words(it.value_bytes));
        let most = |(key, value): (u32, u32), (other, own)| (key.max(other), value.max(own));
        self.objects.iter().map(of).fold((1, 1), most)
    }

    /// Tells the manifest where the objects lie, after all are declared; checks the program.
    pub(crate) fn place(&self, generator: &mut Generator<'_>) {
        let (key_words, value_words) = self.words();
        for (object, number, first_record) in self.placed() {
            let settings = LastSettings {
                consistency: Consistency::Ewo,
                group: object.group.clone(),
                group_number: object.group_number,
                object: number,
                first_record,
                key_words,
                value_words,
            };
            let all = generator.manifest.state_objects.iter_mut();
            let Some(described) = all.into_iter().find(|it| it.id == object.id) else { continue };
            described.settings = written(serde_json::to_value(&settings));
            if let Layout::Fields { offset, .. } = &mut described.value {
                *offset = RECORD_HEAD_BYTES + 8 * key_words;
            }
        }
        let Some(first) = self.objects.first() else { return };
        let mut refuse = |message: String, help: &str| {
            let message = format!("{}: {message}", first.described);
            generator.error(first.location, &message, Some(help));
        };
        if self.all() > RECORDS_MAX {
            let all = self.all();
            let message = format!(
                "the program's registers, tables and sets with Shared.EWO have {all} \
                 records, more than {RECORDS_MAX}"
            );
            refuse(message, "make some of them smaller");
        }
        if self.writes > WRITES_MAX {
            let message = format!(
                "{} calls write to registers, tables and sets with Shared.EWO, more than the \
                 {WRITES_MAX} that a packet can keep until its end",
                self.writes
            );
            refuse(message, "join calls: compute key and value first, and write once");
        }
    }

    /// Emits a call.
    pub(crate) fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { method, arguments, result, location, .. } = *call;
        let Some(object) = self.objects.iter().find(|it| it.c_name == call.instance.c_name) else {
            return;
        };
        let Some(Argument::In(key)) = arguments.first() else {
            generator.internal(location, "a method of a shared table without a key");
            return;
        };
        if arguments.len() > 2 {
            let message = format!(
                "{}: {method} with `idle_s`, and Shared.EWO: switches would have to agree on when \
                 a key had its last packet",
                object.described
            );
            generator.error(location, &message, Some("use Shared.SRO, or remove the key"));
            return;
        }
        let name = &object.c_name;
        generator.open("");
        if object.is_register {
            let index = generator.expr(key);
            generator.wire_buffer("sp_key", INDEX_BYTES, None);
            generator.out.line(format!("sp_put32(sp_key, {index});"));
        } else {
            generator.wire_buffer("sp_key", object.key_bytes, Some(key));
        }
        generator.out.line("struct sp_lww_scratch *sp_scratch = sp_lww_scratch();");
        generator.out.line("if (!sp_scratch) return XDP_ABORTED;");
        generator.out.line("__u8 *sp_value = (void *)sp_scratch->value;");
        let zero = format!("__builtin_memset(sp_value, 0, {});", round_up(object.value_bytes, 8));
        let put = |flags: &str| {
            format!("{name}_put(&shared.eventual.writes, sp_key, sp_value, {flags});")
        };
        let mut writes = true;
        match (method, arguments.get(1)) {
            ("get" | "read", Some(Argument::Out(target) | Argument::InOut(target))) => {
                writes = false;
                generator.out.line(format!("__u32 sp_result = {name}_get(sp_key);"));
                generator.read_wire(target, object.value_bytes, location);
                store_result(generator, result);
            }
            ("has", None) => {
                writes = false;
                generator.out.line(format!("__u32 sp_result = {name}_get(sp_key);"));
                store_result(generator, result);
                generator.out.line("(void)sp_value;");
            }
            ("insert" | "set" | "write", Some(Argument::In(value))) => {
                generator.out.line(zero);
                generator.wire_store("sp_value", value);
                generator.out.line(put(if method == "insert" { "SP_LWW_ABSENT" } else { "0" }));
            }
            ("add", None) => generator.out.line(put("0")),
            ("remove", None) => {
                generator.out.line(zero);
                generator.out.line(put("SP_LWW_REMOVED | SP_LWW_PRESENT"));
            }
            _ => {
                generator.internal(location, "an unknown method of a shared table");
            }
        }
        generator.out.line("}");
        self.writes += usize::from(writes);
    }

    /// What stateplane_eventual.h is told before it is included.
    pub(crate) fn defines(&self, text: &mut Writer) {
        if self.is_empty() {
            return;
        }
        let (key_words, value_words) = self.words();
        let all = self.all();
        text.line(format!("#define SP_LWW_RECORDS {all}"));
        text.line(format!("#define SP_LWW_COUNT {}", self.objects.len()));
        text.line(format!("#define SP_LWW_KEY_WORDS {key_words}"));
        text.line(format!("#define SP_LWW_VALUE_WORDS {value_words}"));
        text.line(format!("#define SP_LWW_LISTED {}", listed(all)));
        text.line(format!("#define SP_LWW_WRITES {}", self.writes.clamp(1, WRITES_MAX)));
        text.line("/* name, group, number, first record, records, register, key, value bytes */");
        let objects = self.placed().into_iter().map(|(it, number, first)| {
            let Object { c_name, group_number, size, key_bytes, value_bytes, .. } = it;
            let register = u32::from(it.is_register);
            format!(
                " X({c_name}, {group_number}, {number}, {first}, {size}, {register}, \
                 {key_bytes}, {value_bytes})"
            )
        });
        text.line(format!("#define SP_LWW_OBJECTS(X){}", objects.collect::<String>()));
    }
}
