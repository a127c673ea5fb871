//! A program's shared variables, as its manifest describes them.

use crate::layouts::{CELLS, merge};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// As a manifest's state objects name the system.
pub const SYSTEM: &str = "swish";
/// Externs.
pub const COUNTER: &str = "SharedCounter";
/// Externs.
pub const SKETCH: &str = "SharedSketch";
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
}

impl Merge {
    /// In the order of the P4 enum `Sketch`.
    pub const ALL: [Merge; 3] = [Merge::Sum, Merge::Or, Merge::Max];

    /// SP_SHARED_
    pub fn number(self) -> u32 {
        match self {
            Merge::Sum => merge::SUM,
            Merge::Or => merge::OR,
            Merge::Max => merge::MAX,
        }
    }

    /// The name of that number in C.
    pub fn c_name(self) -> &'static str {
        match self {
            Merge::Sum => "SP_SHARED_SUM",
            Merge::Or => "SP_SHARED_OR",
            Merge::Max => "SP_SHARED_MAX",
        }
    }

    /// Two cells as one.
    pub fn of(self, one: u32, other: u32) -> u32 {
        match self {
            Merge::Sum => one.wrapping_add(other),
            Merge::Or => one | other,
            Merge::Max => one.max(other),
        }
    }
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
}

/// Blocks of so many cells.
pub fn blocks(cells: u32) -> u32 {
    cells.div_ceil(CELLS)
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
    /// A number for where its variables lie, how large they are, and how they merge: members with
    /// another one do not understand each other.
    pub layout: u64,
}

/// The groups of a program, in the order of their numbers, from the sizes and settings of its
/// variables.
pub fn groups<'a>(objects: impl Iterator<Item = (u32, &'a SharedSettings)>) -> Vec<Group> {
    let objects: Vec<(u32, &SharedSettings)> = objects.collect();
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

fn layout(group: &Group, objects: &[(u32, &SharedSettings)]) -> u64 {
    let own = objects.iter().filter(|(_, it)| it.group_number == group.number);
    let mut parts: Vec<[u32; 3]> =
        own.map(|(cells, it)| [it.first_block - group.first, *cells, it.merge.number()]).collect();
    parts.sort_unstable();
    let mut hasher = SipHasher24::new();
    for number in parts.into_iter().flatten() {
        hasher.write(&number.to_be_bytes());
    }
    hasher.finish()
}
