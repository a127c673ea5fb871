//! `stateplane kv inspect`: where a key is, and what each switch says of its group.

use crate::messages::word;
use command_line::{outln, print_table};
use netchain_client::{Client, Config, Key, Outcome};
use netchain_keys::Identity;
use netchain_protocol::message::REPLY;
use netchain_protocol::{ClientKey, Message, PORT, Status};
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// Exit code: switches disagree, are silent, or do not serve the key.
const UNHEALTHY: u8 = 1;
/// Each switch is asked so often.
const TRIES: u32 = 4;
/// Longer than any message.
const BYTES: usize = 512;

const EXAMPLES: &str = "Examples:
  stateplane kv --config kv.toml inspect greeting
  stateplane kv --config kv.toml --json inspect greeting

Each switch of the cluster is asked for the view and chain that it has of the key's group; switches
that have none are left out. Then the key is read as any client reads it.

Exit codes: 0 all members have the same view and serve the key; 1 they do not; 2 the switches could
not be asked.";

/// Words after `kv inspect`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The key: at most 16 bytes.
    key: String,
}

/// What a switch says of a group.
#[derive(Clone, Debug, Serialize)]
struct Told {
    switch: Ipv4Addr,
    /// Its place in the newest chain that a switch told, from 0: the head. None: no member.
    place: Option<usize>,
    /// None: no answer.
    #[serde(serialize_with = "word_of")]
    says: Option<Status>,
    view: u32,
    chain: Vec<Ipv4Addr>,
}

fn word_of<S: Serializer>(says: &Option<Status>, serializer: S) -> Result<S::Ok, S::Error> {
    says.as_ref().map(word).serialize(serializer)
}

/// What is known of a key.
#[derive(Serialize)]
struct Known {
    group: u16,
    founding_chain: Vec<Ipv4Addr>,
    view: u32,
    chain: Vec<Ipv4Addr>,
    switches: Vec<Told>,
    outcome: &'static str,
    version: Option<u64>,
    value_bytes: Option<usize>,
}

/// Prints what is known of a key; the exit code.
pub fn inspect(args: &Args, config: Config, as_json: bool) -> Result<u8, String> {
    let key = Key::from_name(&args.key).map_err(|wrong| wrong.to_string())?;
    let group = config.ring.group_of(&key);
    let founding_chain = config.ring.chain_of(group).unwrap_or_default();
    let mut switches = ask_all(&config, &key)?;
    // (Not from the answer of a switch that is behind, or outside.)
    let newest = switches.iter().filter(|told| !told.chain.is_empty()).max_by_key(|it| it.view);
    let (view, chain) = newest.map_or((0, vec![]), |it| (it.view, it.chain.clone()));
    for told in &mut switches {
        told.place = chain.iter().position(|member| *member == told.switch);
    }
    switches.retain(|told| {
        let is_part = told.place.is_some() || founding_chain.contains(&told.switch);
        is_part || !matches!(told.says, None | Some(Status::NoGroup))
    });
    let mut client = Client::new(config).map_err(|error| error.to_string())?;
    let (outcome, shown) = match client.get(&key).map_err(|error| error.to_string())? {
        Outcome::Done(done) if done.now.value.is_none() => ("absent", Some(done.now)),
        Outcome::Done(done) => ("done", Some(done.now)),
        Outcome::Lost => ("lost", None),
        _ => ("no_chain", None),
    };
    let agree = switches.iter().filter(|it| it.place.is_some()).all(|it| it.view == view);
    let known = Known {
        group,
        founding_chain,
        view,
        chain,
        switches,
        outcome,
        version: shown.as_ref().map(|it| it.version),
        value_bytes: shown.and_then(|it| it.value).map(|value| value.len()),
    };
    if as_json {
        outln!("{}", command_line::json(&known));
    } else {
        print(&args.key, &known);
    }
    let good = agree && !known.chain.is_empty() && known.version.is_some();
    Ok(if good { 0 } else { UNHEALTHY })
}

/// Asks each switch for the group of a key: reads in view 0, which no switch carries out.
fn ask_all(config: &Config, key: &Key) -> Result<Vec<Told>, String> {
    let identity = config.identity.as_deref().map(Identity::load).transpose();
    let signed_by = identity.map_err(|error| error.to_string())?.map(|it| it.key());
    let client = OsRng.try_next_u64().map_err(|error| error.to_string())?;
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|error| error.to_string())?;
    let members: Vec<Ipv4Addr> = config.ring.members().iter().map(|it| it.address).collect();
    let mut told: BTreeMap<u32, Told> = BTreeMap::new();
    let (all, wait) = (members.len(), Duration::from_millis(config.deadline_ms) / TRIES);
    for _ in 0..TRIES {
        for (number, switch) in (1..).zip(&members) {
            if !told.contains_key(&number) {
                let payload = question(config, key, (client, number), signed_by.as_ref());
                // (A switch without a route is one that does not answer.)
                let _ = payload.map(|payload| socket.send_to(&payload, (*switch, PORT)));
            }
        }
        let until = Instant::now() + wait;
        while told.len() < all && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            socket
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))
                .map_err(|error| error.to_string())?;
            let mut bytes = [0; BYTES];
            let Ok(length) = socket.recv(&mut bytes) else { continue };
            if let Some((number, it)) = answer(&bytes[..length], client, &members, &signed_by) {
                told.insert(number, it);
            }
        }
    }
    let silent = |switch| Told { switch, place: None, says: None, view: 0, chain: vec![] };
    let numbered = (1..).zip(&members);
    Ok(numbered.map(|(number, it)| told.remove(&number).unwrap_or(silent(*it))).collect())
}

fn question(
    config: &Config,
    key: &Key,
    name: (u64, u32),
    signed_by: Option<&ClientKey>,
) -> Option<Vec<u8>> {
    let (ring, group) = (config.ring.fingerprint(), config.ring.group_of(key));
    let mut payload = Message::probe(ring, group, *key, name).encode().ok()?;
    if let Some(key) = signed_by {
        key.sign(&mut payload);
    }
    Some(payload)
}

/// A reply to a question: its number, and what it says.
fn answer(
    payload: &[u8],
    client: u64,
    members: &[Ipv4Addr],
    signed_by: &Option<ClientKey>,
) -> Option<(u32, Told)> {
    if signed_by.as_ref().is_some_and(|key| !key.verify(payload)) {
        return None;
    }
    let message = Message::decode(payload).ok()?;
    let switch = *members.get((message.number as usize).checked_sub(1)?)?;
    let (says, view, chain) = (Some(message.status), message.view, message.chain);
    let is_reply = message.flags & REPLY != 0 && message.client == client;
    is_reply.then_some((message.number, Told { switch, place: None, says, view, chain }))
}

fn way(chain: &[Ipv4Addr]) -> String {
    let names: Vec<String> = chain.iter().map(Ipv4Addr::to_string).collect();
    if names.is_empty() { "-".into() } else { names.join(" > ") }
}

/// The part in the chain, in words.
fn part(told: &Told, members: usize) -> &'static str {
    match told.place {
        None => "no member",
        Some(0) if members == 1 => "alone",
        Some(0) => "head",
        Some(place) if place + 1 == members => "tail",
        Some(_) => "middle",
    }
}

fn says(told: &Told) -> String {
    match told.says {
        None => "no answer".into(),
        // The question has no view: a switch that serves the group says which one it has.
        Some(Status::OldView) => "has a part".into(),
        Some(status) => word(&status),
    }
}

fn print(name: &str, known: &Known) {
    outln!("key       {name}");
    outln!("group     {}, founded with {}", known.group, way(&known.founding_chain));
    outln!("chain     {} in view {}", way(&known.chain), known.view);
    let version = known.version.map_or(String::new(), |version| format!(", version {version}"));
    let bytes = known.value_bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
    outln!("read      {}{version}{bytes}", known.outcome);
    let row = |told: &Told| {
        let view = told.says.map_or("-".into(), |_| told.view.to_string());
        let part = part(told, known.chain.len()).to_owned();
        vec![told.switch.to_string(), part, says(told), view, way(&told.chain)]
    };
    let rows = known.switches.iter().map(row).collect();
    print_table(&["switch", "part", "says", "view", "its chain"], rows);
}
