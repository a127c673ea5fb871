#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| (fuzz_targets::target("kv_control").expect("a target").run)(data));
