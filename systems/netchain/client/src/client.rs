//! The blocking client: one request at a time.

use crate::{Config, Failed, Keys, NotBegun, Outcome, Pipeline, Request, Wrong};
use netchain_protocol::Key;
use std::path::Path;

/// A client for one thread: one request at a time. A request is one sendto(2) and one recv(2).
///
/// In a child of the process that made it, it becomes a client of its own.
pub struct Client {
    pipeline: Pipeline,
}

impl Client {
    /// With a configuration file.
    ///
    /// # Errors
    /// The file, or no socket.
    pub fn open(file: &Path) -> Result<Client, Failed> {
        Ok(Client { pipeline: Pipeline::open(file)? })
    }

    /// With a configuration.
    ///
    /// # Errors
    /// The client's key, or no socket.
    pub fn new(config: Config) -> Result<Client, Failed> {
        Ok(Client { pipeline: Pipeline::new(config)? })
    }

    /// Replies that no switch made for this client: they changed nothing.
    pub fn forged(&self) -> u64 {
        self.pipeline.forged()
    }

    /// Does a request.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn ask(&mut self, request: Request) -> Result<Outcome, Failed> {
        if self.pipeline.is_forked() {
            self.pipeline = self.pipeline.renew()?;
        }
        let ticket = match self.pipeline.submit(request) {
            Ok(ticket) => ticket,
            Err(Failed::NotBegun(NotBegun::TooLong(bytes))) => return Ok(Outcome::TooLong(bytes)),
            Err(error) => return Err(error),
        };
        loop {
            match self.pipeline.next(None) {
                Ok(Some((answered, answer))) if answered == ticket => return Ok(answer?),
                Ok(Some(_)) => {} // (of a pipeline that this client was made of)
                Ok(None) => return Ok(Outcome::Unknown), // (the engine answers each request)
                Err(error) => {
                    self.pipeline.cancel(ticket);
                    return Err(error);
                }
            }
        }
    }

    /// The key's value.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn get(&mut self, key: &Key) -> Result<Outcome, Failed> {
        self.ask(Request::get(key))
    }

    /// Writes a value.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn put(&mut self, key: &Key, value: &[u8]) -> Result<Outcome, Failed> {
        self.ask(Request::put(key, value))
    }

    /// Writes a value if the key has none.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn insert(&mut self, key: &Key, value: &[u8]) -> Result<Outcome, Failed> {
        self.ask(Request::insert(key, value))
    }

    /// Writes a value if the key's version is this one. (0: it was never written.)
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn compare_and_set(
        &mut self,
        key: &Key,
        version: u64,
        value: &[u8],
    ) -> Result<Outcome, Failed> {
        self.ask(Request::compare_and_set(key, version, value))
    }

    /// Writes a value if the first eight bytes of the present one are these.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn compare_owner(
        &mut self,
        key: &Key,
        owner: [u8; 8],
        value: &[u8],
    ) -> Result<Outcome, Failed> {
        self.ask(Request::compare_owner(key, owner, value))
    }

    /// Adds to the number that the value's first eight bytes are, modulo 2^64.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn add(&mut self, key: &Key, delta: u64) -> Result<Outcome, Failed> {
        self.ask(Request::add(key, delta))
    }

    /// The keys that begin with these bytes, page by page. It is no snapshot: see the module
    /// [`crate::Listing`] is from.
    ///
    /// # Errors
    /// The prefix has more than 16 bytes.
    pub fn list(&mut self, prefix: &[u8]) -> Result<Keys<'_>, Wrong> {
        let listing = self.pipeline.listing(prefix)?;
        Ok(Keys::new(self, listing))
    }

    /// Removes the value, if the key's version is this one; 0: in any case.
    ///
    /// # Errors
    /// The switches refuse this client, or the socket fails.
    pub fn delete(&mut self, key: &Key, version: u64) -> Result<Outcome, Failed> {
        self.ask(Request::delete(key, version))
    }
}

/// (A pipeline with requests under way: their answers are lost.)
impl From<Pipeline> for Client {
    fn from(pipeline: Pipeline) -> Client {
        Client { pipeline }
    }
}
