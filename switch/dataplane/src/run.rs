//! Single frames through the loaded program (BPF_PROG_TEST_RUN), and the packet generator.

use crate::Dataplane;
use crate::error::{Error, Result};
use crate::layouts::core::{LOOP_PORT, MOST_COPIES, TestValue, verdict};
use crate::live::LiveReady;
use crate::sys;
use c_layout::CStruct;
use std::sync::atomic::Ordering;

/// The kernel runs no frame shorter than an Ethernet header.
const LEAST_FRAME_BYTES: usize = 14;
/// Interface `lo`, which every network namespace has.
const LOOPBACK_IFINDEX: u32 = 1;
/// As long as the generator's frames must be at the least: the longest message without a packet.
pub const GENERATED_FRAME_BYTES: usize = 218;
const XDP_PASS: u32 = 2;
/// The longest frame that may come out, in bytes, beyond what went in: growth at the head.
const LEAST_GROWTH_BYTES: usize = 2048;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nowhere.
    Drop,
    /// Out of a port.
    Forward {
        /// P4 port.
        port: u32,
    },
    /// Up to the kernel.
    ToHost,
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Where it goes.
    pub verdict: Verdict,
    /// As it leaves; meaningless for [`Verdict::Drop`].
    pub frame: Vec<u8>,
    /// How long the program ran.
    pub duration_ns: u32,
}

/// In test mode: how many copies of a frame go by the loop (`stateplane_commit.h`), if it goes to
/// this port. [`Dataplane::run_looped`] is for each.
pub fn copies_by_loop(port: u32) -> Option<u32> {
    port.checked_sub(LOOP_PORT).filter(|copies| (1..=MOST_COPIES).contains(copies))
}

impl Dataplane {
    /// Runs one frame through the program, as if it came in on `ingress_port` at `clock_ns`. The
    /// object must be loaded in test mode.
    ///
    /// The kernel takes no frame under 14 bytes: such a one gets zeros before its first byte, whose
    /// number the program finds in `sp_test.padding_bytes` and skips, and which are taken off
    /// again.
    pub fn run(&self, frame: &[u8], ingress_port: u32, clock_ns: u64) -> Result<Outcome> {
        // The frame may also shrink at the head, and must not go below the limit then either.
        let padding = if frame.len() < LEAST_FRAME_BYTES { LEAST_FRAME_BYTES } else { 0 };
        match self.run_padded(frame, padding, ingress_port, clock_ns) {
            Err(Error::Kernel { source, .. })
                if padding == 0 && source.raw_os_error() == Some(libc::EINVAL) =>
            {
                self.run_padded(frame, LEAST_FRAME_BYTES, ingress_port, clock_ns)
            }
            other => other,
        }
    }

    /// Runs one copy of a frame that went to the loop ([`copies_by_loop`]) at `clock_ns`. The
    /// object must be loaded in test mode.
    pub fn run_looped(&self, frame: &[u8], clock_ns: u64) -> Result<Outcome> {
        self.run_program("sp_loop", frame, 0, 0, clock_ns)
    }

    /// On which CPU programs are to believe that they run, in test mode.
    pub fn set_test_cpu(&self, cpu: u32) {
        self.test_cpu.store(cpu, Ordering::Relaxed);
    }

    /// Runs one generated frame through the packet generator's program at `clock_ns`. The object
    /// must be loaded in test mode.
    pub fn run_generated(&self, clock_ns: u64) -> Result<Outcome> {
        self.run_program("sp_generator", &[0; GENERATED_FRAME_BYTES], 0, 0, clock_ns)
    }

    /// The same, where no packets wait in the switch: the message that the frame became, if any.
    pub fn run_generator(&self, clock_ns: u64) -> Result<Option<Vec<u8>>> {
        let outcome = self.run_generated(clock_ns)?;
        Ok(matches!(outcome.verdict, Verdict::Forward { .. }).then_some(outcome.frame))
    }

    /// Runs a request through one of the object's helper programs, without any effect on the
    /// network; its XDP verdict (1 drop, 2 pass).
    pub fn run_request(&self, program: &str, request: &[u8]) -> Result<u32> {
        self.run_question(program, request).map(|(verdict, _)| verdict)
    }

    /// The same for a request in whose place the program writes its answer: that, too.
    pub fn run_question(&self, program: &str, request: &[u8]) -> Result<(u32, Vec<u8>)> {
        let descriptor = self.program(program).ok_or_else(|| Error::NoMap {
            map: program.to_owned(),
            owner: "programs".to_owned(),
        })?;
        let mut output = vec![0u8; request.len() + LEAST_GROWTH_BYTES];
        let run = sys::test_run(descriptor, request, LOOPBACK_IFINDEX, 1, &mut output)
            .map_err(|error| Error::kernel(format!("run {program}"), error))?;
        output.truncate(run.bytes);
        Ok((run.verdict, output))
    }

    fn run_padded(
        &self,
        frame: &[u8],
        padding: usize,
        ingress_port: u32,
        clock_ns: u64,
    ) -> Result<Outcome> {
        self.run_program("sp_main", frame, padding, ingress_port, clock_ns)
    }

    fn run_program(
        &self,
        name: &str,
        frame: &[u8],
        padding: usize,
        ingress_port: u32,
        clock_ns: u64,
    ) -> Result<Outcome> {
        let program = self
            .program(name)
            .ok_or_else(|| Error::NoMap { map: name.to_owned(), owner: "programs".to_owned() })?;
        let padding_bytes = padding as u32;
        let cpu = self.test_cpu.load(Ordering::Relaxed);
        let test = TestValue { ingress_port, padding_bytes, clock_ns, cpu, ..TestValue::default() };
        self.write_array("sp_test", 0, &test.to_bytes())?;
        let growth = (self.manifest.headroom_bytes as usize).max(LEAST_GROWTH_BYTES);
        let mut input = vec![0u8; padding];
        input.extend_from_slice(frame);
        let mut output = vec![0u8; input.len() + growth];
        let run =
            sys::test_run(program, &input, LOOPBACK_IFINDEX, 1, &mut output).map_err(|error| {
                Error::kernel(format!("run a frame of {} bytes", frame.len()), error)
            })?;
        output.truncate(run.bytes);
        output.drain(..padding.min(run.bytes));
        let answer = TestValue::from_bytes(&self.read_array("sp_test", 0)?);
        let verdict = match (run.verdict, answer.verdict) {
            (XDP_PASS, verdict::FORWARD) => Verdict::Forward { port: answer.egress_port },
            (XDP_PASS, verdict::TO_HOST) => Verdict::ToHost,
            _ => Verdict::Drop,
        };
        let bytes = answer.egress_bytes as usize;
        if matches!(verdict, Verdict::Forward { .. }) && bytes < LEAST_FRAME_BYTES {
            // The zeros behind it are there for the kernel's sake.
            output.truncate(bytes);
        }
        Ok(Outcome { verdict, frame: output, duration_ns: run.duration_ns })
    }

    /// Runs a frame `repeat` times; the mean time of a run in nanoseconds. For benchmarks.
    pub fn time(&self, frame: &[u8], ingress_port: u32, repeat: u32) -> Result<u32> {
        let program = self.program("sp_main").ok_or_else(|| self.no_main())?;
        let test = TestValue { ingress_port, ..TestValue::default() };
        self.write_array("sp_test", 0, &test.to_bytes())?;
        let mut output = vec![0u8; frame.len() + LEAST_GROWTH_BYTES];
        sys::test_run(program, frame, LOOPBACK_IFINDEX, repeat, &mut output)
            .map(|run| run.duration_ns)
            .map_err(|error| Error::kernel("time a frame", error))
    }

    /// Keeps a program ready for [`Dataplane::run_live`]: without it, each run of more than one
    /// frame waits for tens of milliseconds.
    pub fn keep_ready(&self, program: &str) -> Result<LiveReady> {
        let descriptor = self.program(program).ok_or_else(|| Error::NoMap {
            map: program.to_owned(),
            owner: "programs".to_owned(),
        })?;
        // Not as "not permitted": that names what loading needs, and this needs more
        // ([`LiveReady::new`]).
        LiveReady::new(descriptor).map_err(|source| Error::Kernel {
            action: format!("keep {program} ready in a network namespace"),
            source,
        })
    }

    /// The packet generator: `repeat` copies of `frame` go through `program` as if they came in on
    /// the interface, and its verdicts are carried out.
    pub fn run_live(
        &self,
        program: &str,
        frame: &[u8],
        ingress_ifindex: u32,
        repeat: u32,
    ) -> Result<()> {
        let descriptor = self.program(program).ok_or_else(|| Error::NoMap {
            map: program.to_owned(),
            owner: "programs".to_owned(),
        })?;
        sys::test_run_live(descriptor, frame, ingress_ifindex, repeat, repeat.clamp(1, 64))
            .map_err(|error| Error::kernel(format!("packet generator {program}"), error))
    }

    fn no_main(&self) -> Error {
        Error::NoMap { map: "sp_main".to_owned(), owner: "programs".to_owned() }
    }
}
