//! The fast path's program on this host's interfaces.

use super::{RunError, random_u64};
use crate::config::Config;
use crate::core::Node;
use daemon::metrics::{Kind, Text};
use fast_chain::{Count, Link, Mode, Program};
use nix::net::if_::if_nametoindex;

/// The program, loaded and attached.
pub(super) struct FastPath {
    /// Dropped first: nothing comes to the program any more.
    _links: Vec<Link>,
    program: Program,
}

impl FastPath {
    /// Loads the program, shares the server's records with it, and attaches it to the interfaces.
    /// `None`: the configuration has no fast path. To be called before the server has any input.
    pub(super) fn start(config: &Config, server: &mut Node) -> Result<Option<FastPath>, RunError> {
        let Some(settings) = &config.fast_path else { return Ok(None) };
        let shape = config.settings.fast_path(settings.records, config.listen, random_u64()?);
        for object in shape.objects.iter().filter(|object| !object.fits()) {
            tracing::warn!(
                name = config.name,
                object = object.id,
                key_bytes = object.key_bytes,
                value_bytes = object.value_bytes,
                "too large for the fast path: user space takes its updates"
            );
        }
        let program = Program::load(shape)?;
        server.use_fast_path(program.memory().clone());
        let mut links = Vec::new();
        for interface in &settings.interfaces {
            let ifindex = if_nametoindex(interface.as_str()).map_err(|error| {
                RunError::Interface { name: interface.clone(), source: error.into() }
            })?;
            links.push(program.attach(ifindex, Mode::Best)?);
            tracing::info!(name = config.name, interface, "fast path attached");
        }
        Ok(Some(FastPath { program, _links: links }))
    }

    /// What the program counted, in Prometheus' text format.
    pub(super) fn render(&self, text: &mut Text) {
        let mut family = text.family(
            "stateplane_store_fast_path_total",
            Kind::Counter,
            "What the chain's program did: batches and records that it took, batches that it left \
             to user space, by reason.",
        );
        for (count, value) in self.program.counts().unwrap_or_default() {
            let what: &str = Count::name(count);
            family.sample(&[("what", &what)], value);
        }
    }
}
