//! Random texts and mutated programs through the checker: `fuzz_check [count] [seed]`, by default 10,000 of each.

#[path = "../tests/common/mod.rs"]
mod common;

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<u64>().ok());
    let count = args.next().unwrap_or(10_000) as usize;
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_secs());
    common::fuzz(args.next().unwrap_or(clock), count);
}
