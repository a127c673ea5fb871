//! A shared variable in C.

use crate::own::{Functions, Own};
use manifest::{Home, Layout, StateObject};
use num_traits::ToPrimitive;
use p4_ir::{Argument, ConstArgument, ExternInstance, Location};
use swish_protocol::layouts::{GROUPS, MEMBERS, MEMBERS_MAX, NOTHING};
use swish_protocol::objects::{
    COUNTER, Consistency, DEFAULT_GROUP, Merge, SYSTEM, SharedSettings, blocks, member_bytes,
};
use xdp_backend::system::{Generator, ObjectCall, Writer};

/// Cells of all variables at the most: 64 bits of each in four copies is what a switch should give.
const CELLS_MAX: u32 = 16 << 20;

/// Slots that a cell may have.
const SLOTS: std::ops::RangeInclusive<u32> = 2..=256;
/// Slots of a cell, if the program does not say.
const USUAL_SLOTS: u32 = 16;

/// Switches that `@members` may ask room for.
const ROOM: std::ops::RangeInclusive<u32> = 2..=MEMBERS_MAX;
/// Bytes of what a switch keeps of each member, of all groups, at the most.
const MEMBER_BYTES_MAX: u64 = 64 << 20;

/// An object as the generator needs it.
pub(crate) struct SharedObject {
    pub(crate) c_name: String,
    /// Kind and name.
    pub(crate) described: String,
    pub(crate) location: Location,
    id: u16,
    pub(crate) cells: u32,
    pub(crate) merge: Merge,
    /// With [`Merge::Own`].
    own: Option<Own>,
    consistency: Consistency,
    group: String,
    pub(crate) group_number: u32,
    /// `None`: the declaration does not say what becomes of a packet whose update finds no room.
    drops: Option<bool>,
    /// Windows after which it begins anew.
    period: Option<u32>,
    /// What `@slots` says.
    slots: Option<Option<u32>>,
    /// What `@members` says.
    members: Option<Option<u32>>,
    /// Of a cell of EWO: 2 if the program subtracts.
    pub(crate) lanes: u32,
}

impl SharedObject {
    /// Reads and checks a declaration.
    pub(crate) fn declare(
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        id: u16,
        groups: &mut Vec<String>,
        functions: &mut Functions,
    ) -> SharedObject {
        let is_counter = instance.extern_type == COUNTER;
        let given = |index: usize| match instance.arguments.get(index) {
            Some(ConstArgument::Value(value, _)) => value.to_usize(),
            _ => None,
        };
        let number = |index: usize| given(index).unwrap_or(0);
        let (consistency, when_full, period) = if is_counter { (1, 2, 3) } else { (2, 3, 4) };
        let consistency = *Consistency::ALL.get(number(consistency)).unwrap_or(&Consistency::Sdw);
        let merge = if is_counter { 0 } else { number(1) };
        let merge = *Merge::ALL.get(merge).unwrap_or(&Merge::Sum);
        let group = group_of(instance);
        let annotated = |name: &str| {
            let found = instance.annotations.iter().find(|it| it.name == name);
            found.map(|it| it.body.trim().parse().ok())
        };
        let object = SharedObject {
            c_name: instance.c_name.clone(),
            described: format!("{} {}", instance.extern_type, instance.name),
            location: instance.location,
            id,
            cells: generator.size_of(instance),
            merge,
            own: functions.declare(generator, instance, merge, consistency == Consistency::Ewo),
            consistency,
            group_number: number_of(&group, groups),
            group,
            drops: given(when_full).map(|it| it == 0),
            period: given(period).map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
            slots: annotated("slots"),
            members: annotated("members"),
            lanes: 1,
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
                self.consistency == Consistency::Ewo && self.drops.is_some(),
                "Shared.EWO has no bound of updates: every update finds room".into(),
                "leave WhenFull out",
            ),
            (
                self.consistency == Consistency::Ewo && self.period.is_some(),
                "Shared.EWO has no windows: switches would begin anew at different times".into(),
                "use Shared.SDW for a variable with a period",
            ),
            (
                self.period == Some(0),
                "a period of 0 windows".into(),
                "write 1 or more; without a period the variable never begins anew",
            ),
            (
                self.consistency == Consistency::Sdw && self.drops.is_none(),
                "Shared.SDW has a bound of updates in a window".into(),
                "say what becomes of a packet beyond it: WhenFull.DROP or WhenFull.PASS",
            ),
            (
                self.slots.is_some() && !(self.is_eventual() && self.merge == Merge::Sum),
                "@slots is of counters with Shared.EWO: no other cells have slots".into(),
                "leave it out",
            ),
            (
                self.slots.is_some_and(|it| !it.is_some_and(|it| SLOTS.contains(&it))),
                format!("@slots needs a number from {} to {}", SLOTS.start(), SLOTS.end()),
                "count the switches of the group, and how often they may restart",
            ),
            (
                self.members.is_some() && self.consistency != Consistency::Sdw,
                format!("@members is of variables with Shared.SDW: others have {MEMBERS} switches"),
                "leave it out",
            ),
            (
                self.members.is_some_and(|it| !it.is_some_and(|it| ROOM.contains(&it))),
                format!("@members needs a number from {} to {}", ROOM.start(), ROOM.end()),
                "count the switches of the group",
            ),
            (
                self.cells > CELLS_MAX,
                format!("{} cells, more than {CELLS_MAX}", self.cells),
                "make it smaller: a cell takes 17 bytes and a bit, with EWO 16 and its slots",
            ),
            (
                !is_group_name(&self.group),
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
            map: if self.is_eventual() { "sp_eventual_cells" } else { "sp_shared_blocks" }.into(),
            slots_map: None,
            capacity: self.cells,
            home: Home::Peers,
            key: vec![],
            key_bytes: 0,
            value: Layout::Fields { fields: vec![], bytes: 0, offset: 0 },
            settings: written(serde_json::to_value(self.settings(0))),
        }
    }

    pub(crate) fn is_eventual(&self) -> bool {
        self.consistency == Consistency::Ewo
    }

    /// Slots that this object asks for.
    pub(crate) fn slots(&self) -> u32 {
        let wanted = self.slots.flatten().unwrap_or(USUAL_SLOTS);
        if self.merge == Merge::Sum { wanted } else { 0 }
    }

    /// Switches that this object asks room for, as maps are made for them.
    fn room(&self) -> u32 {
        self.members.flatten().unwrap_or(0).clamp(MEMBERS, MEMBERS_MAX).next_power_of_two()
    }

    pub(crate) fn settings(&self, first_block: u32) -> SharedSettings {
        SharedSettings {
            consistency: self.consistency,
            merge: self.merge,
            group: self.group.clone(),
            group_number: self.group_number,
            first_block,
            drops_when_full: self.drops == Some(true),
            period: self.period.unwrap_or(0),
            members: MEMBERS,
            own: self.own.as_ref().map(|it| it.described.clone()),
            eventual: None,
        }
    }

    /// How its cells merge, in C.
    pub(crate) fn c_merge(&self) -> String {
        self.own.as_ref().map_or_else(|| self.merge.c_name().to_owned(), Own::c_number)
    }

    /// Tells the manifest where the object lies.
    pub(crate) fn lies(&self, generator: &mut Generator<'_>, settings: &SharedSettings) {
        let all = generator.manifest.state_objects.iter_mut();
        if let Some(described) = all.into_iter().find(|it| it.id == self.id) {
            described.settings = written(serde_json::to_value(settings));
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
        let context = if self.is_eventual() { "shared.eventual" } else { "shared.windows" };
        match (method, &inputs[..]) {
            ("add" | "update", [index, by]) => {
                generator.out.line(format!("{name}_update(&{context}, {index}, {by});"));
                return true;
            }
            ("sub", [index, by]) if self.is_eventual() => {
                generator.out.line(format!("{name}_sub(&{context}, {index}, {by});"));
                return true;
            }
            // (Cells of SDW are modulo 2^32.)
            ("sub", [index, by]) => {
                generator.out.line(format!("{name}_update(&{context}, {index}, -({by}));"));
                return true;
            }
            ("get", [index]) => {
                if let Some(target) = result {
                    let call = if self.is_eventual() {
                        format!("{name}_get({index})")
                    } else {
                        format!("{name}_get(&{context}, {index})")
                    };
                    generator.store(target, &call);
                }
            }
            ("window" | "age", []) if self.is_eventual() => {
                let message = format!("{}: Shared.EWO has no windows", self.described);
                let help = "use Shared.SDW, whose values are those of a window";
                generator.error(location, &message, Some(help));
            }
            ("window" | "age", []) => {
                if let Some(target) = result {
                    let group = self.group_number;
                    generator.store(target, &format!("sp_shared_{method}(&{context}, {group})"));
                }
            }
            _ => {
                generator.internal(location, "an unknown method of a shared variable");
            }
        }
        false
    }
}

/// The group that a declaration names.
pub(crate) fn group_of(instance: &ExternInstance) -> String {
    let group = instance.annotations.iter().find(|it| it.name == "group");
    group.map_or(DEFAULT_GROUP, |it| it.body.trim()).to_owned()
}

/// Its number among the program's groups; a new one, if it is new.
pub(crate) fn number_of(group: &str, groups: &mut Vec<String>) -> u32 {
    let at = groups.iter().position(|it| it == group).unwrap_or_else(|| {
        groups.push(group.to_owned());
        groups.len() - 1
    });
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Is it one that a configuration can name?
pub(crate) fn is_group_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=32).contains(&name.len()) && name.bytes().all(plain)
}

/// An object's settings for its manifest.
pub(crate) fn written(settings: serde_json::Result<serde_json::Value>) -> manifest::Settings {
    match settings {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => manifest::Settings::new(),
    }
}

/// Objects with SDW, with their first blocks: a group's lie side by side.
fn placed(objects: &[SharedObject]) -> Vec<(&SharedObject, u32)> {
    let mut in_order: Vec<&SharedObject> = objects.iter().filter(|it| !it.is_eventual()).collect();
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
    let placed = placed(objects);
    let members = room(&placed);
    check_members(generator, &placed);
    for (object, first) in placed {
        object.lies(generator, &SharedSettings { members, ..object.settings(first) });
        if first.saturating_add(blocks(object.cells)) >= u32::from(NOTHING) {
            let message = format!(
                "{}: the program's shared variables have over {CELLS_MAX} cells",
                object.described
            );
            generator.error(object.location, &message, Some("make some of them smaller"));
        }
    }
}

/// Switches that each group has room for.
fn room(placed: &[(&SharedObject, u32)]) -> u32 {
    placed.iter().map(|(it, _)| it.room()).max().unwrap_or(MEMBERS)
}

/// Messages that a switch may send in a window: the blocks of the largest group.
fn messages(placed: &[(&SharedObject, u32)]) -> u32 {
    let of_group = |group: u32| -> u32 {
        let own = placed.iter().filter(|(it, _)| it.group_number == group);
        own.map(|(it, _)| blocks(it.cells)).fold(0, u32::saturating_add)
    };
    (0..GROUPS).map(of_group).max().unwrap_or(1)
}

/// Groups with objects with SDW have numbers below this.
fn held_groups(placed: &[(&SharedObject, u32)]) -> u32 {
    placed.iter().map(|(it, _)| it.group_number + 1).max().unwrap_or(1).min(GROUPS)
}

/// Refuses what a switch would have to keep of members, if that is too much.
fn check_members(generator: &mut Generator<'_>, placed: &[(&SharedObject, u32)]) {
    let (members, messages) = (room(placed), messages(placed));
    let bytes = u64::from(held_groups(placed)) * u64::from(members) * member_bytes(messages);
    let Some((object, _)) = placed.iter().find(|(it, _)| it.members.is_some()) else { return };
    if bytes > MEMBER_BYTES_MAX {
        let message = format!(
            "{}: room for {members} switches that send up to {messages} messages in a window \
             takes {bytes} bytes, more than {MEMBER_BYTES_MAX}",
            object.described
        );
        let help = "make room for fewer switches, @members(N), or the variables smaller";
        generator.error(object.location, &message, Some(help));
    }
}

/// What stateplane_shared.h is told before it is included.
pub(crate) fn defines(objects: &[SharedObject], updates: usize, text: &mut Writer) {
    let placed = placed(objects);
    if placed.is_empty() {
        return;
    }
    let all: u32 = placed.iter().map(|(it, _)| blocks(it.cells)).sum();
    text.line(format!("#define SP_SHARED_BLOCKS {all}"));
    text.line(format!("#define SP_SHARED_MESSAGES {}", messages(&placed)));
    text.line(format!("#define SP_SHARED_MEMBERS {}", room(&placed)));
    text.line(format!("#define SP_SHARED_HELD_GROUPS {}", held_groups(&placed)));
    text.line(format!("#define SP_SHARED_UPDATES {updates}"));
    text.line("/* name, group, first block, cells, how they merge, drops when full, period */");
    let objects = placed.iter().map(|(it, first)| {
        let SharedObject { c_name, group_number, cells, drops, period, .. } = it;
        let (merge, drops) = (it.c_merge(), u32::from(*drops == Some(true)));
        let period = period.unwrap_or(0);
        format!(" X({c_name}, {group_number}, {first}, {cells}, {merge}, {drops}, {period})")
    });
    text.line(format!("#define SP_SHARED_OBJECTS(X){}", objects.collect::<String>()));
}
