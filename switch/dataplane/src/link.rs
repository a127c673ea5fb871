//! XDP links: a program on an interface. A pinned link outlives the process that made it.

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::sys;
use libbpf_rs::libbpf_sys::{XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Where in the receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachMode {
    /// In the driver.
    Native,
    /// After the kernel made its packet buffer: works on every interface, slower.
    Generic,
}

/// An XDP link. Dropping it detaches the program, unless the link is pinned.
pub struct Link(OwnedFd);

impl Dataplane {
    /// Attaches a program to an interface.
    pub fn attach(&self, program: &str, ifindex: u32, mode: AttachMode) -> Result<Link> {
        let action = format!("attach {program} to interface {ifindex}");
        let Some(descriptor) = self.program(program) else {
            return Err(Error::Unknown {
                kind: "program",
                name: program.to_owned(),
                known: self.programs.keys().cloned().collect(),
            });
        };
        let flags = match mode {
            AttachMode::Native => XDP_FLAGS_DRV_MODE,
            AttachMode::Generic => XDP_FLAGS_SKB_MODE,
        };
        sys::link_xdp(descriptor, ifindex, flags)
            .map(Link)
            .map_err(|error| Error::kernel(action, error))
    }

    /// Puts this object's program under a link that carries another, atomically: no packet sees
    /// none.
    pub fn replace(&self, program: &str, link: &Link) -> Result<()> {
        let action = format!("replace the program by {program}");
        let Some(descriptor) = self.program(program) else {
            return Err(Error::NoMap { map: program.to_owned(), owner: "programs".to_owned() });
        };
        sys::link_update(link.0.as_fd(), descriptor).map_err(|error| Error::kernel(action, error))
    }

    /// Whether a link carries this object's program, and not one of another object.
    pub fn is_on(&self, program: &str, link: &Link) -> Result<bool> {
        let Some(descriptor) = self.program(program) else { return Ok(false) };
        let (_, carried) =
            sys::link_info(link.0.as_fd()).map_err(|error| Error::kernel("link", error))?;
        Ok(carried == sys::program_id(descriptor).map_err(|error| Error::kernel(program, error))?)
    }
}

impl Link {
    /// Opens a pinned link.
    pub fn open(path: &Path) -> Result<Link> {
        sys::open_pin(path)
            .map(Link)
            .map_err(|error| Error::kernel(format!("open link {}", path.display()), error))
    }

    /// Pins the link on a bpffs.
    pub fn pin(&self, path: &Path) -> Result<()> {
        sys::pin(self.0.as_fd(), path)
            .map_err(|error| Error::kernel(format!("pin link {}", path.display()), error))
    }

    /// The interface it is on; none if the interface is gone.
    pub fn ifindex(&self) -> Result<Option<u32>> {
        let (ifindex, _) =
            sys::link_info(self.0.as_fd()).map_err(|error| Error::kernel("link", error))?;
        Ok((ifindex != 0).then_some(ifindex))
    }

    /// Takes the program off the interface, pinned or not.
    pub fn detach(&self) -> Result<()> {
        match sys::link_detach(self.0.as_fd()) {
            // Its interface is gone, and the link with it.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other.map_err(|error| Error::kernel("detach link", error)),
        }
    }
}
