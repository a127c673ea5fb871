//! SharedTable, SharedSet and SharedRegister with SRO in C. A set is a table without values.

use crate::object::{group_of, is_group_name, written};
use crate::{store_result, strong_paths};
use manifest::{Home, Layout, StateObject};
use num_traits::ToPrimitive;
use p4_ir::{Argument, ConstArgument, Expr, ExternInstance, Location};
use swish_protocol::objects::{Consistency, REGISTER, SET, SYSTEM, StrongSettings};
use swish_protocol::strong::{
    KEY_BYTES, OBJECTS, PACKET_RECORDS, PACKET_WORDS, RECORD_WORDS, TOMBS, VALUE_BYTES,
};
use xdp_backend::system::{Context, Generator, Leaving, ObjectCall, Pipeline, Writer, round_up};

/// Of a packet, with these objects and others.
pub(crate) const CONTEXT: Context = Context {
    ty: "struct sp_swish_context",
    name: "shared",
    initial: "{ .strong = { .ingress_port = ingress_port } }",
};

/// Bytes of a register's index as a key.
const INDEX_BYTES: u32 = 4;
/// Of a record in front of its key.
const RECORD_HEAD_BYTES: u32 = 16;

/// An object as the generator needs it.
struct Table {
    c_name: String,
    described: String,
    location: Location,
    id: u16,
    size: u32,
    key_bytes: u32,
    /// Of the fields that the program declares.
    value_bytes: u32,
    /// The program says of keys when their time is over: a word behind the fields.
    timed: bool,
}

/// Of that word.
const TIME_BYTES: u32 = 8;

/// The objects with SRO of one program.
#[derive(Default)]
pub(crate) struct Strong {
    tables: Vec<Table>,
    group: Option<String>,
}

/// What a declaration says of its consistency: the argument behind the size.
pub(crate) fn consistency_of(instance: &ExternInstance) -> Consistency {
    let at = match instance.arguments.get(1) {
        Some(ConstArgument::Value(value, _)) => value.to_usize().unwrap_or(0),
        _ => 0,
    };
    *Consistency::ALL.get(at).unwrap_or(&Consistency::Sro)
}

impl Strong {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(crate) fn has(&self, c_name: &str) -> bool {
        self.tables.iter().any(|it| it.c_name == c_name)
    }

    pub(crate) fn is_first(&self, c_name: &str) -> bool {
        self.tables.first().is_some_and(|it| it.c_name == c_name)
    }

    /// What the first object is called, and where it is declared.
    pub(crate) fn first(&self) -> Option<(&str, Location)> {
        self.tables.first().map(|it| (it.described.as_str(), it.location))
    }

    /// Reads and checks a declaration.
    pub(crate) fn declare(
        &mut self,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        id: u16,
    ) {
        let size = generator.size_of(instance);
        let set = instance.extern_type == SET;
        let needs = if set { "a struct as key" } else { "structs as key and value" };
        let (key, key_bytes) = if instance.extern_type == REGISTER {
            (vec![], INDEX_BYTES)
        } else {
            generator.wire_struct(instance, 0, "key", needs, KEY_BYTES)
        };
        let at = usize::from(instance.extern_type != REGISTER);
        let (value, value_bytes) = if set {
            (vec![], 0)
        } else {
            let needs = if at == 0 { "a struct as value" } else { needs };
            generator.wire_struct(instance, at, "value", needs, VALUE_BYTES)
        };
        let table = Table {
            c_name: instance.c_name.clone(),
            described: format!("{} {}", instance.extern_type, instance.name),
            location: instance.location,
            id,
            size,
            key_bytes,
            value_bytes,
            timed: false,
        };
        let group = self.check(generator, instance, &table);
        let settings = StrongSettings {
            consistency: Consistency::Sro,
            group,
            table: u32::try_from(self.tables.len()).unwrap_or(u32::MAX),
            timed: false,
        };
        let settings = written(serde_json::to_value(&settings));
        generator.manifest.state_objects.push(StateObject {
            id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: instance.extern_type.clone(),
            map: table.c_name.clone(),
            slots_map: Some(format!("{}_records", table.c_name)),
            capacity: size,
            home: Home::Peers,
            key,
            key_bytes,
            value: Layout::Fields {
                fields: value,
                bytes: value_bytes,
                offset: RECORD_HEAD_BYTES + round_up(key_bytes, 8),
            },
            settings,
        });
        self.tables.push(table);
    }

    /// Tells what the declaration must not be; the object's group.
    fn check(
        &mut self,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        table: &Table,
    ) -> String {
        let group = group_of(instance);
        let first = self.group.get_or_insert_with(|| group.clone()).clone();
        let faults = [
            (
                consistency_of(instance) == Consistency::Sdw,
                "Shared.SDW: a value that is overwritten does not merge".to_owned(),
                "use Shared.SRO: each write is in all switches before its packet leaves; or \
                 Shared.EWO: packets do not wait, and the last writer wins",
            ),
            (
                first != group,
                format!("group {group:?} beside {first:?}: a packet's writes go to one chain"),
                "give all tables and registers with Shared.SRO the same @group",
            ),
            (
                table.size > u32::MAX - TOMBS,
                format!("{} keys, more than {}", table.size, u32::MAX - TOMBS),
                "make it smaller",
            ),
            (
                self.tables.len() >= OBJECTS as usize,
                format!("it is one of more than {OBJECTS} with Shared.SRO"),
                "join tables with the same key",
            ),
            (
                !is_group_name(&group),
                format!("@group({group:?}) is no name of a group"),
                "write 1 to 32 letters, digits, '-' or '_' between quotes",
            ),
        ];
        for (is_fault, message, help) in faults {
            if is_fault {
                let message = format!("{}: {message}", table.described);
                generator.error(table.location, &message, Some(help));
            }
        }
        group
    }

    /// Emits a call.
    pub(crate) fn call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { method, arguments, result, location, .. } = *call;
        let Some(table) = self.tables.iter_mut().find(|it| it.c_name == call.instance.c_name)
        else {
            return;
        };
        let idle_s = match arguments.get(2) {
            Some(Argument::In(idle_s)) => {
                table.keeps_time(generator);
                format!("(__u16)({})", generator.expr(idle_s))
            }
            _ => "0".into(),
        };
        let table = &*table;
        let Some(Argument::In(key)) = arguments.first() else {
            generator.internal(location, "a method of a shared table without a key");
            return;
        };
        let name = &table.c_name;
        generator.open("");
        table.key(generator, call.instance, key);
        generator.out.line("struct sp_strong_scratch *sp_scratch = sp_strong_scratch();");
        generator.out.line("if (!sp_scratch) return XDP_ABORTED;");
        generator.out.line("__u8 *sp_value = (void *)sp_scratch->value;");
        // (1: the key's time begins anew.)
        let get = |uses: u8| format!("{name}_get(&shared.strong, sp_key, sp_value, {uses})");
        match (method, arguments.get(1)) {
            ("get" | "read", Some(Argument::Out(target) | Argument::InOut(target))) => {
                generator.out.line(format!("__u32 sp_result = {};", get(1)));
                generator.read_wire(target, table.value_bytes, location);
                store_result(generator, result);
            }
            ("has", None) => {
                generator.out.line(format!("__u32 sp_result = {};", get(0)));
                store_result(generator, result);
            }
            ("insert" | "set" | "write", Some(Argument::In(value))) => {
                let put = |flags: &str| {
                    format!("{name}_put(&shared.strong, sp_key, sp_value, {flags}, {idle_s});")
                };
                if method == "insert" {
                    generator.open(&format!("if (!{})", get(1)));
                } else if method == "write" {
                    generator.open(&format!("if (sp_get32(sp_key) < {})", table.size));
                } else {
                    generator.open("");
                }
                let zero = format!("__builtin_memset(sp_value, 0, {});", padded(table.value_bytes));
                generator.out.line(zero);
                generator.wire_store("sp_value", value);
                generator.out.line(put(if method == "insert" { "SP_STRONG_ABSENT" } else { "0" }));
                generator.out.line("}");
            }
            ("add", None) => {
                generator.out.line(format!("{name}_put(&shared.strong, sp_key, sp_value, 0, 0);"));
            }
            ("remove", None) => {
                let zero = format!("__builtin_memset(sp_value, 0, {});", padded(table.value_bytes));
                generator.out.line(zero);
                let put =
                    format!("{name}_put(&shared.strong, sp_key, sp_value, SP_STRONG_REMOVE, 0);");
                generator.out.line(put);
            }
            _ => {
                generator.internal(location, "an unknown method of a shared table");
            }
        }
        generator.out.line("}");
    }

    /// Tells what the program may not do with the objects.
    pub(crate) fn check_program(&self, generator: &mut Generator<'_>) {
        for table in &self.tables {
            let words = table.words();
            if words * 2 > PACKET_WORDS {
                let message = format!(
                    "{}: key and value take {words} words, and a packet can write {PACKET_WORDS} \
                     in {PACKET_RECORDS} records: it can write one such key",
                    table.described
                );
                generator.error(table.location, &message, Some("make the value shorter"));
            }
        }
        self.check_packet(generator);
    }

    /// Tells that a packet may write more than it may keep until its end: it would be dropped.
    fn check_packet(&self, generator: &mut Generator<'_>) {
        let Some(first) = self.tables.first() else { return };
        let program = generator.program;
        let of = |object: usize, method: &str| -> Option<&Table> {
            let c_name = &program.externs.get(object)?.c_name;
            let table = self.tables.iter().find(|it| it.c_name == *c_name)?;
            // (A packet that reads may write that the key was there.)
            let reads = matches!(method, "get" | "read");
            (method != "has" && (!reads || table.timed)).then_some(table)
        };
        let records = strong_paths::most(program, &|at, method| of(at, method).map_or(0, |_| 1));
        let words =
            strong_paths::most(program, &|at, method| of(at, method).map_or(0, Table::words));
        if records <= PACKET_RECORDS && words <= PACKET_WORDS {
            return;
        }
        let message = format!(
            "a packet may write {records} records of {} bytes in all with Shared.SRO (key, value, \
             16 bytes beside them; a read of a key with `idle_s` counts), more than the \
             {PACKET_RECORDS} records of {} bytes that it can keep until its end",
            8 * words,
            8 * PACKET_WORDS
        );
        let help = "write fewer or shorter values on each way through the program; put ways that \
                    exclude each other into one `if` and its `else`";
        generator.error(first.location, &message, Some(help));
    }

    /// What stateplane_strong.h is told before it is included.
    pub(crate) fn defines(&self, text: &mut Writer) {
        if self.is_empty() {
            return;
        }
        text.line("/* name, object id, table, size, key bytes, value bytes, timed */");
        let tables = self.tables.iter().enumerate().map(|(at, it)| {
            let Table { c_name, id, size, key_bytes, .. } = it;
            let (bytes, timed) = (it.held_bytes(), u8::from(it.timed));
            format!(" X({c_name}, {id}, {at}, {size}, {key_bytes}, {bytes}, {timed})")
        });
        text.line(format!("#define SP_STRONG_OBJECTS(X){}", tables.collect::<String>()));
    }

    /// Behind egress: the frame is as it came in.
    pub(crate) fn before_deparser() -> String {
        "{ int sp_why = sp_swish_finish(xdp, &shared); if (sp_why) return sp_swish_stop(xdp, \
         &shared, sp_why, ingress_port); }"
            .into()
    }

    /// What a packet does that waits, runs again or is dropped. One that goes on has what it noted
    /// for other consistencies take effect then.
    pub(crate) fn before_verdict(leaving: Leaving<'_>) -> Option<String> {
        Some(match leaving {
            Leaving::Forward(port) => {
                format!("if (shared.strong.name) return sp_swish_park(xdp, &shared, {port});")
            }
            Leaving::Drop => "{ int sp_why = sp_swish_dropped(xdp, &shared); if (sp_why) return \
                 sp_swish_stop(xdp, &shared, sp_why, ingress_port); }\n\
                 if (shared.strong.name) return sp_swish_park(xdp, &shared, SP_DROP_PORT);"
                .into(),
            Leaving::ToHost => "{ int sp_why = sp_strong_cannot_wait(&shared.strong); if (sp_why) \
                 return sp_swish_stop(xdp, &shared, sp_why, ingress_port); }"
                .into(),
            // An ICMP error leaves in its place. The packet writes nothing.
            Leaving::Replaced => "shared.strong.records = shared.strong.waits = 0;\n\
                 { int sp_why = sp_strong_cannot_wait(&shared.strong); if (sp_why) return \
                 sp_swish_stop(xdp, &shared, sp_why, ingress_port); }"
                .into(),
            // This packet enters the program again, from its beginning.
            Leaving::Held => return None,
        })
    }

    pub(crate) fn programs(text: &mut Writer, pipeline: &Pipeline) {
        text.line("");
        text.line("/* The same for a packet whose writes came second: it reads what the first one wrote. */");
        text.line("SEC(\"xdp.frags\")");
        text.line("int sp_strong_again(struct xdp_md *xdp)");
        text.line("{");
        text.line("struct sp_swish_context shared = {};");
        text.line("if (sp_strong_resumed(&shared.strong)) return XDP_ABORTED;");
        pipeline.enter_again(text, CONTEXT.name, "shared.strong.ingress_port");
        text.line("}");
    }
}

impl Table {
    /// Words of a record.
    fn words(&self) -> u32 {
        RECORD_WORDS + (round_up(self.key_bytes, 8) + round_up(self.held_bytes(), 8)) / 8
    }

    /// Bytes of a value, and of the word behind it.
    fn held_bytes(&self) -> u32 {
        if self.timed { round_up(self.value_bytes, 8) + TIME_BYTES } else { self.value_bytes }
    }

    /// A call says when a key's time is over.
    fn keeps_time(&mut self, generator: &mut Generator<'_>) {
        if std::mem::replace(&mut self.timed, true) {
            return;
        }
        let objects = &mut generator.manifest.state_objects;
        if let Some(object) = objects.iter_mut().find(|it| it.id == self.id) {
            object.settings.insert("timed".into(), true.into());
        }
        if self.held_bytes() > VALUE_BYTES {
            let message = format!(
                "{}: a value of {} bytes leaves no room for its time: {VALUE_BYTES} bytes in all, \
                 {TIME_BYTES} of them for that",
                self.described, self.value_bytes
            );
            generator.error(self.location, &message, Some("make the value shorter"));
        }
    }

    /// Emits `sp_key`.
    fn key(&self, generator: &mut Generator<'_>, instance: &ExternInstance, key: &Expr) {
        if instance.extern_type != REGISTER {
            generator.wire_buffer("sp_key", self.key_bytes, Some(key));
            return;
        }
        let index = generator.expr(key);
        generator.wire_buffer("sp_key", self.key_bytes, None);
        generator.out.line(format!("sp_put32(sp_key, {index});"));
    }
}

fn padded(bytes: u32) -> u32 {
    round_up(bytes, 8)
}
