//! The network of a case, in which a test runs frames through switches of its own.

use dataplane::{Dataplane, Object, Settings};
use manifest::Manifest;
use packet_test::stf::Wrong;
use packet_test::{Arrival, Backing, Case, Identity, Line, Outcome, System, Systems, run_case};
use std::path::Path;
use std::sync::Mutex;

/// The network of the switches, whose frames the test carries.
const CASE: &str = "# port: 0 mac 02:00:00:00:00:a0 address 10.0.0.1/24
# port: 1 mac 02:00:00:00:00:a1 address 192.0.2.2/24
# neighbor: 10.0.0.5 mac 02:00:00:00:00:05 port 0
# neighbor: 192.0.2.1 mac 02:00:00:00:00:11 port 1
# route: 10.9.0.0/24 via 192.0.2.1 port 1
clock 5ms
";

/// What is to be done in the network of the case, and whether it is done.
type Job = Box<dyn Fn() + Send + Sync>;
static JOB: Mutex<Option<Job>> = Mutex::new(None);

struct InTheNetwork;

impl System for InTheNetwork {
    fn keywords(&self) -> &'static [&'static str] {
        &[]
    }

    fn check(&self, _: &Line, _: &[Line]) -> Result<(), Wrong> {
        Ok(())
    }

    fn begin(&self, _: &[Line], _: &Manifest) -> Outcome<Option<Box<dyn Backing>>> {
        Ok(Some(Box::new(InTheNetwork)))
    }
}

impl Backing for InTheNetwork {
    fn begin_switch(&mut self, _: &Dataplane, _: Identity, _: u64) -> Outcome<()> {
        if let Some(job) = JOB.lock().expect("no panic elsewhere").take() {
            job();
        }
        Ok(())
    }

    fn departs(&mut self, _: u32, _: &[u8], _: u64) -> Option<Vec<Arrival>> {
        None
    }

    fn next_ns(&self, _: &Dataplane, _: u64) -> Option<u64> {
        None
    }

    fn tick(&mut self, _: &Dataplane, _: u64) -> Outcome<Vec<Arrival>> {
        Ok(vec![])
    }
}

/// Does the job in the network. One job at a time in a process.
pub fn run(file: &Path, manifest: &Manifest, job: impl Fn() + Send + Sync + 'static) {
    *JOB.lock().expect("no panic elsewhere") = Some(Box::new(job));
    let systems = Systems(&[&InTheNetwork]);
    let case = Case::parse("network", CASE, systems).unwrap_or_else(|it| panic!("{it:?}"));
    let load = || {
        let mut opened = Object::open(file, manifest.clone()).map_err(|it| it.to_string())?;
        let settings = Settings { test_mode: true, virtual_clock: true, host_traffic: false };
        opened.set(settings).and_then(|()| opened.load()).map_err(|it| it.to_string())
    };
    let report = run_case(&case, systems, load);
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert!(JOB.lock().expect("no panic elsewhere").is_none(), "it did not run");
}
