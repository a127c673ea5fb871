//! A program's shared variables, as its manifest describes them.

use crate::layouts::{CELLS, MEMBERS, MemberValue, merge};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// As a manifest's state objects name the system.
pub const SYSTEM: &str = "swish";
/// Externs.
pub const COUNTER: &str = "SharedCounter";
/// Externs.
pub const SKETCH: &str = "SharedSketch";
/// Externs.
pub const TABLE: &str = "SharedTable";
/// Externs.
pub const REGISTER: &str = "SharedRegister";
/// Externs.
pub const SET: &str = "SharedSet";
/// The group of objects without one.
pub const DEFAULT_GROUP: &str = "main";

/// How switches see each other's writes, in the order of the P4 enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// Strong read optimized.
    Sro,
    /// Eventual write optimized.
    Ewo,
    /// Strong delayed writes.
    Sdw,
}

impl Consistency {
    /// All of them.
    pub const ALL: [Consistency; 3] = [Consistency::Sro, Consistency::Ewo, Consistency::Sdw];

    /// As a P4 program writes it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Sro => "SRO",
            Consistency::Ewo => "EWO",
            Consistency::Sdw => "SDW",
        }
    }
}

/// How cells of several switches become one; the numbers are the data plane's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// Modulo 2^32.
    Sum,
    /// Bitwise.
    Or,
    /// The larger one.
    Max,
    /// By a function of the program: [`SharedSettings::own`].
    Own,
}

impl Merge {
    /// In the order of the P4 enum `Sketch`.
    pub const ALL: [Merge; 4] = [Merge::Sum, Merge::Or, Merge::Max, Merge::Own];

    /// SP_SHARED_
    pub fn number(self) -> u32 {
        match self {
            Merge::Sum => merge::SUM,
            Merge::Or => merge::OR,
            Merge::Max => merge::MAX,
            Merge::Own => merge::OWN,
        }
    }

    /// The name of that number in C.
    pub fn c_name(self) -> &'static str {
        match self {
            Merge::Sum => "SP_SHARED_SUM",
            Merge::Or => "SP_SHARED_OR",
            Merge::Max => "SP_SHARED_MAX",
            Merge::Own => "SP_SHARED_OWN",
        }
    }

    /// Two cells as one. `None`: only the program's function says.
    pub fn of(self, one: u32, other: u32) -> Option<u32> {
        match self {
            Merge::Sum => Some(one.wrapping_add(other)),
            Merge::Or => Some(one | other),
            Merge::Max => Some(one.max(other)),
            Merge::Own => None,
        }
    }
}

/// A merge of the program's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnMerge {
    /// The function's name in the program.
    pub name: String,
    /// What it does: the compiler's form of it, without places in the source.
    pub function: serde_json::Value,
}

/// What a manifest says of a shared variable beside its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedSettings {
    /// How switches see each other's writes.
    pub consistency: Consistency,
    /// How cells of several switches become one.
    pub merge: Merge,
    /// The name of its group.
    pub group: String,
    /// The group's number in this program.
    pub group_number: u32,
    /// The first block of the variable, of all groups' blocks.
    pub first_block: u32,
    /// A packet whose update finds no room is dropped.
    pub drops_when_full: bool,
    /// Windows after which it begins anew; 0: it never does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub period: u32,
    /// With SDW: switches that a group has room for, of each of the program's groups.
    #[serde(default = "usual_members", skip_serializing_if = "is_usual")]
    pub members: u32,
    /// With [`Merge::Own`]: the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnMerge>,
    /// With EWO: where its cells are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eventual: Option<Eventual>,
}

impl SharedSettings {
    /// The program's merge as text, for a group's layout; empty: it has none.
    fn own_text(&self) -> String {
        self.own.as_ref().map_or_else(String::new, |it| it.function.to_string())
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn usual_members() -> u32 {
    MEMBERS
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_usual(members: &u32) -> bool {
    *members == MEMBERS
}

/// The first rotation that counts in the one of this number, of a variable with a period: rotations
/// before it are of an earlier period. 0: it has none.
pub fn period_begins(period: u32, rotation: u64) -> u64 {
    match u64::from(period) {
        0 => 0,
        period => rotation - rotation % period,
    }
}

/// Where the cells of a variable with EWO are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eventual {
    /// The first one, of all groups' cells: those with slots come first.
    pub first_cell: u32,
    /// 2: each counter has a cell that grows by what is added, and behind all of these one that
    /// grows by what is subtracted.
    pub lanes: u32,
    /// Slots of each cell: lives of switches that may write to it; 0: it has none.
    pub slots: u32,
}

/// What a manifest says of a table or register with SRO beside its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrongSettings {
    /// SRO.
    pub consistency: Consistency,
    /// The name of its group: all such objects of a program have the same.
    pub group: String,
    /// Its number among them.
    pub table: u32,
    /// The program says of keys when their time is over.
    #[serde(default)]
    pub timed: bool,
}

/// What a manifest says of a register, table or set with EWO beside its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastSettings {
    /// EWO.
    pub consistency: Consistency,
    /// The name of its group.
    pub group: String,
    /// The group's number in this program.
    pub group_number: u32,
    /// The object's number among those of the program.
    pub object: u32,
    /// Its first record, of all objects' records.
    pub first_record: u32,
    /// 64-bit words of each record's key and value: those of the longest ones of the program.
    pub key_words: u32,
    /// See `key_words`.
    pub value_words: u32,
}

/// Blocks of so many cells.
pub fn blocks(cells: u32) -> u32 {
    cells.div_ceil(CELLS)
}

/// Bytes that a switch keeps of each member of a group with SDW, in whose largest group a switch
/// sends so many messages in a window at the most: its record, and a bit for each message.
pub fn member_bytes(messages: u32) -> u64 {
    size_of::<MemberValue>() as u64 + u64::from(messages.div_ceil(64)) * 8
}

/// A group of a program's variables: a range of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its number in the program.
    pub number: u32,
    /// Its first block.
    pub first: u32,
    /// How many.
    pub blocks: u32,
    /// Switches that it has room for.
    pub members: u32,
    /// A number for where its variables lie, how large they are, and how they merge: members with
    /// another one do not understand each other.
    pub layout: u64,
}

/// The groups with variables with SDW, in the order of their numbers, from the sizes and settings
/// of a program's variables.
pub fn groups<'a>(objects: impl Iterator<Item = (u32, &'a SharedSettings)>) -> Vec<Group> {
    let objects: Vec<(u32, &SharedSettings)> =
        objects.filter(|(_, it)| it.consistency == Consistency::Sdw).collect();
    let mut found: Vec<Group> = vec![];
    for (cells, settings) in objects.iter().copied() {
        let end = settings.first_block + blocks(cells);
        match found.iter_mut().find(|group| group.number == settings.group_number) {
            Some(group) => {
                let last = (group.first + group.blocks).max(end);
                group.first = group.first.min(settings.first_block);
                group.blocks = last - group.first;
            }
            None => found.push(Group {
                name: settings.group.clone(),
                number: settings.group_number,
                first: settings.first_block,
                blocks: blocks(cells),
                members: settings.members,
                layout: 0,
            }),
        }
    }
    for group in &mut found {
        group.layout = layout(group, &objects);
    }
    found.sort_by_key(|group| group.number);
    found
}

/// A group of a program's variables with EWO: ranges of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventualGroup {
    /// Its name.
    pub name: String,
    /// Its number in the program.
    pub number: u32,
    /// The first cell with slots.
    pub first_slotted: u32,
    /// How many.
    pub slotted: u32,
    /// The first cell without.
    pub first_direct: u32,
    /// How many.
    pub direct: u32,
    /// The first record of its registers, tables and sets.
    pub first_record: u32,
    /// How many.
    pub records: u32,
    /// As [`Group::layout`].
    pub layout: u64,
}

/// Adds the groups' registers, tables and sets: records, bytes of a key and of a value, settings of
/// each.
pub fn with_records(
    mut groups: Vec<EventualGroup>,
    mut objects: Vec<(u32, u32, u32, &LastSettings)>,
) -> Vec<EventualGroup> {
    objects.sort_by_key(|(.., settings)| settings.object);
    for (records, key_bytes, value_bytes, settings) in objects {
        let number = settings.group_number;
        let at = groups.iter().position(|it| it.number == number).unwrap_or_else(|| {
            let name = settings.group.clone();
            groups.push(EventualGroup { name, number, ..EventualGroup::default() });
            groups.len() - 1
        });
        let Some(group) = groups.get_mut(at) else { continue };
        if group.records == 0 {
            group.first_record = settings.first_record;
        }
        let mut hasher = SipHasher24::new();
        hasher.write(b"last writer wins");
        hasher.write(&group.layout.to_be_bytes());
        // (Messages have objects' numbers in the program.)
        let LastSettings { object, key_words, value_words, .. } = settings;
        for number in [*object, records, key_bytes, value_bytes, *key_words, *value_words] {
            hasher.write(&number.to_be_bytes());
        }
        group.layout = hasher.finish();
        group.records += records;
    }
    groups.sort_by_key(|group| group.number);
    groups
}

/// What a group's layout is made of: numbers of each variable, and the text of its own merge.
type Parts = Vec<([u32; 4], String)>;

/// The groups with variables with EWO, in the order of their numbers.
pub fn eventual_groups<'a>(
    objects: impl Iterator<Item = (u32, &'a SharedSettings)>,
) -> Vec<EventualGroup> {
    let mut found: Vec<(EventualGroup, Parts)> = vec![];
    for (size, settings) in objects {
        let Some(eventual) = settings.eventual else { continue };
        let at = found.iter().position(|(it, _)| it.number == settings.group_number);
        let at = at.unwrap_or_else(|| {
            let (name, number) = (settings.group.clone(), settings.group_number);
            found.push((EventualGroup { name, number, ..EventualGroup::default() }, vec![]));
            found.len() - 1
        });
        let Some((group, parts)) = found.get_mut(at) else { continue };
        let (first, count) = match settings.merge {
            Merge::Sum => (&mut group.first_slotted, &mut group.slotted),
            Merge::Or | Merge::Max | Merge::Own => (&mut group.first_direct, &mut group.direct),
        };
        let from = eventual.first_cell;
        *first = if *count == 0 { from } else { from.min(*first) };
        *count += size * eventual.lanes;
        parts.push(([from, size, eventual.lanes, settings.merge.number()], settings.own_text()));
    }
    found.sort_by_key(|(group, _)| group.number);
    let with_layout = |(mut group, mut parts): (EventualGroup, Parts)| {
        parts.sort_unstable();
        let mut hasher = SipHasher24::new();
        // (So that the tags are others than those of the group's windows.)
        hasher.write(b"ewo");
        for ([from, size, lanes, merge], own) in parts {
            let is_slotted = merge == merge::SUM;
            let first = if is_slotted { group.first_slotted } else { group.first_direct };
            for number in [from - first, size, lanes, merge] {
                hasher.write(&number.to_be_bytes());
            }
            hasher.write(own.as_bytes());
        }
        group.layout = hasher.finish();
        group
    };
    found.into_iter().map(with_layout).collect()
}

fn layout(group: &Group, objects: &[(u32, &SharedSettings)]) -> u64 {
    let own = objects.iter().filter(|(_, it)| it.group_number == group.number);
    let mut parts: Parts = own
        .map(|(cells, it)| {
            let first = it.first_block - group.first;
            ([first, *cells, it.merge.number(), it.period], it.own_text())
        })
        .collect();
    parts.sort_unstable();
    let mut hasher = SipHasher24::new();
    for ([first, cells, merge, period], own) in parts {
        for number in [first, cells, merge] {
            hasher.write(&number.to_be_bytes());
        }
        // (A group without periods has the layout that it had before there were any.)
        if period != 0 {
            hasher.write(b"period");
            hasher.write(&period.to_be_bytes());
        }
        // (Members that merge otherwise do not understand each other.)
        hasher.write(own.as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(merge: Merge, group_number: u32, first_cell: u32, lanes: u32) -> SharedSettings {
        SharedSettings {
            consistency: Consistency::Ewo,
            merge,
            group: format!("group {group_number}"),
            group_number,
            first_block: 0,
            drops_when_full: false,
            period: 0,
            members: MEMBERS,
            own: None,
            eventual: Some(Eventual { first_cell, lanes, slots: 16 }),
        }
    }

    #[test]
    fn a_period_begins_at_its_multiples() {
        let begins = |period: u32| [0, 1, 6, 7, 8, 14].map(|it| period_begins(period, it));
        assert_eq!(begins(7), [0, 0, 0, 7, 7, 14]);
        assert_eq!(begins(1), [0, 1, 6, 7, 8, 14]);
        assert_eq!(begins(0), [0; 6]);
        // Members whose programs differ in it do not understand each other.
        let layout = |period| {
            let plain = settings(Merge::Or, 0, 0, 1);
            let it =
                SharedSettings { consistency: Consistency::Sdw, eventual: None, period, ..plain };
            groups([(9, &it)].into_iter()).first().map(|it| it.layout)
        };
        assert!(layout(0) != layout(7) && layout(7) != layout(8));
    }

    #[test]
    fn members_with_another_merge_have_another_layout() {
        let layouts = |function: &str| {
            let own = OwnMerge { name: "m".into(), function: function.into() };
            let eventual = SharedSettings { own: Some(own), ..settings(Merge::Own, 0, 0, 1) };
            let windows = SharedSettings {
                consistency: Consistency::Sdw,
                eventual: None,
                ..eventual.clone()
            };
            let one = groups([(9, &windows)].into_iter()).first().map(|it| it.layout);
            let other = eventual_groups([(9, &eventual)].into_iter()).first().map(|it| it.layout);
            (one, other)
        };
        let ((one, first), (other, second)) = (layouts("a"), layouts("b"));
        assert!(one != other && first != second);
    }

    #[test]
    fn groups_have_ranges_of_both_kinds() {
        let all = [
            (10, settings(Merge::Sum, 0, 0, 2)),
            (5, settings(Merge::Sum, 1, 20, 1)),
            (7, settings(Merge::Sum, 0, 25, 1)),
            (3, settings(Merge::Max, 1, 32, 1)),
        ];
        let one = eventual_groups(all.iter().map(|(size, it)| (*size, it)));
        let ranges =
            |it: &EventualGroup| [it.first_slotted, it.slotted, it.first_direct, it.direct];
        assert_eq!(one.iter().map(ranges).collect::<Vec<_>>(), [[0, 27, 0, 0], [20, 5, 32, 3]]);
        assert_ne!(one[0].layout, one[1].layout);
        assert!(groups(all.iter().map(|(size, it)| (*size, it))).is_empty());
    }
}
