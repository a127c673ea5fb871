//! The whole use of a client: `cargo run -p netchain-client --example greeting kv.toml`. READMEs
//! show it; `tools/cli/tests/lab_clients.rs` compares them with this file, and runs it.

use netchain_client::{Client, Key, Outcome};
use std::error::Error;

/// Writes a value, and prints what a read says. `file`: the client's configuration.
///
/// # Errors
/// The file is at fault, or nobody answers.
pub fn greet(file: &str) -> Result<(), Box<dyn Error>> {
    let mut client = Client::open(file.as_ref())?;
    let key = Key::from_name("greeting")?;
    client.put(&key, b"hello")?;
    let Outcome::Done(done) = client.get(&key)? else { return Err("no answer".into()) };
    println!("{}", String::from_utf8_lossy(&done.now.value.unwrap_or_default()));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    greet(&std::env::args().nth(1).ok_or("write the client's configuration file")?)
}
