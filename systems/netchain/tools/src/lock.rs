//! `stateplane kv lock`: a command runs while a lock is held.

use clap::{Parser, ValueEnum};
use command_line::interrupt;
use netchain_client::{Client, Config};
use netchain_recipes::{Blocking, Lock, Seat, wait};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Exit codes of this command itself: as timeout(1) has them.
const OTHERS_HELD: u8 = 124;
const FAILED: u8 = 125;
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How often the command is looked at.
const LOOK: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "Examples:
  stateplane kv --config kv.toml lock backup -- pg_dump -f /backup/db.sql shop
  stateplane kv --config kv.toml lock deploy --wait 60 --lease-ms 10000 -- ./deploy.sh

The command has STATEPLANE_LOCK_TOKEN in its environment: a number that is larger than that of all
earlier holders. What the command writes to should refuse smaller ones.

Exit code: the command's; 128 + n if signal n ended it; 124 others held the lock for --wait; 125 the
lease was lost, or no switch could be asked; 126 the command cannot be run; 127 it is not found.";

/// What happens to the command when the lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLoss {
    /// SIGTERM a sixth of the lease before its end, SIGKILL at its end.
    Kill,
    /// A line on standard error.
    Warn,
}

#[derive(Parser, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the lock: at most 16 bytes. All its users need the same lease.
    name: String,
    /// How long others wait for the lock after its holder died, in milliseconds.
    #[arg(long, default_value_t = 5000, value_name = "MS")]
    lease_ms: u64,
    /// Wait at most so long for the lock, in seconds; by default for ever.
    #[arg(long, value_name = "SECONDS")]
    wait: Option<f64>,
    /// What to do when the lease is lost, because no switch answered in time.
    #[arg(long, value_enum, default_value_t = OnLoss::Kill)]
    on_loss: OnLoss,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command; returns its exit code.
///
/// # Errors
/// What keeps the lock from being held, in words.
pub fn run(args: &Args, config: Config) -> Result<u8, String> {
    let store = Blocking::new(Client::new(config).map_err(|error| error.to_string())?);
    let lease = Duration::from_millis(args.lease_ms);
    let lock = Lock::new(&store, &args.name, lease).map_err(|error| error.to_string())?;
    let patience = match args.wait.map(Duration::try_from_secs_f64) {
        Some(Err(error)) => return Err(format!("--wait: {error}")),
        Some(Ok(patience)) => Some(patience),
        None => None,
    };
    let seat = match wait(lock.take(patience)) {
        Ok(Some(seat)) => seat,
        Ok(None) => {
            eprintln!("error: others held {:?} for --wait", args.name);
            return Ok(OTHERS_HELD);
        }
        Err(error) => {
            eprintln!("error: {error}");
            return Ok(FAILED);
        }
    };
    interrupt::install();
    let (program, words) = args.command.split_first().ok_or("write a command after --")?;
    let token = seat.token().to_string();
    let spawned = Command::new(program).args(words).env("STATEPLANE_LOCK_TOKEN", token).spawn();
    let code = match spawned {
        Ok(child) => return Ok(hold(args, seat, child)),
        Err(error) if error.kind() == ErrorKind::NotFound => NOT_FOUND,
        Err(_) => NOT_RUN,
    };
    eprintln!("error: {program}: it cannot be run");
    drop(wait(seat.release()));
    Ok(code)
}

/// Sends signals to the command before and at the end of the lease, whatever the switches do
/// meanwhile.
struct Watchdog {
    /// The end of the lease.
    until: Arc<Mutex<Instant>>,
    over: Arc<AtomicBool>,
}

impl Watchdog {
    fn start(until: Instant, lease: Duration, child: i32) -> Watchdog {
        let dog =
            Watchdog { until: Arc::new(Mutex::new(until)), over: Arc::new(AtomicBool::new(false)) };
        let (until, over) = (dog.until.clone(), dog.over.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK);
                let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
                let left = until.saturating_duration_since(Instant::now());
                if left < lease / 6 && !over.load(Ordering::SeqCst) {
                    signal(child, if left.is_zero() { libc::SIGKILL } else { libc::SIGTERM });
                }
            }
        });
        dog
    }

    fn feed(&self, left: Duration) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + left;
    }
}

/// (The command is not waited for yet, so its number is nobody else's.)
fn signal(child: i32, signal: i32) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    if let Ok(signal) = Signal::try_from(signal) {
        let _ = kill(Pid::from_raw(child), signal);
    }
}

/// Refreshes the lease until the command ends.
fn hold(args: &Args, mut seat: Seat<&Blocking>, mut child: Child) -> u8 {
    let (lease, number) = (seat.lease(), child.id() as i32);
    let kills = args.on_loss == OnLoss::Kill;
    let dog = kills.then(|| Watchdog::start(Instant::now() + seat.left(), lease, number));
    let (mut lost, mut told) = (false, false);
    let ended = loop {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => break Some(status),
            Err(_) => break None,
        }
        if interrupt::requested() && !told {
            told = true;
            signal(number, libc::SIGTERM);
        }
        if !lost && seat.left() < lease * 2 / 3 {
            // (While no switch answers it asks on, to the end of the lease: then it is lost.)
            lost = !matches!(wait(seat.refresh()), Ok(true));
            if lost {
                eprintln!("error: the lease of {:?} is lost", args.name);
            } else if let Some(dog) = &dog {
                dog.feed(seat.left());
            }
        }
        std::thread::sleep(LOOK.min(lease / 10));
    };
    if let Some(dog) = &dog {
        dog.over.store(true, Ordering::SeqCst);
    }
    let lost = lost || !seat.is_held();
    drop(wait(seat.release()));
    if lost { FAILED } else { ended.map_or(FAILED, code_of) }
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}
