//! Where a system plugs in: setup lines of its own, and what stands behind the switch of a case.

use crate::stf::{Word, Wrong, words, wrong};
use dataplane::{Dataplane, copies_by_loop};
use manifest::Manifest;
use std::str::FromStr;

/// A setup line of a system. It is checked when the file is read, and carried out when the case
/// begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// From 1.
    pub number: u32,
    /// One of [`System::keywords`].
    pub keyword: &'static str,
    /// All of the line.
    text: String,
    /// Where what follows the colon begins, in bytes.
    from: usize,
}

/// What a line's setup says, or the line's number and what is wrong.
pub type Outcome<T> = Result<T, Fault>;

/// Why a case cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The STF line; 0: none is at fault.
    pub line: u32,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl Fault {
    /// No line in particular is at fault.
    pub fn of_case(reason: impl ToString) -> Fault {
        Fault { line: 0, reason: reason.to_string() }
    }
}

impl Line {
    pub(crate) fn new(number: u32, keyword: &'static str, text: &str, from: usize) -> Line {
        Line { number, keyword, text: text.to_owned(), from }
    }

    /// Reads what follows the colon, to its end.
    ///
    /// # Errors
    /// Column and reason.
    pub fn read<T>(
        &self,
        read: impl FnOnce(&mut Words<'_, '_>) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        let rest = self.text.get(self.from..).unwrap_or_default();
        let found: Vec<Word<'_>> =
            words(rest).into_iter().map(|(at, word)| (at + self.from, word)).collect();
        let mut left = Words { words: &found, end: self.text.trim_end().len() };
        let value = read(&mut left)?;
        left.finish().map(|()| value)
    }

    /// That the line stands once in a file. `before`: the lines of systems before it.
    ///
    /// # Errors
    /// `reason` and the line of the first one.
    pub fn once(&self, before: &[Line], reason: &str) -> Result<(), Wrong> {
        match before.iter().find(|line| line.keyword == self.keyword) {
            Some(first) => {
                wrong(self.from, format!("{reason}, and line {} gives it", first.number))
            }
            None => Ok(()),
        }
    }

    /// A fault of this line.
    pub fn fault(&self, reason: impl ToString) -> Fault {
        Fault { line: self.number, reason: reason.to_string() }
    }
}

/// A line's words, one after another.
pub struct Words<'a, 'b> {
    pub(crate) words: &'b [Word<'a>],
    pub(crate) end: usize,
}

impl<'a> Words<'a, '_> {
    /// The next word and its column.
    ///
    /// # Errors
    /// There is none: `what` belongs there.
    pub fn next(&mut self, what: &str) -> Result<Word<'a>, Wrong> {
        match self.words.split_first() {
            Some((word, rest)) => {
                self.words = rest;
                Ok(*word)
            }
            None => wrong(self.end, format!("{what} belongs here")),
        }
    }

    /// The next word, if there is one; it stays.
    pub fn peek(&self) -> Option<Word<'a>> {
        self.words.first().copied()
    }

    /// The next word as a value, and its column.
    ///
    /// # Errors
    /// There is none, or it is not `what`.
    pub fn parsed<T: FromStr>(&mut self, what: &str) -> Result<(usize, T), Wrong> {
        let (at, text) = self.next(what)?;
        match text.parse() {
            Ok(value) => Ok((at, value)),
            Err(_) => wrong(at, format!("{text:?} is not {what}")),
        }
    }

    /// This word.
    ///
    /// # Errors
    /// It is another one.
    pub fn literal(&mut self, word: &str) -> Result<(), Wrong> {
        match self.next(&format!("`{word}`"))? {
            (_, found) if found == word => Ok(()),
            (at, found) => wrong(at, format!("`{word}` belongs here, not {found:?}")),
        }
    }

    pub(crate) fn finish(&self) -> Result<(), Wrong> {
        match self.words.first() {
            Some((at, _)) => wrong(*at, "nothing may follow here"),
            None => Ok(()),
        }
    }
}

/// A system, before a case runs. Each method is given the setup lines of all systems, and looks at
/// its own.
pub trait System: Sync {
    /// The words that, behind `#` and before `:`, make a comment a setup line of this system. No
    /// two systems have the same.
    fn keywords(&self) -> &'static [&'static str];

    /// Checks one of its lines. `before`: the lines of systems before it.
    ///
    /// # Errors
    /// Column and reason.
    fn check(&self, line: &Line, before: &[Line]) -> Result<(), Wrong>;

    /// Begins a case. `None`: the system has nothing to do in it.
    ///
    /// # Errors
    /// The lines do not fit the program.
    fn begin(&self, lines: &[Line], manifest: &Manifest) -> Outcome<Option<Box<dyn Backing>>>;

    /// Must packets of the program wait in the switch (`docs/output-commit.md`)?
    fn must_wait(&self, _manifest: &Manifest) -> bool {
        false
    }

    /// What the case gives to state objects to draw from, for interpreters.
    fn supplies(&self, _lines: &[Line]) -> Vec<Supply> {
        vec![]
    }

    /// Why a packet that was expected may not have come out, and what to write. `None`: not because
    /// of this system.
    fn why_missing(&self, _lines: &[Line], _manifest: &Manifest) -> Option<String> {
        None
    }
}

/// What a state object draws from: as `Object::supply` of the interpreters takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supply {
    /// The object: its name, or a last part that is unique.
    pub object: String,
    /// What.
    pub what: &'static str,
    /// The numbers.
    pub numbers: Vec<u64>,
}

/// Which switch of a case a loaded object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The first is 1.
    pub switch_id: u32,
    /// The number of the switch's life; no two lives in a case have the same.
    pub incarnation: u32,
}

/// A frame that comes in at a P4 port.
pub type Arrival = (u32, Vec<u8>);

/// The copies as which a frame comes in again, if this is a port of the loop
/// ([`dataplane::copies_by_loop`]).
pub fn copies(port: u32, frame: &[u8]) -> Option<Vec<Arrival>> {
    let copies = copies_by_loop(port)? as usize;
    Some(vec![(port, frame.to_vec()); copies])
}

/// What stands behind the switch of a case: other machines, and the switch's agent. All of it runs
/// in the case's own time.
pub trait Backing {
    /// A switch with empty state begins: the case's first, or one that takes over. The one before
    /// it is dead.
    ///
    /// # Errors
    /// The switch cannot be set up.
    fn begin_switch(&mut self, switch: &Dataplane, identity: Identity, now_ns: u64) -> Outcome<()>;

    /// Takes a frame that left by a port, and says what comes back. `None`: the frame is not for
    /// machines of this system.
    fn departs(&mut self, port: u32, frame: &[u8], now_ns: u64) -> Option<Vec<Arrival>>;

    /// When [`Backing::tick`] is due next. `None`: not before another packet.
    fn next_ns(&self, switch: &Dataplane, now_ns: u64) -> Option<u64>;

    /// What the agent and the machines do now; what comes to the switch of it.
    ///
    /// # Errors
    /// The switch cannot be read or written.
    fn tick(&mut self, switch: &Dataplane, now_ns: u64) -> Outcome<Vec<Arrival>>;
}

/// All systems that packet tests know.
#[derive(Clone, Copy)]
pub struct Systems(pub &'static [&'static dyn System]);

impl Systems {
    /// Must packets of the program wait in the switch, as [`System::must_wait`] of one says?
    pub fn must_wait(&self, manifest: &Manifest) -> bool {
        self.0.iter().any(|system| system.must_wait(manifest))
    }

    /// No system: plain P4.
    pub const NONE: Systems = Systems(&[]);

    /// The keywords of all systems' setup lines.
    pub fn keywords(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().flat_map(|system| system.keywords().iter().copied())
    }

    pub(crate) fn check(self, line: &Line, before: &[Line]) -> Result<(), Wrong> {
        let owner = self.0.iter().find(|system| system.keywords().contains(&line.keyword));
        owner.map_or(Ok(()), |system| system.check(line, before))
    }

    /// What a case gives to state objects.
    pub fn supplies(self, lines: &[Line]) -> Vec<Supply> {
        self.0.iter().flat_map(|system| system.supplies(lines)).collect()
    }
}
