//! Destinations that the network has and no host (`@own_destination`): virtual addresses, a NAT's
//! pool, a tunnel's end. Routes may know nothing of them, so the program of a gateway is told
//! (`sp_gateway_own_ipv4`): what has one as its source is forged.

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::layouts::net::PrefixIpv4;
use crate::sys::{self, Update};
use crate::table::{Entry, TableRef, Write};
use crate::value::Match;
use c_layout::Member;
use libbpf_rs::{MapCore, MapHandle};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const MAP: &str = "sp_gateway_own_ipv4";

/// The bytes of a [`PrefixIpv4`].
type Prefix = [u8; PrefixIpv4::BYTES];

impl TableRef<'_> {
    fn is_own(&self, action: usize) -> bool {
        let listed = self.table.actions.get(action);
        let action = listed.and_then(|it| self.dataplane.manifest.actions.get(it.action as usize));
        action.is_some_and(|action| action.own_destination)
    }

    fn has_own(&self) -> bool {
        let is_address = self.table.keys.first().is_some_and(|key| key.width == 32);
        is_address && (0..self.table.actions.len()).any(|action| self.is_own(action))
    }

    /// What an entry says: own, or taken out of what is.
    fn own_prefix(&self, entry: &Entry) -> Option<(Prefix, bool)> {
        let is_own = self.is_own(entry.action.action);
        let (value, length) = match *entry.matches.first()? {
            Match::Exact(value) if is_own => (value, 32),
            Match::Prefix { value, length } => (value, length),
            _ => return None,
        };
        let mut prefix = [0; PrefixIpv4::BYTES];
        let address = Ipv4Addr::from(u32::try_from(value).ok()?);
        PrefixIpv4 { bits: length, address }.write(&mut prefix);
        Some((prefix, is_own))
    }

    /// Tells the program of an entry that was written.
    pub(crate) fn tell_own(&self, entry: &Entry, how: Write) -> Result<()> {
        if !self.dataplane.has_map(MAP) || !self.has_own() {
            return Ok(());
        }
        if how != Write::Add {
            return self.tell_all_own();
        }
        let Some((prefix, is_own)) = self.own_prefix(entry) else { return Ok(()) };
        write(self.dataplane.required_map(MAP, "gateway")?, &prefix, is_own)?;
        self.dataplane.forget_sources()
    }

    /// Tells the program of all entries of all tables, after one may have gone from this one.
    pub(crate) fn tell_all_own(&self) -> Result<()> {
        if !self.dataplane.has_map(MAP) || !self.has_own() {
            return Ok(());
        }
        self.dataplane.tell_own()
    }
}

fn write(map: &MapHandle, prefix: &Prefix, is_own: bool) -> Result<()> {
    sys::map_update(map, prefix, &u32::from(is_own).to_ne_bytes(), Update::Any)
        .map_err(|error| Error::kernel(format!("write {MAP}"), error))
}

impl Dataplane {
    fn tell_own(&self) -> Result<()> {
        let map = self.required_map(MAP, "gateway")?;
        let mut wanted: BTreeMap<Prefix, bool> = BTreeMap::new();
        for table in &self.manifest.tables {
            let table = TableRef { dataplane: self, table };
            if !table.has_own() {
                continue;
            }
            for listed in table.list()? {
                if let Some((prefix, is_own)) = table.own_prefix(&listed.entry) {
                    *wanted.entry(prefix).or_default() |= is_own;
                }
            }
        }
        for (prefix, is_own) in &wanted {
            write(map, prefix, *is_own)?;
        }
        let present: Vec<Vec<u8>> = map.keys().collect();
        for key in present.iter().filter(|key| !wanted.keys().any(|prefix| prefix[..] == key[..])) {
            map.delete(key).map_err(|error| Error::libbpf(format!("delete from {MAP}"), error))?;
        }
        self.forget_sources()
    }
}
