//! Random texts and mutated programs through `stateplane check`, and those that are good through
//! the back end: no panic, no hang.

use crate::mutate;
use anyhow::{Context, Result, bail, ensure};
use fuzz_door::hex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use xdp_backend::Placement;

/// No program may take longer.
const LIMIT: Duration = Duration::from_secs(5);

/// Whether enough of the mutated programs are good is asked of no shorter run.
const JUDGED_FROM: usize = 100;

/// How much to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the run is repeated by.
    pub seed: u64,
    /// Random texts, and as many mutated programs.
    pub count: usize,
    /// One in so many goes through the preprocessor, which is a process of its own and takes its
    /// time.
    pub preprocess_every: usize,
    /// The `stateplane` binary, and how many of the inputs run through it as processes.
    pub binary: Option<(PathBuf, usize)>,
}

/// What went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Texts and mutated programs.
    pub checked: usize,
    /// Of these, with the preprocessor.
    pub preprocessed: usize,
    /// Of these, good programs.
    pub good: usize,
    /// Good programs of which the back end made C.
    pub generated: usize,
    /// Good programs that the back end refused.
    pub refused: usize,
    /// Inputs of whole `stateplane check` processes.
    pub processes: usize,
    /// The longest check.
    pub longest: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} texts and programs checked ({} with the preprocessor, {} good; of these {} generated, {} refused by the back end), {} processes; longest {} ms",
            self.checked,
            self.preprocessed,
            self.good,
            self.generated,
            self.refused,
            self.processes,
            self.longest.as_millis()
        )
    }
}

/// A seed program, as it is and after the preprocessor.
struct Seed {
    raw: String,
    /// Without line markers.
    preprocessed: String,
    /// Where the program's own text begins, behind the include files.
    own: usize,
}

/// The repository's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn p4_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            p4_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "p4") {
            found.push(path);
        }
    }
    Ok(())
}

fn corpus() -> Result<Vec<Seed>> {
    let mut files = Vec::new();
    p4_files(&root().join("p4"), &mut files)?;
    p4_files(&root().join("systems"), &mut files)?;
    let left_out = |path: &Path| {
        ["include", "refused"].iter().any(|name| path.iter().any(|part| part == *name))
    };
    files.retain(|path| !left_out(path));
    files.sort();
    ensure!(files.len() > 3, "too few programs below {}", root().join("p4").display());
    files.iter().map(|path| seed(path)).collect()
}

fn seed(path: &Path) -> Result<Seed> {
    let raw = std::fs::read_to_string(path)?;
    let outcome = p4_check::check_file(path, &p4_syntax::Options::default());
    ensure!(!outcome.has_errors(), "{}", outcome.render(false));
    let (mut preprocessed, mut own) = (String::new(), 0);
    for line in outcome.source_map.text().lines() {
        if !line.starts_with('#') {
            preprocessed += line;
            preprocessed.push('\n');
        } else if line.ends_with("\" 2") {
            // Back from an include file; none comes behind the last.
            own = preprocessed.len();
        }
    }
    ensure!(
        own > 1000,
        "{}: it includes nothing, or line markers look different now",
        path.display()
    );
    Ok(Seed { raw, preprocessed, own })
}

fn mutated(seeds: &[Seed], preprocess: bool, random: &mut StdRng) -> String {
    let seed = &seeds[random.random_range(0..seeds.len())];
    let other = &seeds[random.random_range(0..seeds.len())];
    let (text, keep) = if preprocess { (&seed.raw, 0) } else { (&seed.preprocessed, seed.own) };
    // Sometimes the declarations of the include files too.
    let keep = if random.random_bool(0.1) { 0 } else { keep };
    if random.random_bool(0.3) {
        return String::from_utf8_lossy(&fuzz_door::mutate::bytes(text.as_bytes(), keep, random))
            .into_owned();
    }
    let words = mutate::words(text);
    let kept = mutate::words(&text[..keep]).len();
    mutate::tokens(&words, kept, &mutate::words(&other.raw), random)
}

/// Ends the process when one input takes too long: nothing can end a thread. It gets a note
/// whenever an input begins.
struct Watchdog(mpsc::Sender<()>);

impl Watchdog {
    fn start(kept: PathBuf, told: String) -> Watchdog {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            loop {
                match receiver.recv_timeout(2 * LIMIT) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!(
                            "{told}: no end after {} s; the input is {}",
                            2 * LIMIT.as_secs(),
                            kept.display()
                        );
                        std::process::exit(1);
                    }
                }
            }
        });
        Watchdog(sender)
    }

    fn begins(&self) {
        // It only fails when the thread is gone, and the process with it.
        let _ = self.0.send(());
    }
}

/// What one input showed.
struct Shown {
    good: bool,
    generated: Option<bool>,
}

fn check(text: &str, preprocess: bool, placement: Placement) -> Shown {
    let outcome = if preprocess {
        p4_check::check_source("fuzz.p4", text, &p4_syntax::Options::default())
    } else {
        p4_check::check_preprocessed("fuzz.p4", text)
    };
    // The messages are made of spans, which can be wrong too.
    let messages = outcome.render(false).len()
        + p4_syntax::all_to_json(&outcome.diagnostics, &outcome.source_map).to_string().len();
    let Some(program) = &outcome.program else {
        assert!(messages > 2, "refused without a message");
        return Shown { good: false, generated: None };
    };
    let _ = program.to_string();
    let options = xdp_backend::Options {
        program_name: "fuzz.p4".to_owned(),
        placement,
        ..xdp_backend::Options::new(systems::compiler())
    };
    let generated = match xdp_backend::generate(program, &options) {
        Ok(generated) => {
            let _ = generated.manifest.to_json();
            true
        }
        Err(errors) => {
            assert!(!errors.is_empty(), "the back end refused without a message");
            false
        }
    };
    Shown { good: true, generated: Some(generated) }
}

/// Runs the plan; the error names the seed and the input's file.
pub fn run(plan: &Plan) -> Result<Summary> {
    println!("programs: seed {}", plan.seed);
    let seeds = corpus()?;
    let mut random = StdRng::seed_from_u64(plan.seed);
    // On disk before it is checked: a stack overflow ends the process.
    let kept = std::env::temp_dir().join(format!("stateplane-fuzz-{}.p4", std::process::id()));
    let watchdog = Watchdog::start(kept.clone(), format!("seed {}", plan.seed));
    let mut summary = Summary::default();
    for number in 0..2 * plan.count {
        let preprocess = random.random_range(0..plan.preprocess_every.max(1)) == 0;
        let text = if number % 2 == 0 {
            String::from_utf8_lossy(&mutate::noise(&mut random)).into_owned()
        } else {
            mutated(&seeds, preprocess, &mut random)
        };
        let [registers, partial] = [Placement::Registers, Placement::Partial(0)];
        let placements =
            [registers, partial, Placement::Scratch, Placement::AllScratch, Placement::Forgotten];
        let placement = placements[random.random_range(0..placements.len())];
        std::fs::write(&kept, &text)?;
        watchdog.begins();
        let started = Instant::now();
        let shown = catch_unwind(AssertUnwindSafe(|| check(&text, preprocess, placement)));
        let took = started.elapsed();
        let Ok(shown) = shown else {
            bail!(
                "seed {}, input {number}: a panic ({placement:?}); the input is {}",
                plan.seed,
                kept.display()
            );
        };
        ensure!(
            took < LIMIT,
            "seed {}, input {number}: {took:?}; the input is {}",
            plan.seed,
            kept.display()
        );
        summary.checked += 1;
        summary.preprocessed += usize::from(preprocess);
        summary.good += usize::from(shown.good);
        summary.generated += usize::from(shown.generated == Some(true));
        summary.refused += usize::from(shown.generated == Some(false));
        summary.longest = summary.longest.max(took);
        if (number + 1) % 2000 == 0 {
            println!("programs: {} of {}", number + 1, 2 * plan.count);
        }
    }
    if let Some((binary, count)) = &plan.binary {
        processes(binary, *count, &seeds, &mut random, &kept, &watchdog)
            .with_context(|| format!("seed {}", plan.seed))?;
        summary.processes = *count;
    }
    // Else nothing but the first errors was tried.
    let enough = plan.count < JUDGED_FROM || summary.good * 50 > plan.count;
    ensure!(enough, "only {} of {} mutated programs are good", summary.good, plan.count);
    std::fs::remove_file(&kept)?;
    Ok(summary)
}

/// The real command: exit code 0 for a good program and 1 for any other, in time.
fn processes(
    binary: &Path,
    count: usize,
    seeds: &[Seed],
    random: &mut StdRng,
    file: &Path,
    watchdog: &Watchdog,
) -> Result<()> {
    for number in 0..count {
        let text = match number % 4 {
            0 => mutate::noise(random),
            // Bytes that are no text.
            1 => fuzz_door::mutate::bytes(
                seeds[random.random_range(0..seeds.len())].raw.as_bytes(),
                0,
                random,
            ),
            _ => mutated(seeds, true, random).into_bytes(),
        };
        std::fs::write(file, &text)?;
        watchdog.begins();
        let outcome = p4_check::check_file(file, &p4_syntax::Options::default());
        let wrong = outcome.program.is_none_or(|program| {
            xdp_backend::generate(&program, &xdp_backend::Options::new(systems::compiler()))
                .is_err()
        });
        watchdog.begins();
        let started = Instant::now();
        let status = Command::new(binary)
            .arg("check")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .with_context(|| binary.display().to_string())?;
        let took = started.elapsed();
        let good = status.code() == Some(i32::from(wrong)) && took < LIMIT;
        ensure!(
            good,
            "process {number}: {status} after {took:?}, where the library finds {}; the input is {}: {}",
            if wrong { "errors" } else { "none" },
            file.display(),
            hex(&text)
        );
    }
    Ok(())
}
