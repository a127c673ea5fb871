//! The whole use of a client: `cargo run -p netchain-client --example greeting kv.toml`.

use netchain_client::{Client, Key, Outcome};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("write the client's configuration file")?;
    let mut client = Client::open(file.as_ref())?;
    let key = Key::from_name("greeting")?;
    client.put(&key, b"hello")?;
    let Outcome::Done(done) = client.get(&key)? else { return Err("no answer".into()) };
    println!("{}", String::from_utf8_lossy(&done.now.value.unwrap_or_default()));
    Ok(())
}
