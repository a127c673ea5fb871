#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| (fuzz_targets::target("kv_json").expect("a target").run)(data));
