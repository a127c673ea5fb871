//! Variables with EWO in C: where their cells lie.

use crate::object::SharedObject;
use crate::records::Records;
use p4_ir::Location;
use swish_protocol::eventual::columns;
use swish_protocol::memory::listed;
use swish_protocol::objects::{Eventual, Merge, SharedSettings};
use xdp_backend::system::{Generator, Writer};

/// Bytes of all slots at the most.
const SLOT_BYTES_MAX: u64 = 1 << 30;

/// Objects with their first cells. Cells with slots come first, and a group's lie side by side.
fn placed(objects: &[SharedObject]) -> Vec<(&SharedObject, u32)> {
    let mut in_order: Vec<&SharedObject> = objects.iter().filter(|it| it.is_eventual()).collect();
    in_order.sort_by_key(|object| (object.merge != Merge::Sum, object.group_number));
    let mut next = 0u32;
    let mut found = vec![];
    for object in in_order {
        found.push((object, next));
        next = next.saturating_add(object.cells.saturating_mul(object.lanes));
    }
    found
}

fn cells(placed: &[(&SharedObject, u32)], of: impl Fn(&SharedObject) -> bool) -> u32 {
    // (What is too large has an error of its own.)
    let cells =
        placed.iter().filter(|(it, _)| of(it)).map(|(it, _)| it.cells.saturating_mul(it.lanes));
    cells.fold(0, u32::saturating_add)
}

fn slots(objects: &[SharedObject]) -> u32 {
    objects.iter().filter(|it| it.is_eventual()).map(SharedObject::slots).max().unwrap_or(0)
}

/// Tells the manifest where the objects lie, after all are declared.
pub(crate) fn place(generator: &mut Generator<'_>, objects: &[SharedObject]) {
    let placed = placed(objects);
    let slots = slots(objects);
    for (object, first_cell) in &placed {
        let own = if object.merge == Merge::Sum { slots } else { 0 };
        let eventual = Eventual { first_cell: *first_cell, lanes: object.lanes, slots: own };
        let settings = SharedSettings { eventual: Some(eventual), ..object.settings(0) };
        object.lies(generator, &settings);
    }
    let slotted = cells(&placed, |it| it.merge == Merge::Sum);
    let bytes = (u64::from(slotted) * u64::from(columns(slots))).saturating_mul(8);
    if let Some((object, _)) = placed.first().filter(|_| bytes > SLOT_BYTES_MAX) {
        let message = format!(
            "{}: {slotted} cells with {slots} slots of 8 bytes, and two for bases, take {bytes} \
             bytes, more than {SLOT_BYTES_MAX}",
            object.described
        );
        let help = "make counters fewer, or give them fewer slots: @slots(N)";
        let location: Location = object.location;
        generator.error(location, &message, Some(help));
    }
}

/// What stateplane_eventual.h is told before it is included.
pub(crate) fn defines(
    objects: &[SharedObject],
    records: &Records,
    updates: usize,
    text: &mut Writer,
) {
    let placed = placed(objects);
    if placed.is_empty() && records.is_empty() {
        return;
    }
    // (An array has one element at the least.)
    let all = cells(&placed, |_| true).max(1);
    text.line(format!("#define SP_EVENTUAL_CELLS {all}"));
    let slotted = cells(&placed, |it| it.merge == Merge::Sum);
    text.line(format!("#define SP_EVENTUAL_SLOTTED {slotted}"));
    text.line(format!("#define SP_EVENTUAL_COLUMNS {}", columns(slots(objects)).max(1)));
    text.line(format!("#define SP_EVENTUAL_LISTED {}", listed(all)));
    text.line(format!("#define SP_EVENTUAL_UPDATES {updates}"));
    text.line("/* name, group, first cell, cells, lanes, how they merge */");
    let objects = placed.iter().map(|(it, first)| {
        let SharedObject { c_name, group_number, cells, lanes, .. } = it;
        format!(" X({c_name}, {group_number}, {first}, {cells}, {lanes}, {})", it.c_merge())
    });
    text.line(format!("#define SP_EVENTUAL_OBJECTS(X){}", objects.collect::<String>()));
    records.defines(text);
}
