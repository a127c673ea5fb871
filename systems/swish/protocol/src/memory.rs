//! What a program's shared variables take before it is loaded: the maps of its object, as the
//! headers in `bpf/swish` declare them, and the bytes of messages. The compiler takes sizes of maps
//! from here; a test compares all of them with the kernel's
//! (`systems/swish/tools/tests/memory.rs`).

mod maps;
mod wire;

pub use wire::{Traffic, Unit};

use crate::objects::{Consistency, LastSettings, SharedSettings};

/// Changed cells, or records, of a group that can wait to be sent, at the least and at the most.
const LISTED: (u32, u32) = (1 << 10, 1 << 16);

/// How many changes of a group can wait to be sent, of a program with so many cells or records.
pub fn listed(all: u32) -> u32 {
    all.checked_next_power_of_two().unwrap_or(LISTED.1).clamp(LISTED.0, LISTED.1)
}

/// A shared variable, as a manifest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// As its maps are called that are its own.
    pub map: String,
    /// Cells, indexes or keys.
    pub size: u32,
    /// Bytes of a key that the program declares; 0: none, its key is an index.
    pub key_bytes: u32,
    /// Bytes of a value that the program declares.
    pub value_bytes: u32,
    /// The rest.
    pub settings: Settings,
}

/// What a manifest says of it, by the kind of its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settings {
    /// Counters and sketches.
    Cells(SharedSettings),
    /// Registers, tables and sets with EWO.
    Last(LastSettings),
    /// Those with SRO; true: the program says of keys when their time is over.
    Strong(bool),
}

impl Variable {
    /// How switches see each other's writes.
    pub fn consistency(&self) -> Consistency {
        match &self.settings {
            Settings::Cells(settings) => settings.consistency,
            Settings::Last(_) => Consistency::Ewo,
            Settings::Strong(_) => Consistency::Sro,
        }
    }

    /// Bytes of its state as the program declares it: what an array of one switch would take.
    pub fn declared_bytes(&self) -> u64 {
        let each = match &self.settings {
            Settings::Cells(_) => CELL_BYTES,
            Settings::Last(_) | Settings::Strong(_) => self.key_bytes + self.value_bytes,
        };
        u64::from(self.size) * u64::from(each)
    }

    /// What it sends.
    pub fn traffic(&self) -> Vec<Traffic> {
        wire::of(self)
    }
}

/// Of a counter or a sketch's cell, as packets see it.
const CELL_BYTES: u32 = 4;

/// What the kernel has for a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A value for each index.
    Array,
    /// The same for each CPU.
    PerCpu,
    /// From keys to values; all entries are there from the beginning.
    Hash,
    /// Values, one after another.
    Queue,
}

/// A map of a loaded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// As user space finds it.
    pub name: String,
    /// See there.
    pub form: Form,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// How many there may be.
    pub entries: u32,
    /// Variables, by their place in the program, and how many of the entries are there for each.
    pub shares: Vec<(usize, u32)>,
}

/// Of a hash map's entry in front of its key, in the kernel.
const HASH_HEAD_BYTES: u64 = 48;
/// Of each of its chains: as many as entries, rounded up to a power of two.
const HASH_CHAIN_BYTES: u64 = 16;

impl Map {
    /// Bytes of so many of its entries, on one CPU.
    fn bytes_of(&self, entries: u32) -> u64 {
        let (key, value) = (u64::from(self.key_bytes), u64::from(self.value_bytes));
        let entries = u64::from(entries);
        match self.form {
            Form::Array | Form::PerCpu => entries * value.next_multiple_of(8),
            Form::Hash => {
                let each = HASH_HEAD_BYTES + key.next_multiple_of(8) + value.next_multiple_of(8);
                let chains = u64::from(self.entries).next_power_of_two() * HASH_CHAIN_BYTES;
                entries * each + chains * entries / u64::from(self.entries.max(1))
            }
            Form::Queue => entries * value,
        }
    }

    /// Bytes of all of it, on one CPU.
    pub fn bytes(&self) -> u64 {
        self.bytes_of(self.entries)
    }
}

/// What a program's variables take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All maps of the system.
    pub maps: Vec<Map>,
    /// By variable: bytes of the maps' entries that are there for it.
    pub of_variables: Vec<u64>,
    /// What is there once, however large the variables are: members, secrets, logs, lists.
    pub fixed: u64,
    /// What each CPU has of its own.
    pub per_cpu: u64,
}

impl Memory {
    /// Of a program with these variables.
    pub fn of(variables: &[Variable]) -> Memory {
        let maps = maps::of(variables);
        let mut of_variables = vec![0; variables.len()];
        let (mut fixed, mut per_cpu) = (0, 0);
        for map in &maps {
            let mut rest = map.bytes();
            for (variable, entries) in &map.shares {
                let bytes = map.bytes_of(*entries);
                if let Some(sum) = of_variables.get_mut(*variable) {
                    *sum += bytes;
                }
                rest = rest.saturating_sub(bytes);
            }
            *(if map.form == Form::PerCpu { &mut per_cpu } else { &mut fixed }) += rest;
        }
        Memory { maps, of_variables, fixed, per_cpu }
    }

    /// All of it, on a machine with so many CPUs.
    pub fn total(&self, cpus: u64) -> u64 {
        self.of_variables.iter().sum::<u64>() + self.fixed + self.per_cpu * cpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{Eventual, Merge};

    fn cells(consistency: Consistency, first: u32, size: u32) -> Variable {
        let eventual = (consistency == Consistency::Ewo).then_some(Eventual {
            first_cell: first,
            lanes: 1,
            slots: 16,
        });
        let settings = SharedSettings {
            consistency,
            merge: Merge::Sum,
            group: "main".into(),
            group_number: 0,
            first_block: first,
            drops_when_full: false,
            period: 0,
            members: crate::layouts::MEMBERS,
            own: None,
            eventual,
        };
        let map = format!("v{first}");
        let settings = Settings::Cells(settings);
        Variable { map, size, key_bytes: 0, value_bytes: 0, settings }
    }

    #[test]
    fn a_window_has_four_copies_and_tags() {
        let memory = Memory::of(&[cells(Consistency::Sdw, 0, 3600)]);
        let factor = memory.of_variables[0] as f64 / (3600.0 * 4.0);
        assert!((4.2..4.5).contains(&factor), "{factor}");
        assert_eq!(memory.total(3) - memory.total(2), memory.per_cpu);
        let blocks = memory.maps.iter().find(|it| it.name == "sp_shared_blocks");
        assert_eq!(blocks.map(|it| (it.entries, &it.shares[..])), Some((10, &[(0, 10)][..])));
    }

    #[test]
    fn a_counter_with_slots_has_one_for_each_life() {
        let variables = [cells(Consistency::Ewo, 0, 100), cells(Consistency::Ewo, 100, 50)];
        let memory = Memory::of(&variables);
        // The value and its place in the list, 16 slots, and room for two bases.
        assert_eq!(memory.of_variables, [100 * (16 + 144), 50 * (16 + 144)]);
        let fixed = Memory::of(&variables[..1]).fixed;
        assert_eq!(memory.fixed, fixed, "the list is as long for both");
    }

    #[test]
    fn lists_have_room_for_all_cells_within_bounds() {
        assert_eq!([0, 1, 1025, 1 << 20, u32::MAX].map(listed), [1024, 1024, 2048, 65536, 65536]);
    }
}
