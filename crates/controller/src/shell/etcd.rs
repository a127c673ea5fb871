//! Decisions in etcd, and the election of the controller that decides.
//!
//! Spoken over etcd's JSON gateway (`/v3/…`, part of every etcd since 3.4) by a client of a hundred lines: the gRPC clients would bring an async runtime's worth
//! of dependencies and a protobuf compiler for three calls. What makes two controllers safe is not the election but that each write names the revision that it
//! replaces; the election only keeps them from deciding against each other all the time.

use crate::core::Input;
use serde_json::{Value, json};
use state_protocol::Views;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_millis(500);
/// How often the leader says that it still is, and the others look.
const EVERY: Duration = Duration::from_millis(300);
/// Without a word of the leader for so long there is none. etcd makes it 2 s at the least.
const LEADER_TTL_S: u32 = 2;
const MOST_ANSWER_BYTES: u64 = 4 << 20;

/// What the etcd thread tells the controller.
#[derive(Debug)]
pub enum Told {
    /// To be given to the core.
    Input(Input<'static>),
    /// etcd was read just now; whether it has views.
    Read {
        /// It has.
        found: bool,
    },
    /// etcd had views, and has them no more.
    Missing(String),
    /// The decision was not written.
    Refused {
        /// What etcd has, if that could be read.
        found: Option<Views>,
        /// The reason.
        why: String,
    },
}

/// An etcd cluster as a controller uses it.
pub struct Etcd {
    endpoints: Vec<SocketAddr>,
    prefix: String,
    /// This process: unlike any other's.
    me: String,
    /// `mod_revision` of the views that were last read or written; 0: there are none.
    revision: u64,
    leading: bool,
    led_until: Instant,
    last_error: String,
}

impl Etcd {
    /// Nothing is asked yet.
    pub fn new(endpoints: Vec<SocketAddr>, prefix: String, me: String) -> Etcd {
        let (leading, led_until) = (false, Instant::now());
        Etcd { endpoints, prefix, me, revision: 0, leading, led_until, last_error: String::new() }
    }

    /// Runs until the controller is gone: writes what comes in, keeps up the election, reads what another controller wrote.
    pub fn run(mut self, decisions: &Receiver<Views>, told: &Sender<Told>) {
        let mut look_at = Instant::now();
        loop {
            let news = match decisions.recv_timeout(look_at.saturating_duration_since(Instant::now())) {
                Ok(views) => vec![self.write(&views)],
                Err(RecvTimeoutError::Timeout) => {
                    look_at = Instant::now() + EVERY;
                    self.look()
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for input in news {
                if told.send(input).is_err() {
                    return;
                }
            }
        }
    }

    fn look(&mut self) -> Vec<Told> {
        let mut news = Vec::new();
        // Read before it leads: who decides must have seen the newest decision.
        if self.leading {
            news.extend(self.still_there());
        } else {
            self.load(&mut news);
        }
        match self.elect() {
            Ok(true) => self.led_until = Instant::now() + Duration::from_secs(u64::from(LEADER_TTL_S)) - TIMEOUT,
            Ok(false) => self.led_until = Instant::now(),
            Err(problem) => self.log(problem),
        }
        let leading = Instant::now() < self.led_until;
        if leading != std::mem::replace(&mut self.leading, leading) {
            tracing::info!(name = self.me, leading, "election");
            if leading {
                // Written between our reading and our election.
                self.load(&mut news);
            }
            news.push(Told::Input(Input::Leading(leading)));
        }
        news
    }

    fn load(&mut self, news: &mut Vec<Told>) {
        match self.read() {
            Ok(Some(views)) => news.extend([Told::Input(Input::Loaded(views)), Told::Read { found: true }]),
            Ok(None) => news.extend([Told::Read { found: false }].into_iter().chain(self.missing())),
            Err(problem) => self.log(problem),
        }
    }

    /// Whether the views that were read or written are there still: asked without reading them, so that no write can take the place of what was not seen.
    fn still_there(&mut self) -> Option<Told> {
        match self.ask("/v3/kv/range", &json!({"key": self.key("views"), "count_only": true})) {
            Ok(answer) if number(&answer["count"]) == 0 => self.missing(),
            Ok(_) => Some(Told::Read { found: true }),
            Err(problem) => {
                self.log(problem);
                None
            }
        }
    }

    fn missing(&self) -> Option<Told> {
        let lost = format!(
            "etcd has no {}views any more, and had them: its data was lost; nothing is decided. Stop all controllers and run `stateplane controller rebuild`",
            self.prefix
        );
        (self.revision != 0).then_some(Told::Missing(lost))
    }

    fn log(&mut self, problem: String) {
        if problem != self.last_error {
            tracing::error!(name = self.me, problem, "etcd");
            self.last_error = problem;
        }
    }

    /// Writes the views in the place of those that were last read or written, and only then.
    pub(super) fn write(&mut self, views: &Views) -> Told {
        let key = self.key("views");
        let compare =
            json!([{"key": key, "target": "MOD", "mod_revision": self.revision.to_string(), "result": "EQUAL"}]);
        let put = json!([{"requestPut": {"key": key, "value": base64(&views.to_json())}}]);
        match self.ask("/v3/kv/txn", &json!({"compare": compare, "success": put})) {
            Ok(answer) if answer["succeeded"] == json!(true) => {
                self.revision = number(&answer["header"]["revision"]);
                Told::Input(Input::Persisted)
            }
            // Not known whether it was written: what is there now tells.
            other => {
                let why = other.err().unwrap_or_else(|| {
                    format!("etcd has other {}views than those that this decision goes by, or none", self.prefix)
                });
                match self.read() {
                    Ok(Some(found)) if found == *views => Told::Input(Input::Persisted),
                    Ok(found) => Told::Refused { found, why },
                    Err(problem) => Told::Refused { found: None, why: problem },
                }
            }
        }
    }

    pub(super) fn read(&mut self) -> Result<Option<Views>, String> {
        let answer = self.ask("/v3/kv/range", &json!({"key": self.key("views")}))?;
        let Some((views, revision)) = stored(&answer).map_err(|problem| format!("{}views: {problem}", self.prefix))?
        else {
            return Ok(None);
        };
        self.revision = revision;
        Ok(Some(views))
    }

    /// Whether this process leads: it does, and says so for another time to live; or nobody does, and now it does.
    fn elect(&mut self) -> Result<bool, String> {
        let (key, me) = (self.key("leader"), base64(self.me.as_bytes()));
        let lease = self.ask("/v3/lease/grant", &json!({"TTL": LEADER_TTL_S, "ID": 0}))?["ID"].clone();
        let put = json!([{"requestPut": {"key": key, "value": me, "lease": lease}}]);
        let still = json!([{"key": key, "target": "VALUE", "value": me, "result": "EQUAL"}]);
        let free = json!([{"key": key, "target": "CREATE", "create_revision": "0", "result": "EQUAL"}]);
        for compare in [still, free] {
            let answer = self.ask("/v3/kv/txn", &json!({"compare": compare, "success": put}))?;
            if answer["succeeded"] == json!(true) {
                return Ok(true);
            }
        }
        let _ = self.ask("/v3/lease/revoke", &json!({"ID": lease}));
        Ok(false)
    }

    fn key(&self, name: &str) -> String {
        base64(format!("{}{name}", self.prefix).as_bytes())
    }

    /// Asks the endpoints in turn; the one that answered is asked first the next time.
    fn ask(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        let mut problem = String::new();
        for at in 0..self.endpoints.len() {
            match post(self.endpoints[at], path, &body.to_string()) {
                Ok(answer) => {
                    self.endpoints.swap(0, at);
                    return Ok(answer);
                }
                Err(error) => problem = format!("{}: {error}", self.endpoints[at]),
            }
        }
        Err(problem)
    }
}

/// The views, and their revision, in the gateway's answer to a question for them.
fn stored(answer: &Value) -> Result<Option<(Views, u64)>, String> {
    let Some(found) = answer["kvs"].get(0) else { return Ok(None) };
    let json = from_base64(found["value"].as_str().unwrap_or_default()).ok_or("a value that is not base64")?;
    let views = Views::from_json(&json).map_err(|_| "not this program's")?;
    Ok(Some((views, number(&found["mod_revision"]))))
}

/// The same in the bytes of a whole HTTP answer.
pub fn views_in_answer(answer: &[u8]) -> Result<Option<(Views, u64)>, String> {
    stored(&answer_json("/v3/kv/range", answer)?)
}

fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// One HTTP/1.0 request on a connection of its own: the answer ends with the connection.
fn post(endpoint: SocketAddr, path: &str, body: &str) -> Result<Value, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&endpoint, TIMEOUT).map_err(text)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(text)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(text)?;
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {endpoint}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).map_err(text)?;
    let mut answer = Vec::new();
    stream.take(MOST_ANSWER_BYTES).read_to_end(&mut answer).map_err(text)?;
    answer_json(path, &answer)
}

/// The JSON in an HTTP answer.
fn answer_json(path: &str, answer: &[u8]) -> Result<Value, String> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("an answer that is no HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("{path}: HTTP {status}: {body}"));
    }
    serde_json::from_str(body).map_err(|error| format!("{path}: {error}"))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648 §4, as the gateway has bytes.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = word >> (18 - 6 * digit) & 63;
            text.push(if digit <= chunk.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').bytes();
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0u32, 0);
    for digit in digits {
        let value = DIGITS.iter().position(|known| *known == digit)? as u32; // below 64
        (word, bits) = (word << 6 | value, bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8); // its lowest 8 bits
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_rfcs() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), text);
            assert_eq!(from_base64(text).unwrap(), plain.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_base64(&base64(&all)).unwrap(), all);
        assert!(from_base64("a!b").is_none());
    }
}
