//! The clients' examples, for real: Rust, C and Python, as pages have them, against three switches.
//! Needs root. Waits for timers.

mod common;
#[path = "lab_chain/founding.rs"]
mod founding;
#[path = "../../../systems/netchain/client/examples/greeting.rs"]
#[allow(dead_code, reason = "`main` is the example's own")]
mod greeting;
mod page;

use common::{TestLab, skip};
use founding::{CLUSTER, client_in, found, identity};
use netchain_client::{AsyncClient, Config, Key, Outcome};
use netchain_recipes::{Blocking, Election, Lock, Membership, Semaphore, wait};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systems/netchain");

/// A folder with a client's configuration.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(lab: &TestLab) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let key = identity(lab);
        let text = format!("cluster = {CLUSTER:?}\nidentity = {key:?}\n");
        std::fs::write(folder.path("kv.toml"), text).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// Runs a command on the host; it must succeed.
fn on_host(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn examples_run_against_switches() {
    if skip() {
        return;
    }
    let lab = TestLab::up("clients", "../../systems/netchain/lab/chain.toml", &[]);
    found(&lab);
    let mut client = client_in(&lab);
    // Routes may still be on their way.
    let (began, first) = (Instant::now(), Key::from_name("first").unwrap());
    while !matches!(client.get(&first).unwrap(), Outcome::Done(_)) {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody answers");
    }
    let folder = Folder::new(&lab);
    rust(&lab, &folder);
    tokio_client(&lab);
    recipes(&lab, &folder);
    commands(&lab, &folder);
    many_keys(&lab, &folder);
    c(&lab, &folder);
    python(&lab, &folder);
    lab.down();
}

/// A page's examples in a language.
fn examples(page: &str, language: &str) -> Vec<String> {
    let text = page::read(&format!("systems/netchain/{page}"));
    let found: Vec<String> = page::texts(&text, language).into_iter().map(str::to_owned).collect();
    assert!(!found.is_empty(), "{page}: no {language}");
    found
}

/// The pages have what `greeting.rs` has, which runs.
fn rust(lab: &TestLab, folder: &Folder) {
    let lines = |text: &str| text.lines().map(|it| it.trim().to_owned() + "\n").collect::<String>();
    let source = lines(&page::read("systems/netchain/client/examples/greeting.rs"));
    for page in ["README.md", "client/README.md"] {
        for example in examples(page, "rust") {
            let example = lines(&example.replace("\"kv.toml\"", "file"));
            assert!(source.contains(&example), "{page}: not in greeting.rs:\n{example}");
        }
    }
    let file = folder.text("kv.toml");
    let run =
        move || greeting::greet(&file).map_err(|error| std::io::Error::other(error.to_string()));
    lab.netns("client").run(run).expect("greeting.rs");
    let read = client_in(lab).get(&Key::from_name("greeting").unwrap()).unwrap();
    assert_eq!(read.done().expect("a read").now.value, Some(b"hello".to_vec()));
}

/// Many requests at a time, from a runtime whose thread is in the client's namespace.
fn tokio_client(lab: &TestLab) {
    let config = Config { identity: Some(identity(lab)), ..founding::config() };
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = AsyncClient::new(config).map_err(std::io::Error::other)?;
            let counter = Key::from_name("async").map_err(std::io::Error::other)?;
            let adding: Vec<_> =
                (0..1_000).map(|_| tokio::spawn(client.add(&counter, 1))).collect();
            for one in adding {
                assert!(one.await?.map_err(std::io::Error::other)?.done().is_some());
            }
            let total = client.get(&counter).await.map_err(std::io::Error::other)?;
            let total = total.done().expect("done").now.value;
            assert_eq!(total, Some(1_000u64.to_be_bytes().to_vec()));
            client.close().await;
            Ok(())
        })
    };
    lab.netns("client").run(run).expect("tokio");
}

fn recipes(lab: &TestLab, folder: &Folder) {
    let file = folder.path("kv.toml");
    let run = move || {
        let store = Blocking::open(&file).map_err(std::io::Error::other)?;
        let other = Blocking::open(&file).map_err(std::io::Error::other)?;
        let lease = Duration::from_millis(500);
        let lock = Lock::new(&store, "lock", lease).unwrap();
        let held = wait(lock.take(None)).unwrap().expect("nobody else has it");
        let rival = Lock::new(&other, "lock", lease).unwrap();
        assert!(wait(rival.take(Some(Duration::from_millis(50)))).unwrap().is_none());
        let token = held.token();
        // Never released: the rival judges the lease.
        std::mem::forget(held);
        let taken = wait(rival.take(None)).unwrap().expect("after the lease");
        assert!(taken.token() > token);
        wait(taken.release()).unwrap();
        // A key has places for 15.
        let all = Semaphore::new(&store, "seats", 15, Duration::from_secs(30)).unwrap();
        assert!(Semaphore::new(&store, "seats", 16, lease).is_err());
        let take = |patience| wait(all.take(patience)).unwrap();
        let mut seats: Vec<_> = (0..15).map(|_| take(None).expect("a seat")).collect();
        assert!(take(Some(Duration::from_millis(50))).is_none(), "no place");
        wait(seats.pop().expect("the last").release()).unwrap();
        seats.push(take(None).expect("a free seat"));
        for seat in seats {
            wait(seat.release()).unwrap();
        }
        let election = Election::new(&store, "leader", lease).unwrap();
        let leader = wait(election.campaign(b"one", None)).unwrap().expect("no rival");
        let seen = wait(Election::new(&other, "leader", lease).unwrap().leader()).unwrap();
        assert_eq!(seen.expect("a leader").name, b"one");
        wait(leader.resign()).unwrap();
        let group = Membership::new(&store, "group", 8).unwrap();
        let member = wait(group.join(b"a", lease, None)).unwrap().expect("a place");
        let seen = wait(group.observer().look()).unwrap().expect("all answer");
        assert_eq!(seen, [(member.place(), b"a".to_vec())]);
        wait(member.leave()).unwrap();
        assert_eq!(wait(group.observer().look()).unwrap(), Some(vec![]));
        Ok(())
    };
    lab.netns("client").run(run).expect("recipes");
}

/// `kv lock` and `kv bench`.
fn commands(lab: &TestLab, folder: &Folder) {
    let program = env!("CARGO_BIN_EXE_stateplane");
    let kv = |words: &str| {
        let command = format!("{program} kv --config {} {words}", folder.text("kv.toml"));
        lab.run("client", &command)
    };
    let script = folder.path("work.sh");
    let text = "#!/bin/sh\nprintf %s \"$STATEPLANE_LOCK_TOKEN\"\nsleep 0.4\nexit ${1:-0}\n";
    std::fs::write(&script, text).unwrap();
    let work = format!("sh {}", script.display());
    let (good, first) = kv(&format!("lock job --lease-ms 200 -- {work}"));
    let (again, second) = kv(&format!("lock job --lease-ms 200 -- {work}"));
    let token = |said: &str| said.trim().parse::<u64>().unwrap_or_else(|_| panic!("{said}"));
    assert!(good && again && token(&second) > token(&first), "{first} {second}");
    let (good, said) = kv(&format!("lock job --lease-ms 200 -- {work} 7"));
    assert!(!good && token(&said) > token(&second), "{said}");
    let (good, said) = kv("lock job --lease-ms 200 -- /no/such/program");
    assert!(!good && said.contains("/no/such/program"), "{said}");
    // A key of another kind is not taken for a lock.
    kv("put job2 value");
    assert!(kv("lock job2 -- true").1.contains("another kind"));
    let (good, said) = kv("--json bench --seconds 0.2 --keys 20 --outstanding 64 --writes 50");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert!(good && told["outcomes"]["done"] == told["requests"], "{told}");
    assert!(told["read_us"]["p50"].as_f64().is_some_and(|us| us > 0.0), "{told}");
    let (good, said) = kv("bench --seconds 0.2 --keys 20 --rate 500 --outstanding 64");
    assert!(good && said.contains("outcomes: done"), "{said}");
}

/// `kv list`, `kv export`, `kv import`, and listings by the clients.
fn many_keys(lab: &TestLab, folder: &Folder) {
    let program = env!("CARGO_BIN_EXE_stateplane");
    let kv = |words: &str| {
        let command = format!("{program} kv --config {} {words}", folder.text("kv.toml"));
        lab.run("client", &command)
    };
    let lines = |said: &str| {
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let pair = |number: u32| format!("{{\"key\":\"m/{number:03}\",\"value\":\"v{number}\"}}\n");
    let file = folder.path("in.jsonl");
    std::fs::write(&file, (0..200).map(pair).collect::<String>()).unwrap();
    let (good, said) = kv(&format!("--json import {}", file.display()));
    let told: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert!(good && told["written"] == 200, "{said}");
    let (good, said) = kv(&format!("import {}", file.display()));
    assert!(!good && said.contains("200 have a value already"), "{said}");
    kv("delete m/007");
    let (good, said) = kv("list m/");
    let expected: Vec<String> =
        (0..200).filter(|it| *it != 7).map(|it| format!("m/{it:03}")).collect();
    assert!(good && lines(&said) == expected, "{said}");
    let (good, said) = kv("list m/ --limit 12");
    assert!(good && said.lines().count() == 12, "{said}");
    let (good, said) = kv("--json list m/19");
    let expected: Vec<String> = (190..200).map(|it| format!("{{\"key\":\"m/{it}\"}}")).collect();
    assert!(good && lines(&said) == expected, "{said}");
    let (good, said) = kv("--json inspect m/001");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert!(good && told["outcome"] == "done" && told["value_bytes"] == 2, "{said}");
    let places: Vec<_> =
        told["switches"].as_array().unwrap().iter().map(|it| &it["place"]).collect();
    assert_eq!((places.len(), &told["view"]), (3, &told["switches"][0]["view"]), "{said}");
    let (good, said) = kv("inspect m/001");
    assert!(good && said.contains("head") && said.contains("has a part"), "{said}");
    assert_eq!(kv("add count 44").1.trim(), "44");
    assert_eq!(kv("add count -2").1.trim(), "42");
    let (_, said) = kv("--json get count");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((&told["value_hex"], &told["number"]), (&"000000000000002a".into(), &42.into()));
    let out = folder.path("out.jsonl");
    let (good, said) = kv(&format!("export --prefix m/ {}", out.display()));
    let exported = std::fs::read_to_string(&out).unwrap_or_default();
    let expected: String = (0..200).filter(|it| *it != 7).map(pair).collect();
    assert!(good && exported == expected, "{said} {exported}");
    std::fs::write(&file, pair(7) + "{\"key\":\"m/008\",\"value\":\"other\"}\n").unwrap();
    assert!(kv(&format!("import --overwrite {}", file.display())).0);
    assert_eq!(kv("get m/008").1.trim(), "other");
    std::fs::write(&file, pair(7) + "nothing\n").unwrap();
    let (good, said) = kv(&format!("import {}", file.display()));
    assert!(!good && said.contains("in.jsonl:2:"), "{said}");
    let config = Config { identity: Some(identity(lab)), ..founding::config() };
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = AsyncClient::new(config).map_err(std::io::Error::other)?;
            let (mut keys, mut count) = (client.list(b"m/").map_err(std::io::Error::other)?, 0);
            while let Some(key) = keys.next().await {
                key.map_err(std::io::Error::other)?;
                count += 1;
            }
            assert_eq!(count, 200);
            Ok(())
        })
    };
    lab.netns("client").run(run).expect("a listing");
}

fn c(lab: &TestLab, folder: &Folder) {
    let run = |source: &Path, name: &str| {
        let out = folder.text(name);
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        on_host(
            Command::new("cc")
                .args(["-std=c11", "-Wall", "-Werror", &format!("-I{HERE}/client-c/include")])
                .arg(source)
                .arg(deps.join("libnetchain.a"))
                .args(["-lpthread", "-ldl", "-lm", "-o", &out]),
        );
        lab.must_run("client", &format!("{out} {}", folder.text("kv.toml")))
    };
    let said = run(Path::new(&format!("{HERE}/client-c/examples/greeting.c")), "greeting");
    assert_eq!(said.trim(), "hello\n100 additions\ngreeting\nlocked: 1");
    for page in ["README.md", "client-c/README.md"] {
        for example in examples(page, "c") {
            let example = example.replace("kv.toml", &folder.text("kv.toml"));
            let text = format!(
                "#include <netchain.h>\n#include <stdio.h>\n\
                 int main(void) {{\n{example}\nnc_close(client);\nreturn 0;\n}}\n"
            );
            let source = folder.path("example.c");
            std::fs::write(&source, text).unwrap();
            assert_eq!(run(&source, "example").trim(), "hello", "{page}");
        }
    }
}

/// `pip install` of the source tree into a fresh environment, then the pages' examples.
fn python(lab: &TestLab, folder: &Folder) {
    let venv = folder.text("venv");
    on_host(Command::new("python3").args(["-m", "venv", &venv]));
    let source = format!("{HERE}/python");
    let pip = format!("{venv}/bin/pip");
    on_host(Command::new(pip).args(["install", "--no-index", "--quiet", &source]));
    let own = examples("python/README.md", "python");
    assert!(own.len() >= 3, "{own:?}");
    for example in own.into_iter().chain(examples("README.md", "python")) {
        let file = folder.path("example.py");
        std::fs::write(&file, example.replace("kv.toml", &folder.text("kv.toml"))).unwrap();
        lab.must_run("client", &format!("{venv}/bin/python {}", file.display()));
    }
    let test = format!("{source}/tests/with_switches.py");
    let said =
        lab.must_run("client", &format!("{venv}/bin/python {test} {}", folder.text("kv.toml")));
    assert!(said.contains("OK"), "{said}");
}
