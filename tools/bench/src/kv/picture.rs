//! What the terminal shows while the demonstration runs: on standard error, so that standard output
//! has only results.

use crate::kv::System;
use crate::kv::failure::{Live, Plan};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line about what is going on.
pub fn note(text: &str) {
    // (A closed standard error is no reason to stop measuring.)
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Shows a run with a failure until its end, or until `over`: one line that is written again and
/// again on a terminal, else a line each second.
pub fn watch(system: System, plan: &Plan, live: &Live, over: impl Fn() -> bool) {
    let began = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    let mut said = 0;
    while !over() {
        std::thread::sleep(Duration::from_millis(100));
        let now = began.elapsed().min(plan.end);
        if terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(system, plan, live, now));
        } else if now.as_secs() > said {
            said = now.as_secs();
            note(&line(system, plan, live, now));
        }
    }
    if terminal {
        note(&format!("\r\x1b[K{}", line(system, plan, live, plan.end)));
    }
}

/// A bar for each bin: the share of requests that was answered in 10 ms at first try.
fn line(system: System, plan: &Plan, live: &Live, now: Duration) -> String {
    let bars = plot::terminal::bars(&live.shares(now), 60, 1.0);
    let state = if now < plan.kill {
        String::new()
    } else if now < plan.restore {
        format!("  the {} is dead", system.victim())
    } else {
        "  it comes back".to_owned()
    };
    format!("  {:>4.1} s │{bars:<60}│{state}", now.as_secs_f64())
}
