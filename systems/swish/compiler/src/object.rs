//! A shared variable in C.

use manifest::{Home, Layout, StateObject};
use num_traits::ToPrimitive;
use p4_ir::{Argument, ConstArgument, ExternInstance, Location};
use swish_protocol::layouts::{GROUPS, NOTHING};
use swish_protocol::objects::{
    COUNTER, Consistency, DEFAULT_GROUP, Merge, SYSTEM, SharedSettings, blocks,
};
use xdp_backend::system::{Generator, ObjectCall, Writer};

/// Cells of all variables at the most: 64 bits of each in four copies is what a switch should give.
const CELLS_MAX: u32 = 16 << 20;

/// An object as the generator needs it.
pub(crate) struct SharedObject {
    pub(crate) c_name: String,
    /// Kind and name.
    pub(crate) described: String,
    pub(crate) location: Location,
    id: u16,
    cells: u32,
    merge: Merge,
    consistency: Consistency,
    group: String,
    group_number: u32,
    drops: bool,
}

impl SharedObject {
    /// Reads and checks a declaration.
    pub(crate) fn declare(
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        id: u16,
        groups: &mut Vec<String>,
    ) -> SharedObject {
        let is_counter = instance.extern_type == COUNTER;
        let number = |index: usize| match instance.arguments.get(index) {
            Some(ConstArgument::Value(value, _)) => value.to_usize().unwrap_or(0),
            _ => 0,
        };
        let (consistency, when_full) = if is_counter { (1, 2) } else { (2, 3) };
        let consistency = *Consistency::ALL.get(number(consistency)).unwrap_or(&Consistency::Sdw);
        let merge = if is_counter { 0 } else { number(1) };
        let merge = *Merge::ALL.get(merge).unwrap_or(&Merge::Sum);
        let group = instance.annotations.iter().find(|it| it.name == "group");
        let group = group.map_or(DEFAULT_GROUP, |it| it.body.trim()).to_owned();
        let at = groups.iter().position(|it| *it == group).unwrap_or_else(|| {
            groups.push(group.clone());
            groups.len() - 1
        });
        let object = SharedObject {
            c_name: instance.c_name.clone(),
            described: format!("{} {}", instance.extern_type, instance.name),
            location: instance.location,
            id,
            cells: generator.size_of(instance),
            merge,
            consistency,
            group,
            group_number: u32::try_from(at).unwrap_or(u32::MAX),
            drops: number(when_full) == 0,
        };
        object.check(generator);
        generator.manifest.state_objects.push(object.in_manifest(instance));
        object
    }

    fn check(&self, generator: &mut Generator<'_>) {
        let faults = [
            (
                self.consistency == Consistency::Sro,
                "Shared.SRO: each update of a counter or sketch would wait for all switches".into(),
                "use Shared.SDW: all switches see updates in the same window",
            ),
            (
                self.consistency == Consistency::Ewo,
                "Shared.EWO is not built yet".into(),
                "use Shared.SDW: all switches see updates in the same window",
            ),
            (
                self.cells > CELLS_MAX,
                format!("{} cells, more than {CELLS_MAX}", self.cells),
                "make it smaller: each cell takes 17 bytes and a bit",
            ),
            (
                self.group.is_empty() || self.group.len() > 32 || !self.group.bytes().all(is_plain),
                format!("@group({:?}) is no name of a group", self.group),
                "write 1 to 32 letters, digits, '-' or '_' between quotes",
            ),
            (
                self.group_number >= GROUPS,
                format!("group {:?} is one of more than {GROUPS}", self.group),
                "put more variables into one group: they advance together",
            ),
        ];
        for (is_fault, message, help) in faults {
            if is_fault {
                let message = format!("{}: {message}", self.described);
                generator.error(self.location, &message, Some(help));
            }
        }
    }

    fn in_manifest(&self, instance: &ExternInstance) -> StateObject {
        StateObject {
            id: self.id,
            name: instance.name.clone(),
            system: SYSTEM.into(),
            kind: instance.extern_type.clone(),
            map: "sp_shared_blocks".into(),
            slots_map: None,
            capacity: self.cells,
            home: Home::Peers,
            key: vec![],
            key_bytes: 0,
            value: Layout::Fields { fields: vec![], bytes: 0, offset: 0 },
            settings: written(&self.settings(0)),
        }
    }

    fn settings(&self, first_block: u32) -> SharedSettings {
        SharedSettings {
            consistency: self.consistency,
            merge: self.merge,
            group: self.group.clone(),
            group_number: self.group_number,
            first_block,
            drops_when_full: self.drops,
        }
    }

    /// Emits a call. True: it is an update.
    pub(crate) fn call(&self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) -> bool {
        let ObjectCall { method, arguments, result, location, .. } = *call;
        let name = &self.c_name;
        let inputs: Vec<String> = arguments
            .iter()
            .filter_map(|argument| match argument {
                Argument::In(expr) => Some(generator.expr(expr)),
                _ => None,
            })
            .collect();
        match (method, &inputs[..]) {
            ("add" | "update", [index, by]) => {
                generator.out.line(format!("{name}_update(&shared, {index}, {by});"));
                return true;
            }
            ("get", [index]) => {
                if let Some(target) = result {
                    generator.store(target, &format!("{name}_get(&shared, {index})"));
                }
            }
            ("window" | "age", []) => {
                if let Some(target) = result {
                    let group = self.group_number;
                    generator.store(target, &format!("sp_shared_{method}(&shared, {group})"));
                }
            }
            _ => {
                generator.internal(location, "an unknown method of a shared variable");
            }
        }
        false
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

fn written(settings: &SharedSettings) -> manifest::Settings {
    match serde_json::to_value(settings) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => manifest::Settings::new(),
    }
}

/// Objects with their first blocks: a group's lie side by side.
fn placed(objects: &[SharedObject]) -> Vec<(&SharedObject, u32)> {
    let mut in_order: Vec<&SharedObject> = objects.iter().collect();
    in_order.sort_by_key(|object| object.group_number);
    let mut next = 0u32;
    let mut found = vec![];
    for object in in_order {
        found.push((object, next));
        next = next.saturating_add(blocks(object.cells));
    }
    found
}

/// Tells the manifest where the objects lie, after all are declared.
pub(crate) fn place(generator: &mut Generator<'_>, objects: &[SharedObject]) {
    for (object, first) in placed(objects) {
        let all = generator.manifest.state_objects.iter_mut();
        if let Some(described) = all.into_iter().find(|it| it.id == object.id) {
            described.settings = written(&object.settings(first));
        }
        if first.saturating_add(blocks(object.cells)) >= u32::from(NOTHING) {
            let message = format!(
                "{}: the program's shared variables have over {CELLS_MAX} cells",
                object.described
            );
            generator.error(object.location, &message, Some("make some of them smaller"));
        }
    }
}

/// Maps and functions of all objects.
pub(crate) fn includes(objects: &[SharedObject], updates: usize, text: &mut Writer) {
    let placed = placed(objects);
    let all: u32 = objects.iter().map(|it| blocks(it.cells)).sum();
    let of_group = |group: u32| -> u32 {
        objects.iter().filter(|it| it.group_number == group).map(|it| blocks(it.cells)).sum()
    };
    let largest = (0..GROUPS).map(of_group).max().unwrap_or(1);
    text.line(format!("#define SP_SHARED_BLOCKS {all}"));
    text.line(format!("#define SP_SHARED_MESSAGES {largest}"));
    text.line(format!("#define SP_SHARED_UPDATES {updates}"));
    text.line("/* name, group, first block, cells, how they merge, drops when full */");
    let objects = placed.iter().map(|(it, first)| {
        let SharedObject { c_name, group_number, cells, merge, drops, .. } = it;
        let (merge, drops) = (merge.c_name(), u32::from(*drops));
        format!(" X({c_name}, {group_number}, {first}, {cells}, {merge}, {drops})")
    });
    text.line(format!("#define SP_SHARED_OBJECTS(X){}", objects.collect::<String>()));
    text.line("#include \"stateplane_shared.h\"");
    text.line("");
}
