#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| (fuzz_targets::target("lab_topology").expect("a target").run)(data));
