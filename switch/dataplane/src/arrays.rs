//! Registers and indirect counters.

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::layout;
use crate::layouts::core::CounterValue;
use crate::sys::{self, Update};
use crate::value::all_ones;
use c_layout::CStruct;
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Counter, Register};

impl Dataplane {
    /// A register array by its control-plane name (or its last part).
    pub fn register(&self, name: &str) -> Result<&Register> {
        let names = self.manifest.registers.iter().map(|register| register.name.as_str());
        Ok(&self.manifest.registers[crate::spec::find("register", name, names)?])
    }

    /// A counter array by its control-plane name (or its last part).
    pub fn counter(&self, name: &str) -> Result<&Counter> {
        let names = self.manifest.counters.iter().map(|counter| counter.name.as_str());
        Ok(&self.manifest.counters[crate::spec::find("counter", name, names)?])
    }

    /// Reads a register's element: its bits as an unsigned number.
    pub fn read_register(&self, register: &Register, index: u32) -> Result<u128> {
        let map = self.required_map(&register.map, &format!("register {}", register.name))?;
        let raw = map
            .lookup(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::libbpf(format!("register {}", register.name), error))?
            .ok_or_else(|| past_end(&register.name, index, register.size))?;
        Ok(layout::get(&raw, 0, register.value_bytes) & all_ones(register.width))
    }

    /// Writes a register's element.
    pub fn write_register(&self, register: &Register, index: u32, value: u128) -> Result<()> {
        if index >= register.size {
            return Err(past_end(&register.name, index, register.size));
        }
        let map = self.required_map(&register.map, &format!("register {}", register.name))?;
        let mut raw = vec![0u8; map.value_size() as usize];
        layout::put(&mut raw, 0, register.value_bytes, value & all_ones(register.width));
        if register.signed && register.width < 128 && value >> (register.width.max(1) - 1) & 1 == 1
        {
            // int<W> lies sign-extended in its scalar.
            layout::put(&mut raw, 0, register.value_bytes, value | !all_ones(register.width));
        }
        sys::map_update(map, &index.to_ne_bytes(), &raw, Update::Any)
            .map_err(|error| Error::kernel(format!("register {}", register.name), error))
    }

    /// Reads a counter's element.
    pub fn read_counter(&self, counter: &Counter, index: u32) -> Result<CounterValue> {
        let map = self.required_map(&counter.map, &format!("counter {}", counter.name))?;
        let per_cpu = map
            .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::libbpf(format!("counter {}", counter.name), error))?
            .ok_or_else(|| past_end(&counter.name, index, counter.size))?;
        Ok(per_cpu.iter().fold(CounterValue::default(), |sum, raw| {
            let value = CounterValue::from_bytes(raw);
            CounterValue {
                packets: sum.packets.wrapping_add(value.packets),
                bytes: sum.bytes.wrapping_add(value.bytes),
            }
        }))
    }
}

fn past_end(name: &str, index: u32, size: u32) -> Error {
    Error::Index { name: name.to_owned(), index, size }
}
