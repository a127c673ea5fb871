//! CPU time: of the whole machine, of this process, and of a lab's processes.

use anyhow::{Context, Result};

/// Ticks of a second in `/proc` (USER_HZ, 100 on all machines that Linux runs on with XDP).
const TICKS_A_SECOND: f64 = 100.0;

/// CPU time up to a moment, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// Of the whole machine: all but idle and waiting for disks.
    pub busy: f64,
    /// Of this process: the clients.
    pub client: f64,
    /// Of a lab's processes.
    pub lab: f64,
}

/// The machine's busy time, from the text of `/proc/stat`.
fn busy_in(text: &str) -> Option<f64> {
    let times = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let times: Vec<f64> = times.map_while(|it| it.parse().ok()).collect();
    (times.len() == 8).then(|| (times.iter().sum::<f64>() - times[3] - times[4]) / TICKS_A_SECOND)
}

/// A process's user and system time, from the text of its `stat`. (Its name stands in parentheses
/// and may have blanks: proc_pid_stat(5).)
fn process_in(text: &str) -> Option<f64> {
    let mut rest = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (rest.next()?.parse().ok()?, rest.next()?.parse().ok()?);
    Some((user + system) / TICKS_A_SECOND)
}

impl Cpu {
    /// Up to now; `lab` are the lab's processes.
    ///
    /// # Errors
    /// There is no `/proc/stat`.
    pub fn now(lab: &[i32]) -> Result<Cpu> {
        let of = |who: &str| std::fs::read_to_string(format!("/proc/{who}/stat")).ok();
        let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        Ok(Cpu {
            busy: busy_in(&text).context("/proc/stat: no line of all CPUs")?,
            client: of("self").and_then(|text| process_in(&text)).unwrap_or(0.0),
            // (One may have died since.)
            lab: lab.iter().filter_map(|pid| process_in(&of(&pid.to_string())?)).sum(),
        })
    }

    /// Since an earlier moment.
    pub fn since(self, before: Cpu) -> Cpu {
        Cpu {
            busy: self.busy - before.busy,
            client: self.client - before.client,
            lab: self.lab - before.lab,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_disks_are_not_busy() {
        let text = "cpu  100 10 50 1000 200 5 35 0 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_in(text), Some(2.0));
        assert_eq!(busy_in("cpu  1 2 3"), None);
    }

    #[test]
    fn a_name_may_have_blanks() {
        let text = "7 (a b) c) S 1 7 7 0 -1 4194304 1 0 0 0 150 50 0 0 20 0";
        assert_eq!(process_in(text), Some(2.0));
    }
}
