//! A loaded object: its programs and maps, by name; pins; ports.

use crate::error::{Error, Result};
use crate::exchange::Exchanged;
use crate::layout;
use crate::layouts::core::PortStats;
use crate::local_filter::LocalFilter;
use crate::sys::{self, Update};
use crate::table::TableRef;
use c_layout::CStruct;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use manifest::Manifest;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

/// Programs and maps in the kernel. They live as long as this, a pin or a link holds them.
pub struct Dataplane {
    pub(crate) manifest: Manifest,
    pub(crate) programs: BTreeMap<String, OwnedFd>,
    pub(crate) maps: BTreeMap<String, MapHandle>,
    /// How often what [`crate::own`] tells the program has changed; held while ports are written.
    pub(crate) own_changes: Mutex<u32>,
    pub(crate) exchanged: Exchanged,
    /// On which CPU programs believe to run, in test mode.
    pub(crate) test_cpu: AtomicU32,
}

impl Dataplane {
    /// What the object is.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Only the manifest, nothing in the kernel: resolves names and values, for checking a
    /// configuration.
    pub fn description_only(manifest: Manifest) -> Dataplane {
        Dataplane {
            manifest,
            programs: BTreeMap::new(),
            maps: BTreeMap::new(),
            own_changes: Mutex::default(),
            exchanged: Exchanged::default(),
            test_cpu: AtomicU32::new(0),
        }
    }

    /// The program's descriptor.
    pub fn program(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.programs.get(name).map(AsFd::as_fd)
    }

    /// Does the object have this map?
    pub fn has_map(&self, name: &str) -> bool {
        self.maps.contains_key(name)
    }

    /// A map of the object, for what this crate does not know: systems' state.
    pub fn map(&self, name: &str) -> Option<&MapHandle> {
        self.maps.get(name)
    }

    /// All maps, by name.
    pub fn maps(&self) -> impl Iterator<Item = (&str, &MapHandle)> {
        self.maps.iter().map(|(name, map)| (name.as_str(), map))
    }

    pub(crate) fn required_map(&self, name: &str, owner: &str) -> Result<&MapHandle> {
        self.maps
            .get(name)
            .ok_or_else(|| Error::NoMap { map: name.to_owned(), owner: owner.to_owned() })
    }

    /// A table by its control-plane name; a last part (`routes` for `ingress.routes`) will do if
    /// only one table has it.
    pub fn table(&self, name: &str) -> Result<TableRef<'_>> {
        let index = crate::spec::find(
            "table",
            name,
            self.manifest.tables.iter().map(|table| table.name.as_str()),
        )?;
        Ok(TableRef { dataplane: self, table: &self.manifest.tables[index] })
    }

    /// Writes the default actions and the entries that the source gives the tables.
    pub(crate) fn initialise(&self) -> Result<()> {
        for table in &self.manifest.tables {
            TableRef { dataplane: self, table }.initialise()?;
        }
        Ok(())
    }

    /// Pins every program and every map below a directory on a bpffs, as `programs/NAME` and
    /// `maps/NAME`; maps with entries that are exchanged as one, as `entries/NAME/VERSION`.
    pub fn pin(&self, directory: &Path) -> Result<()> {
        let failed = |path: &Path, error| Error::kernel(format!("pin {}", path.display()), error);
        for (kind, names) in [("programs", true), ("maps", false)] {
            let directory = directory.join(kind);
            std::fs::create_dir_all(&directory).map_err(|error| failed(&directory, error))?;
            let objects: Vec<(&String, BorrowedFd<'_>)> = match names {
                true => self.programs.iter().map(|(name, object)| (name, object.as_fd())).collect(),
                false => self.maps.iter().map(|(name, object)| (name, object.as_fd())).collect(),
            };
            // The programs hold the object's data sections (`.rodata`); a bpffs takes no names with
            // dots.
            for (name, object) in objects.into_iter().filter(|(name, _)| !name.contains('.')) {
                let path = directory.join(name);
                sys::pin(object, &path).map_err(|error| failed(&path, error))?;
            }
        }
        self.pin_exchanged(directory)
    }

    /// Opens what [`Dataplane::pin`] pinned; `manifest` must be the one of the object that was
    /// pinned.
    pub fn open_pinned(directory: &Path, manifest: Manifest) -> Result<Dataplane> {
        let failed =
            |path: &Path, error| Error::kernel(format!("open pin {}", path.display()), error);
        let mut dataplane = Dataplane::description_only(manifest);
        for kind in ["programs", "maps"] {
            let directory = directory.join(kind);
            for entry in std::fs::read_dir(&directory).map_err(|error| failed(&directory, error))? {
                let path = entry.map_err(|error| failed(&directory, error))?.path();
                let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned())
                else {
                    continue;
                };
                if kind == "programs" {
                    let program = sys::open_pin(&path).map_err(|error| failed(&path, error))?;
                    dataplane.programs.insert(name, program);
                } else {
                    let map = MapHandle::from_pinned_path(&path).map_err(|error| {
                        Error::libbpf(format!("open pin {}", path.display()), error)
                    })?;
                    dataplane.maps.insert(name, map);
                }
            }
        }
        if !dataplane.programs.contains_key("sp_main") {
            let path = directory.join("programs/sp_main");
            return Err(failed(&path, std::io::Error::from(std::io::ErrorKind::NotFound)));
        }
        dataplane.open_exchanged(directory)?;
        Ok(dataplane)
    }

    /// Makes an interface a P4 port, in both directions.
    pub fn set_port(&self, port: u32, ifindex: u32) -> Result<()> {
        let limit = self.manifest.max_ports;
        if port >= limit {
            return Err(Error::Index { name: "ports".to_owned(), index: port, size: limit });
        }
        let mut target = ifindex.to_ne_bytes().to_vec();
        // struct bpf_devmap_val: no second program.
        target.extend_from_slice(&0u32.to_ne_bytes());
        self.write_array("sp_ports", port, &target)?;
        self.write_array("sp_port_by_ifindex", ifindex, &(port + 1).to_ne_bytes())
    }

    /// Takes a port away.
    pub fn clear_port(&self, port: u32, ifindex: u32) -> Result<()> {
        self.write_array("sp_port_by_ifindex", ifindex, &0u32.to_ne_bytes())?;
        let map = self.required_map("sp_ports", "ports")?;
        match map.delete(&port.to_ne_bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::libbpf(format!("port {port}"), error))
            }
            _ => Ok(()),
        }
    }

    /// What a port has seen, summed over CPUs.
    pub fn port_stats(&self, port: u32) -> Result<PortStats> {
        let mut sum = PortStats::default();
        for bytes in self.read_per_cpu("sp_port_stats", port)? {
            let value = PortStats::from_bytes(&bytes);
            sum.rx_packets += value.rx_packets;
            sum.rx_bytes += value.rx_bytes;
            sum.tx_packets += value.tx_packets;
            sum.tx_bytes += value.tx_bytes;
            sum.dropped += value.dropped;
            sum.to_host += value.to_host;
        }
        Ok(sum)
    }

    /// Says whether messages of systems may come in on a port. Programs that take none are left
    /// alone.
    pub fn set_fabric_port(&self, port: u32, fabric: bool) -> Result<()> {
        match self.has_map("sp_fabric_port") {
            true => self.write_array("sp_fabric_port", port, &[u8::from(fabric)]),
            false => Ok(()),
        }
    }

    /// How many things wait for a generated packet; 0: the program has no packet generator.
    pub fn generator_work(&self) -> Result<u64> {
        if !self.has_map("sp_generator_work") {
            return Ok(0);
        }
        let work = layout::u64_at(&self.read_array("sp_generator_work", 0)?, 0);
        // Packets take and add while this reads: a moment below zero is possible.
        Ok(if work > i64::MAX as u64 { 0 } else { work })
    }

    /// Writes one element of an array map.
    pub fn write_array(&self, map: &str, index: u32, value: &[u8]) -> Result<()> {
        let handle = self.required_map(map, "runtime")?;
        sys::map_update(handle, &index.to_ne_bytes(), value, Update::Any)
            .map_err(|error| Error::kernel(format!("write {map}[{index}]"), error))
    }

    /// Reads one element of an array map.
    pub fn read_array(&self, map: &str, index: u32) -> Result<Vec<u8>> {
        let handle = self.required_map(map, "runtime")?;
        handle
            .lookup(&index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::libbpf(format!("read {map}[{index}]"), error))?
            .ok_or_else(|| Error::Index { name: map.to_owned(), index, size: handle.max_entries() })
    }

    /// Reads one element of a per-CPU array map, once for each CPU. Empty: the map ends before it.
    pub fn read_per_cpu(&self, map: &str, index: u32) -> Result<Vec<Vec<u8>>> {
        let per_cpu = self.required_map(map, "runtime")?;
        let per_cpu = per_cpu.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
        let per_cpu =
            per_cpu.map_err(|error| Error::libbpf(format!("read {map}[{index}]"), error))?;
        Ok(per_cpu.unwrap_or_default())
    }

    /// A counter of the runtime: an element of a per-CPU array of numbers, summed over CPUs.
    pub fn read_count(&self, map: &str, index: u32) -> Result<u64> {
        let per_cpu = self.read_per_cpu(map, index)?;
        Ok(per_cpu.iter().map(|bytes| layout::u64_at(bytes, 0)).sum())
    }

    /// Tells the program which addresses are the host's own; returns how many were added and
    /// removed.
    pub fn set_local_addresses(
        &self,
        ipv4: &[Ipv4Addr],
        ipv6: &[Ipv6Addr],
    ) -> Result<(usize, usize)> {
        let four: Vec<Vec<u8>> = ipv4.iter().map(|address| address.octets().to_vec()).collect();
        let six: Vec<Vec<u8>> = ipv6.iter().map(|address| address.octets().to_vec()).collect();
        let filter = LocalFilter::new(ipv4, ipv6);
        let mut both = filter.clone();
        both.add_present(self)?;
        both.write(self)?;
        let first = self.set_members("sp_local_ipv4", &four)?;
        let second = self.set_members("sp_local_ipv6", &six)?;
        filter.write(self)?;
        Ok((first.0 + second.0, first.1 + second.1))
    }

    /// Makes a hash map's keys exactly these.
    fn set_members(&self, name: &str, wanted: &[Vec<u8>]) -> Result<(usize, usize)> {
        let Some(map) = self.maps.get(name) else { return Ok((0, 0)) };
        let present: Vec<Vec<u8>> = map.keys().collect();
        let value = vec![1u8; map.value_size() as usize];
        let (mut added, mut removed) = (0, 0);
        for key in wanted.iter().filter(|key| !present.contains(key)) {
            sys::map_update(map, key, &value, Update::Any)
                .map_err(|error| Error::kernel(format!("write {name}"), error))?;
            added += 1;
        }
        for key in present.iter().filter(|key| !wanted.contains(key)) {
            map.delete(key).map_err(|error| Error::libbpf(format!("delete from {name}"), error))?;
            removed += 1;
        }
        Ok((added, removed))
    }
}

/// The broadcast address of an address's network, as Linux makes a route to it; none: the network
/// is too small (RFC 3021), or not on a link.
pub fn broadcast_of(address: Ipv4Addr, prefix_length: u32) -> Option<Ipv4Addr> {
    let hosts = u32::MAX.checked_shr(prefix_length).unwrap_or(0);
    (prefix_length < 31 && !address.is_loopback())
        .then(|| Ipv4Addr::from(u32::from(address) | hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_a_broadcast_address_if_it_has_room() {
        let of = |address: [u8; 4], length| {
            broadcast_of(Ipv4Addr::from(address), length).map(|it| it.octets())
        };
        assert_eq!(of([10, 0, 0, 1], 24), Some([10, 0, 0, 255]));
        assert_eq!(of([10, 0, 0, 1], 30), Some([10, 0, 0, 3]));
        assert_eq!(of([10, 0, 0, 1], 0), Some([255; 4]));
        assert_eq!(
            [of([10, 0, 0, 1], 31), of([10, 0, 0, 1], 32), of([127, 0, 0, 1], 8)],
            [None; 3]
        );
    }
}
