//! `stateplane kv list`, `export`, `import`: many keys at a time.

use crate::text::{Pair, named};
use command_line::{out, outln};
use netchain_client::{
    Config, Failed, Key, ListFailed, Listing, NotBegun, Outcome, Pipeline, Request, Shown, Ticket,
};
use serde_json::json;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Exit codes, as of the other words.
const REFUSED: u8 = 1;
const FAILED: u8 = 2;
const UNKNOWN: u8 = 3;

/// Requests under way, at most.
const OUTSTANDING: usize = 128;
/// How often progress is told.
const TELL: Duration = Duration::from_secs(2);

const LIST_EXAMPLES: &str = "Examples:
  stateplane kv --config kv.toml list             all keys
  stateplane kv --config kv.toml list lock/       keys that begin with lock/
  stateplane kv --config kv.toml list --limit 10 --json

The order is the switches'. It is no snapshot: a key that is there from the begin to the end is
listed; one that is made or deleted meanwhile may be listed or not.

Exit codes: 0 all keys are listed; 1 keys of some groups are missing, which is told; 2 no switch
answers, or the switches could not be asked.";

const EXPORT_EXAMPLES: &str = "Examples:
  stateplane kv --config kv.toml export keys.jsonl
  stateplane kv --config kv.toml export --prefix lock/ -    to standard output

Each line is one key, in the order of the keys: {\"key\": \"greeting\", \"value\": \"hello\"}. What
is no text is written as key_hex or value_hex. It is no snapshot: each value is one that its key had
during the export, and two keys' values may be of different times.

Exit codes: 0 all keys are in the file; 2 some could not be read, and no file is written.";

const IMPORT_EXAMPLES: &str = "Examples:
  stateplane kv --config kv.toml import keys.jsonl              only keys that have no value yet
  stateplane kv --config kv.toml import --overwrite keys.jsonl  all keys

The whole file is checked before the first key is written. Keys that the file does not name stay.

Exit codes: 0 all were written; 1 some have a value already, and kept it; 2 some could not be
written, or the file is at fault; 3 of some it is unknown: they may have been written.";

/// Words after `kv list`.
#[derive(clap::Args, Debug)]
#[command(after_help = LIST_EXAMPLES)]
pub struct ListArgs {
    /// List only keys that begin with this text, at most 16 bytes; by default all keys.
    #[arg(default_value = "")]
    prefix: String,
    /// Stop after so many keys.
    #[arg(long, value_name = "KEYS")]
    limit: Option<u64>,
}

/// Words after `kv export`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXPORT_EXAMPLES)]
pub struct ExportArgs {
    /// The file to write, or - for standard output.
    file: PathBuf,
    /// Export only keys that begin with this text, at most 16 bytes.
    #[arg(long, default_value = "")]
    prefix: String,
}

/// Words after `kv import`.
#[derive(clap::Args, Debug)]
#[command(after_help = IMPORT_EXAMPLES)]
pub struct ImportArgs {
    /// The file to read, as `kv export` writes it; or - for standard input.
    file: PathBuf,
    /// Also write keys that have a value already.
    #[arg(long)]
    overwrite: bool,
}

/// Tells from time to time how far it is.
struct Progress(Instant);

impl Progress {
    fn new() -> Progress {
        Progress(Instant::now())
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.0.elapsed() >= TELL {
            self.0 = Instant::now();
            eprintln!("{}", what());
        }
    }
}

/// Groups whose keys are missing from a listing.
#[derive(Default)]
struct Missing {
    /// Groups that were asked.
    all: usize,
    silent: Vec<u16>,
    lost: Vec<u16>,
}

impl Missing {
    fn is_empty(&self) -> bool {
        self.silent.is_empty() && self.lost.is_empty()
    }

    /// In words, a line for each reason.
    fn tell(&self) -> String {
        let silent = (&self.silent, "no switch answers for it");
        let lost = (&self.lost, "all its switches were lost, and its keys with them");
        let lines = [silent, lost].into_iter().filter(|(groups, _)| !groups.is_empty());
        lines
            .map(|(groups, why)| format!("{}: {why}", spans(groups)))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Groups in order, those that follow each other as one: `group 1, 3 to 5`.
fn spans(groups: &[u16]) -> String {
    let mut groups = groups.to_vec();
    groups.sort_unstable();
    let parts = groups.chunk_by(|before, group| before + 1 == *group);
    let part = |part: &[u16]| match part {
        [first, .., last] => format!("{first} to {last}"),
        _ => part.iter().map(u16::to_string).collect(),
    };
    format!("group {}", parts.map(part).collect::<Vec<_>>().join(", "))
}

/// Lists many groups beside each other. Each key is given to `take`, with the groups that are
/// through and the number of all; false ends the listing. Groups whose keys are missing.
fn list_groups(
    config: &Config,
    prefix: &str,
    mut take: impl FnMut(Key, usize, usize) -> bool,
) -> Result<Missing, String> {
    let mut pipeline = Pipeline::new(config.clone()).map_err(|error| error.to_string())?;
    let whole = pipeline.listing(prefix.as_bytes()).map_err(|error| error.to_string())?;
    let mut waiting: VecDeque<Listing> = whole.by_group().collect();
    let mut asked: HashMap<Ticket, Listing> = HashMap::new();
    let (mut done, all) = (0, waiting.len());
    let mut missing = Missing { all, ..Missing::default() };
    loop {
        while asked.len() < OUTSTANDING
            && let Some(mut listing) = waiting.pop_front()
        {
            match listing.request() {
                None => done += 1,
                Some(request) => {
                    let ticket = pipeline.submit(request).map_err(|error| error.to_string())?;
                    asked.insert(ticket, listing);
                }
            }
        }
        let next = pipeline.next(None).map_err(|error| error.to_string())?;
        let Some((ticket, answer)) = next else { return Ok(missing) };
        let Some(mut listing) = asked.remove(&ticket) else { continue };
        match listing.take(answer.map_err(|error| error.to_string())?) {
            Ok(()) => {}
            Err(ListFailed::NoChain(group)) => missing.silent.push(group),
            Err(ListFailed::Lost(group)) => missing.lost.push(group),
            Err(ListFailed::Client(failed)) => return Err(failed.to_string()),
        }
        while let Some(key) = listing.key() {
            if !take(key, done, all) {
                return Ok(missing);
            }
        }
        // (Its next page comes before another group's first.)
        waiting.push_front(listing);
    }
}

/// Prints keys; the exit code.
pub fn list(args: &ListArgs, config: Config, as_json: bool) -> Result<u8, String> {
    let limit = args.limit.unwrap_or(u64::MAX);
    let (mut count, mut progress) = (0, Progress::new());
    if limit == 0 {
        return Ok(0);
    }
    let missing = list_groups(&config, &args.prefix, |key, done, all| {
        if as_json {
            outln!("{}", named(&key));
        } else {
            outln!("{}", shown(&key));
        }
        count += 1;
        progress.tell(|| format!("{count} keys; {done} of {all} groups"));
        count < limit
    })?;
    if missing.is_empty() {
        return Ok(0);
    }
    eprintln!("error: {}", missing.tell().replace('\n', "\nerror: "));
    Ok(if missing.silent.len() == missing.all { FAILED } else { REFUSED })
}

/// A key on a line of its own.
fn shown(key: &Key) -> String {
    let name = named(key);
    let text = name["key"].as_str().map(str::to_owned);
    text.unwrap_or_else(|| format!("0x{}", name["key_hex"].as_str().unwrap_or_default()))
}

/// Requests in order, many at a time; what each came to is given to `over` with its place.
fn ask_all(
    pipeline: &mut Pipeline,
    requests: impl Iterator<Item = Request>,
    mut over: impl FnMut(usize, Result<Outcome, String>),
) -> Result<(), String> {
    let mut places: HashMap<Ticket, usize> = HashMap::new();
    let mut requests = requests.enumerate().peekable();
    loop {
        while places.len() < OUTSTANDING
            && let Some((place, request)) = requests.peek()
        {
            match pipeline.submit(request.clone()) {
                Ok(ticket) => places.insert(ticket, *place),
                // A write waits for its chain, and the others are too many numbers ahead of it.
                Err(Failed::NotBegun(NotBegun::Busy)) if !places.is_empty() => break,
                Err(error) => return Err(error.to_string()),
            };
            requests.next();
        }
        match pipeline.next(None).map_err(|error| error.to_string())? {
            Some((ticket, answer)) => {
                if let Some(place) = places.remove(&ticket) {
                    over(place, answer.map_err(|error| error.to_string()));
                }
            }
            None if requests.peek().is_none() => return Ok(()),
            None => {}
        }
    }
}

/// The keys with a prefix. An error if some are missing.
fn all_keys(config: &Config, prefix: &str, progress: &mut Progress) -> Result<Vec<Key>, String> {
    let mut keys = vec![];
    let missing = list_groups(config, prefix, |key, done, all| {
        keys.push(key);
        progress.tell(|| format!("{} keys; {done} of {all} groups", keys.len()));
        true
    })?;
    if !missing.is_empty() {
        return Err(missing.tell());
    }
    keys.sort_unstable();
    Ok(keys)
}

/// Writes keys with their values to a file; the exit code.
pub fn export(args: &ExportArgs, config: Config) -> Result<u8, String> {
    let mut progress = Progress::new();
    let keys = all_keys(&config, &args.prefix, &mut progress)?;
    let mut pipeline = Pipeline::new(config).map_err(|error| error.to_string())?;
    let mut values: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    let (mut failed, mut read) = (None, 0);
    ask_all(&mut pipeline, keys.iter().map(Request::get), |place, answer| {
        read += 1;
        progress.tell(|| format!("{read} of {} values", keys.len()));
        match answer {
            Ok(Outcome::Done(done)) => {
                // (A key that was deleted meanwhile has none.)
                if let Shown { value: Some(value), .. } = done.now {
                    values.insert(place, value);
                }
            }
            other => failed = Some((place, other)),
        }
    })?;
    if let Some((place, outcome)) = failed {
        let key = shown(&keys[place]);
        return Err(match outcome {
            Ok(outcome) => format!("key {key}: {}", because(&outcome)),
            Err(error) => format!("key {key}: {error}"),
        });
    }
    let lines = values.into_iter().map(|(place, value)| Pair { key: keys[place], value }.line());
    if args.file == Path::new("-") {
        lines.for_each(|line| out!("{line}\n"));
        return Ok(0);
    }
    let lines: Vec<String> = lines.collect();
    write(&args.file, &lines).map_err(|error| format!("{}: {error}", args.file.display()))?;
    eprintln!("{} keys", lines.len());
    Ok(0)
}

/// A file is there whole, or as it was.
fn write(file: &Path, lines: &[String]) -> std::io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    let partial = PathBuf::from(name);
    let mut out = BufWriter::new(std::fs::File::create(&partial)?);
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.into_inner()?.sync_all()?;
    std::fs::rename(partial, file)
}

/// Why a key's request was not carried out.
fn because(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Full => "the switches have no slot for another key",
        Outcome::Lost => "all switches of its group were lost",
        Outcome::TooLong(_) => "its value is too long",
        Outcome::Unknown => "no answer in time: it may have been written",
        _ => "no switch answers for it",
    }
}

/// The pairs of a file, all of them good.
fn pairs(file: &Path) -> Result<Vec<Pair>, String> {
    let name = file.display();
    let reader: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let opened = std::fs::File::open(file).map_err(|error| format!("{name}: {error}"))?;
        Box::new(BufReader::new(opened))
    };
    let mut pairs = vec![];
    for (number, line) in (1..).zip(reader.lines()) {
        let line = line.map_err(|error| format!("{name}:{number}: {error}"))?;
        if !line.trim().is_empty() {
            let pair = Pair::read(&line).map_err(|error| format!("{name}:{number}: {error}"))?;
            pairs.push(pair);
        }
    }
    Ok(pairs)
}

/// Writes a file's keys; the exit code.
pub fn import(args: &ImportArgs, config: Config, as_json: bool) -> Result<u8, String> {
    let pairs = pairs(&args.file)?;
    let mut pipeline = Pipeline::new(config).map_err(|error| error.to_string())?;
    let (mut written, mut kept, mut unknown, mut failed) = (0u64, 0u64, 0u64, 0u64);
    let mut progress = Progress::new();
    let requests = pairs.iter().map(|Pair { key, value }| match args.overwrite {
        true => Request::put(key, value),
        false => Request::insert(key, value),
    });
    ask_all(&mut pipeline, requests, |place, answer| {
        let why = match answer {
            Ok(Outcome::Done(_)) => {
                written += 1;
                None
            }
            Ok(Outcome::Refused(_)) => {
                kept += 1;
                None
            }
            Ok(outcome) => {
                let count = if outcome == Outcome::Unknown { &mut unknown } else { &mut failed };
                *count += 1;
                Some(because(&outcome).to_owned())
            }
            Err(error) => {
                failed += 1;
                Some(error)
            }
        };
        if let Some(why) = why.filter(|_| unknown + failed <= 10) {
            eprintln!("error: key {}: {why}", shown(&pairs[place].key));
        }
        let over = written + kept + unknown + failed;
        progress.tell(|| format!("{over} of {} keys", pairs.len()));
    })?;
    if as_json {
        let told = json!({
            "written": written, "kept": kept, "unknown": unknown, "failed": failed,
        });
        outln!("{told}");
    } else {
        outln!(
            "{written} written, {kept} have a value already, {unknown} unknown, {failed} failed"
        );
    }
    Ok(match (failed, unknown, kept) {
        (1.., ..) => FAILED,
        (0, 1.., _) => UNKNOWN,
        (0, 0, 1..) => REFUSED,
        (0, 0, 0) => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_follow_each_other_are_told_as_one() {
        assert_eq!(spans(&[7]), "group 7");
        assert_eq!(spans(&[5, 0, 4, 3, 9]), "group 0, 3 to 5, 9");
        let missing = Missing { all: 9, silent: vec![1, 2], lost: vec![4] };
        let told = missing.tell();
        assert!(told.starts_with("group 1 to 2: no switch answers"), "{told}");
        assert!(told.contains("\ngroup 4: all its switches were lost"), "{told}");
    }
}
