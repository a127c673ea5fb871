//! The program through the kernel, compared with `take` on random batches. Needs root.
//!
//! `SEED=n` repeats a run; `STEPS=n` makes it longer.

mod fixture;
mod steps;

use fast_chain::{Count, Memory, Program, Verdict, take};
use fixture::{MEMBER, NOWHERE, is_sound, mac, parse};
use std::sync::Arc;

const PASS: u32 = 2;
const REDIRECT: u32 = 4;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Program and reference, on memories that must stay the same.
struct Both {
    program: Program,
    own: Arc<Memory>,
    counts: Vec<(Count, u64)>,
}

impl Both {
    fn count(&mut self, what: Count, number: u64) {
        self.counts[what as usize].1 += number;
    }

    /// What the program must do with the frame, by the reference: the action, and where it goes.
    fn expect(&mut self, frame: &[u8]) -> Verdict {
        let parsed = parse(frame).filter(|parsed| parsed.to == MEMBER);
        let Some(parsed) = parsed else { return Verdict::Other };
        match take(&self.own, parsed.from, &parsed.datagram) {
            Verdict::Send { to, .. } if to == NOWHERE => Verdict::Pass(Count::NoRoute),
            verdict => verdict,
        }
    }

    fn step(&mut self, frame: &[u8]) {
        let expected = self.expect(frame);
        let run = self.program.run(frame, 1).unwrap();
        match &expected {
            Verdict::Send { to, datagram } => {
                assert_eq!(run.action, REDIRECT, "{expected:?}");
                let parsed = parse(&run.frame).expect("a datagram is sent");
                assert_eq!((parsed.from, parsed.to), (MEMBER, *to));
                assert_eq!(parsed.datagram, *datagram);
                assert_eq!(
                    (parsed.macs[..6].to_vec(), parsed.tos),
                    (mac(*to.ip()).into(), frame[15])
                );
                assert!(is_sound(&run.frame), "{:?}", run.frame);
                let is_answer = datagram[3] == wire::BatchType::BatchAck as u8;
                self.count(if is_answer { Count::Answered } else { Count::Forwarded }, 1);
                self.count(Count::Records, u16::from_be_bytes([datagram[6], datagram[7]]).into());
            }
            other => {
                if let Verdict::Pass(reason) = other {
                    self.count(*reason, 1);
                }
                assert_eq!(self.program.counts().unwrap(), self.counts, "{expected:?}");
                assert_eq!((run.action, &run.frame[..]), (PASS, frame), "{expected:?}");
            }
        }
        assert_eq!(self.program.counts().unwrap(), self.counts, "{expected:?}");
        self.assert_same_memory();
    }

    fn assert_same_memory(&self) {
        let (kernel, own) = (self.program.memory().words(), self.own.words());
        for (area, (kernel, own)) in kernel.iter().zip(&own).enumerate() {
            let differ = kernel.iter().zip(own).position(|(a, b)| a != b);
            assert_eq!(differ, None, "word of area {area}");
        }
    }
}

#[test]
fn the_program_does_what_the_reference_says() {
    let seed = from_environment("SEED").unwrap_or_else(rand::random);
    let steps = from_environment("STEPS").unwrap_or(20_000);
    println!("SEED={seed} STEPS={steps}");
    netns::inside_new(|| {
        netns::ip_batch(&fixture::network()).unwrap();
        let program = Program::load(steps::shape(seed)).unwrap();
        // The setting for routes, which the first interface brings.
        let lo = program.attach(1, fast_chain::Mode::Generic).unwrap();
        let own = Memory::own(steps::shape(seed));
        let counts = Count::ALL.map(|count| (count, 0)).to_vec();
        let mut world = steps::World::new(seed, [own.clone(), program.memory().clone()]);
        let mut both = Both { program, own, counts };
        for step in 0..steps {
            world.user_space();
            both.assert_same_memory();
            let frame = world.frame();
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| both.step(&frame)));
            if let Err(panic) = result {
                eprintln!("SEED={seed}, step {step}");
                std::panic::resume_unwind(panic);
            }
        }
        drop(lo);
        for (count, number) in both.counts {
            println!("{}: {number}", count.name());
            assert!(steps < 10_000 || number >= steps / 1_000, "{} is too rare", count.name());
        }
    })
    .unwrap();
}
