//! What a system brings to the shell: what is decided ([`Decision`]), and by which rules
//! ([`Rules`]). The shell gives them a socket, a clock and a database, and knows neither.

use super::Kept;
use std::fmt::Debug;
use std::net::SocketAddrV4;
use wire::{ControlType, Kind, ToolType};

/// All that a controller has decided, as it is persistent. Each decision is a whole one.
pub trait Decision: Clone + Default + PartialEq + Debug + Send + 'static {
    /// Its name in a database: no two systems have the same.
    const NAME: &'static str;
    /// What an operator does whose database is lost: a sentence without its full stop.
    const LOST: &'static str;

    /// It grows by one with each decision. 0: nothing is decided yet.
    fn version(&self) -> u64;

    /// As databases keep it.
    fn to_bytes(&self) -> Vec<u8>;

    /// Reads what `to_bytes` wrote. `None`: something else did.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Input<'a, D> {
    /// A genuine datagram came.
    Datagram {
        /// Its sender.
        from: SocketAddrV4,
        /// All of it.
        bytes: &'a [u8],
    },
    /// [`Rules::next_deadline`] has passed.
    Timer,
    /// The decision that was given out as `persist` is persistent.
    Persisted,
    /// The decision was not made persistent; it is as if it had not been made. What the database
    /// has, if that could be read.
    Refused(Option<D>),
    /// The database has another decision than this controller: another one decided.
    Loaded(D),
    /// Whether this controller is the one that decides.
    Leading(bool),
}

/// What rules want done.
#[derive(Debug)]
pub struct Outputs<D> {
    /// Datagrams, with no tag yet. They are sent before `persist` is written.
    pub datagrams: Vec<(SocketAddrV4, Vec<u8>)>,
    /// To be made persistent, then answered by `Persisted` or `Refused`.
    pub persist: Option<D>,
}

impl<D> Default for Outputs<D> {
    fn default() -> Self {
        Outputs { datagrams: vec![], persist: None }
    }
}

/// A system's rules: `(now, input) -> outputs`. Times are of a clock that never goes back, in ns.
pub trait Rules {
    /// What they decide.
    type Decision: Decision;

    /// Takes one input, and logs what an operator should know of.
    fn handle(
        &mut self,
        now_ns: u64,
        input: Input<'_, Self::Decision>,
        out: &mut Outputs<Self::Decision>,
    );

    /// When `Input::Timer` is due.
    fn next_deadline(&self) -> u64;

    /// Of the persistent decision; 0: there is none yet.
    fn version(&self) -> u64;

    /// Whether this controller decides.
    fn is_leading(&self) -> bool;

    /// Why this process must end: its configuration is of another cluster.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Looks for what lasts and should not, and logs it now and then. Called often.
    fn look(&mut self, _now_ns: u64, _kept: &Kept) {}

    /// How the cluster is: JSON for tools, as long as a message has room for.
    fn status(&self, now_ns: u64, kept: &Kept) -> Vec<u8>;

    /// Metrics in Prometheus' text format. `bad_tag`: datagrams that were not genuine.
    fn metrics(&self, now_ns: u64, kept: &Kept, bad_tag: u64) -> String;

    /// Answers a tool's question other than for the status, with JSON. `None`: there is no such
    /// question. What it changes is done at the next `Input::Timer`.
    fn question(&mut self, _now_ns: u64, _question: ToolType, _json: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Whether the sender of such a message waits for an answer: one with other secrets is told.
    fn waits(kind: Kind) -> bool {
        matches!(kind, Kind::Control(ControlType::Report) | Kind::Tool(ToolType::StatusRequest))
    }
}
