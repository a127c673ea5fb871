//! The data plane: a compiled object in the kernel, driven by its manifest.
//!
//! It owns: loading, pins, XDP links, tables, registers, counters, ports, and runs of single
//! frames. It must not know: configuration files, sockets, P4 source, or when to do any of it.
//!
//! [`Object::open`] → [`Object::set`] → [`Object::load`] gives a [`Dataplane`]; so does
//! [`Dataplane::open_pinned`] for one that runs already. The data path never stops: every change
//! here is a sequence of atomic steps, between which the tables mean what they meant before or
//! after.

mod arrays;
mod commit;
mod dataplane;
mod emptied;
mod entries;
mod error;
mod exchange;
mod features;
mod gateway;
mod grace;
mod layout;
pub mod layouts;
mod link;
mod live;
mod local_filter;
mod mapped;
mod object;
mod own;
mod run;
mod secrets;
pub mod slow_path;
mod spec;
mod sys;
mod table;
mod ternary;
pub mod value;

pub use commit::{COMMIT_COUNTERS, WAITING_BYTES};
pub use dataplane::{Dataplane, broadcast_of};
pub use entries::for_each_entry;
pub use error::{Error, Result, verifier_source_lines};
pub use exchange::{Filled, TableVersion};
pub use features::{XdpFeatures, xdp_features};
pub use gateway::{
    GATEWAY_DROPS, GATEWAY_EVENTS, GatewayPort, GatewaySettings, KERNEL_PORT, ReversePath,
    gateway_counters,
};
pub use grace::wait_for_packets;
pub use layouts::core::{CounterValue, PortStats};
pub use link::{AttachMode, Link};
pub use live::LiveReady;
pub use mapped::MappedWords;
pub use object::{Object, Settings};
pub use run::{Outcome, Verdict, copies_by_loop};
pub use secrets::SecretSet;
pub use spec::{ActionSpec, EntrySpec, KeySpec, ListedEntry};
pub use sys::{among_others, before_others};
pub use table::{ActionCall, Entry, Listed, TableRef, Write};
pub use value::Match;

/// The errno that creating a small map fails with, as an [`Error`]: tells at once whether this
/// process may use BPF.
pub fn check_permitted() -> Result<()> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: std::mem::size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    libbpf_rs::MapHandle::create(libbpf_rs::MapType::Array, Some("sp_probe"), 4, 4, 1, &options)
        .map(drop)
        .map_err(|error| Error::libbpf("BPF", error))
}
