//! SnapshotState: the calls into the runtime of stateplane_snapshot.h.

use super::State;
use manifest::{Home, Layout, StateObject};
use num_traits::ToPrimitive;
use p4_ir::{Argument, ConstArgument, Expr, ExprKind, ExternInstance, Location, Type};
use state_protocol::layouts::{map_slot_bytes, slots_offset};
use state_protocol::objects::{
    LEAST_WINDOW_BITS, MOST_MERGED_KEY_BYTES, Merge, Overdue, SNAPSHOT_STATE, SYSTEM,
    SnapshotSettings, written,
};
use state_protocol::{MOST_SNAPSHOT_KEY_BYTES, SNAPSHOT_PART_BYTES};
use xdp_backend::system::{Generator, ObjectCall, scalar_width};

/// A SnapshotState object as the generator needs it.
#[derive(Clone)]
pub struct SnapshotObject {
    pub object_id: u16,
    pub instances: u32,
    pub key_bytes: u32,
    pub slots: u32,
    pub width: u32,
    pub slot_bytes: u32,
    pub period_us: u32,
    pub epsilon_us: u32,
    pub overdue: u32,
    pub c_name: String,
    pub location: Location,
    /// The program calls `is_overdue`.
    pub asked: bool,
}

/// Bytes of slots in one message.
const PART_BYTES: u32 = SNAPSHOT_PART_BYTES as u32;
/// With more, the state of one key would not fit the sets of parts in `struct sp_snapshot_book`,
/// nor a BPF map's value comfortably.
const MAX_SLOTS: u32 = 16384;
/// As often as the packet generator can run (switch configuration, `generator_interval_us`).
const MIN_PERIOD_US: u32 = 100;
/// Slots that one `add_each` takes: the loop is unrolled, and its indices and sums stand on the
/// stack.
const MAX_EACH: usize = 16;
/// `begin` sets this many slots to zero while it holds the lock that packets and the generator wait
/// for: some microseconds.
const MAX_SLOTS_OF_WINDOWS: u32 = 4096;
/// `Overdue` in stateplane/redplane.p4, by position.
const OVERDUE: [Overdue; 3] = [Overdue::Drop, Overdue::Mark, Overdue::Continue];
const MARK: u32 = 1;

impl State {
    /// Is there a SnapshotState of which snapshots are taken?
    pub fn takes_snapshots(&self) -> bool {
        self.snapshots.iter().any(|it| it.period_us != 0)
    }

    /// The list that stateplane_snapshot.h works on.
    pub fn snapshot_list(&self) -> String {
        let object = |s: &SnapshotObject| {
            format!(
                "X({}, {}, {}, {}, {}, {}, {}, {}, {}, {})",
                s.c_name,
                s.object_id,
                s.instances,
                s.key_bytes,
                s.slots,
                s.width,
                s.slot_bytes,
                s.period_us,
                s.epsilon_us,
                s.overdue
            )
        };
        self.snapshots.iter().map(object).collect::<Vec<_>>().join(" ")
    }

    /// Reads a SnapshotState's declaration.
    pub fn declare_snapshot_state(
        &mut self,
        generator: &mut Generator<'_>,
        instance: &ExternInstance,
        object_id: u16,
    ) {
        let key =
            generator.wire_fields(instance.type_arguments.first(), instance, "a struct as key");
        let key_bytes = key.iter().map(|field| field.bytes).sum::<u32>();
        let number = |index: usize| match instance.arguments.get(index) {
            Some(ConstArgument::Value(value, _)) => value.to_u32().unwrap_or(0),
            _ => 0,
        };
        let (instances, slots, period_us, epsilon_us, overdue) =
            (number(0), number(1), number(2), number(3), number(4));
        // Behind `Merge.NONE`; a constructor of five arguments says the same.
        let merge = number(5).checked_sub(1).and_then(|at| Merge::ALL.get(at as usize)).copied();
        let width = match instance.type_arguments.get(1) {
            Some(Type::Bits { width, signed: false }) if *width <= 64 => *width,
            _ => 0,
        };
        let slot_bytes = if width > 32 { 8 } else { 4 };
        let most = MAX_SLOTS * 4 / slot_bytes;
        let name = &instance.name;
        let faults = [
            (
                !(1..=MOST_SNAPSHOT_KEY_BYTES).contains(&(key_bytes as usize)),
                format!("the key has {key_bytes} bytes, not 1 to {MOST_SNAPSHOT_KEY_BYTES}"),
                "drop or narrow fields of the key's struct; each takes whole bytes",
            ),
            (
                merge.is_some() && key_bytes as usize > MOST_MERGED_KEY_BYTES,
                format!(
                    "the key has {key_bytes} bytes, more than the {MOST_MERGED_KEY_BYTES} of an object that is merged"
                ),
                "drop or narrow fields of the key's struct: the store puts each switch's number \
                 behind it",
            ),
            (
                merge.is_some() && period_us == 0,
                "Merge, but no snapshots (a period of 0) that the store could merge".into(),
                "write a period (the third argument), or Merge.NONE",
            ),
            (
                width == 0,
                "slots must be bit<W>, W at most 64".into(),
                "name bit<32> or bit<64> as the second type",
            ),
            (
                instances == 0,
                "needs room for at least one key".into(),
                "the first argument says how many keys fit",
            ),
            (
                !(1..=most).contains(&slots),
                format!("{slots} slots of {slot_bytes} bytes; possible are 1 to {most}"),
                "the second argument says how many slots a key has; more fit if they are bit<32> or narrower",
            ),
            (
                period_us != 0 && period_us < MIN_PERIOD_US,
                format!(
                    "a period of {period_us} µs; the packet generator runs every {MIN_PERIOD_US} µs at most"
                ),
                "write a longer period, or 0 for no snapshots: the state then lives in the switch \
                 only",
            ),
            (
                period_us != 0 && epsilon_us <= period_us,
                format!(
                    "ε is {epsilon_us} µs, not more than the period of {period_us} µs: the state would always be overdue"
                ),
                "write a larger ε (the fourth argument) or a shorter period (the third)",
            ),
        ];
        for (is_fault, message, help) in faults {
            if is_fault {
                generator.error(
                    instance.location,
                    &format!("SnapshotState {name}: {message}"),
                    Some(help),
                );
            }
        }
        let parts = slots.div_ceil(PART_BYTES / slot_bytes);
        let settings = SnapshotSettings {
            period_us,
            epsilon_us,
            overdue: OVERDUE.get(overdue as usize).copied().unwrap_or(Overdue::Drop),
            windows: false,
            merge,
        };
        generator.manifest.state_objects.push(StateObject {
            id: object_id,
            name: name.clone(),
            system: SYSTEM.into(),
            kind: SNAPSHOT_STATE.into(),
            map: instance.c_name.clone(),
            slots_map: None,
            capacity: instances,
            home: if period_us == 0 { Home::ThisSwitch } else { Home::Store },
            key,
            key_bytes,
            value: Layout::Slots {
                count: slots,
                width,
                slot_bytes,
                map_slot_bytes: map_slot_bytes(slot_bytes),
                offset: slots_offset(key_bytes, parts),
            },
            settings: written(&settings),
        });
        self.snapshots.push(SnapshotObject {
            object_id,
            instances,
            key_bytes,
            slots,
            width,
            slot_bytes,
            period_us,
            epsilon_us,
            overdue,
            c_name: instance.c_name.clone(),
            location: instance.location,
            asked: false,
        });
    }

    /// `Overdue.MARK` is a promise to ask.
    pub fn check_snapshot_calls(&self, generator: &mut Generator<'_>) {
        for object in &self.snapshots {
            if object.period_us != 0 && object.overdue == MARK && !object.asked {
                generator.error(
                    object.location,
                    "Overdue.MARK, but the program never asks is_overdue",
                    Some("mark the packet if is_overdue(key), or use Overdue.CONTINUE"),
                );
            }
        }
    }

    /// `read`, `write`, `add`, `add_each`, `begin`, `is_overdue`
    pub fn snapshot_call(&mut self, generator: &mut Generator<'_>, call: &ObjectCall<'_>) {
        let ObjectCall { instance, method, arguments, result, location } = *call;
        let Some(at) = self.snapshots.iter().position(|it| it.c_name == instance.c_name) else {
            return;
        };
        let object = self.snapshots[at].clone();
        let Some(Argument::In(key)) = arguments.first() else {
            generator.internal(location, "SnapshotState method without a key");
            return;
        };
        generator.open("");
        generator.wire_buffer("sp_key", object.key_bytes, Some(key));
        if method == "is_overdue" {
            self.snapshots[at].asked = true;
            if let Some(target) = result {
                generator.store(target, &format!("{}_overdue(sp_key)", object.c_name));
            }
            generator.out.line("}");
            return;
        }
        let value = |index: usize| match arguments.get(index) {
            Some(Argument::In(value)) => Some(value),
            _ => None,
        };
        let indices = match (method, value(1)) {
            ("add_each", Some(list)) => slot_indices(generator, list, location),
            // The runtime knows which.
            ("begin", _) => vec![("0".into(), 32)],
            (_, Some(index)) => {
                let width = generator.width(index);
                vec![(generator.expr(index), width)]
            }
            _ => Vec::new(),
        };
        let (what, operand, out) = match method {
            "read" => ("SP_SLOT_READ", None, arguments.get(2)),
            "write" => ("SP_SLOT_WRITE", value(2), None),
            "begin" => {
                note_windows(generator, &object, location);
                ("SP_SLOTS_BEGIN", value(1), None)
            }
            _ => ("SP_SLOT_ADD", value(2), arguments.get(3)),
        };
        let operand = operand.map_or("0".into(), |operand| generator.expr(operand));
        let count = indices.len();
        generator.out.line(format!("__u32 sp_index[{count}];"));
        // One by one, not as a list, which clang would copy from constant memory: see
        // `wide_literal`.
        for (at, (value, _)) in indices.iter().enumerate() {
            generator.out.line(format!("sp_index[{at}] = {value};"));
        }
        generator.out.line(format!("__u64 sp_slot[{count}];"));
        generator.out.line(format!(
            "__u32 sp_result = {}_access(&flow, sp_key, {what}, sp_index, {count}, {operand}, sp_slot);",
            object.c_name
        ));
        // The packet waits for the key's state, or is dropped.
        generator.out.line("if (flow.kind == 1) return sp_flow_park(xdp, &flow);");
        if let Some(Argument::Out(target) | Argument::InOut(target)) = out {
            if method == "add_each" {
                store_sums(generator, target, count, object.width, location);
            } else {
                generator.store_truncated(target, "sp_slot[0]");
            }
        }
        if let Some(target) = result {
            generator.store(target, "sp_result");
        }
        generator.out.line("}");
    }
}

/// The object's slots begin anew with each window, whose number is the last of them.
fn note_windows(generator: &mut Generator<'_>, object: &SnapshotObject, location: Location) {
    if !(2..=MAX_SLOTS_OF_WINDOWS).contains(&object.slots) {
        let message = format!(
            "begin: windows need 2 to {MAX_SLOTS_OF_WINDOWS} slots, not {}: the last one is the window's number, and one packet sets all others to zero",
            object.slots
        );
        generator.error(location, &message, None);
    }
    let described =
        generator.manifest.state_objects.iter_mut().find(|it| it.id == object.object_id);
    let Some(it) = described else { return };
    let Ok(settings) = SnapshotSettings::of(it) else { return };
    it.settings = written(&SnapshotSettings { windows: true, ..settings });
    if settings.merge.is_some() && object.width < LEAST_WINDOW_BITS {
        let message = format!(
            "begin: a merged object's windows need numbers of {LEAST_WINDOW_BITS} bits, not {}: \
             with fewer, an old switch's snapshot could seem newer",
            object.width
        );
        generator.error(location, &message, None);
    }
}

fn slot_indices(
    generator: &mut Generator<'_>,
    list: &Expr,
    location: Location,
) -> Vec<(String, u32)> {
    let is_list =
        matches!(&list.kind, ExprKind::StructValue(_)) || matches!(list.ty, Type::Struct(_));
    let found = if is_list { generator.list_values(list) } else { Vec::new() };
    if found.is_empty() || found.len() > MAX_EACH || found.iter().any(|(_, width)| *width > 32) {
        let message =
            format!("the indices of add_each must be a struct or list of 1 to {MAX_EACH} bit<32>");
        generator.error(
            location,
            &message,
            Some("write { first, second, … }; more sums take another add_each"),
        );
        return vec![("0".into(), 32)];
    }
    found
}

fn store_sums(
    generator: &mut Generator<'_>,
    target: &Expr,
    count: usize,
    width: u32,
    location: Location,
) {
    let fields = match (&target.ty, generator.struct_variables(target)) {
        (Type::Struct(id), Some(fields)) => {
            let types = &generator.program.struct_types[id.index()].fields;
            let all_fit = types.iter().all(|field| scalar_width(&field.ty) == Some(width));
            if all_fit && fields.len() == count { fields } else { Vec::new() }
        }
        _ => Vec::new(),
    };
    if fields.is_empty() {
        let message =
            format!("the results of this add_each must be a struct of {count} bit<{width}>");
        generator.error(
            location,
            &message,
            Some("declare a struct with a field of the slots' type for each index"),
        );
    }
    for (index, field) in fields.into_iter().enumerate() {
        generator.out.line(format!("{field} = sp_slot[{index}];"));
    }
}
