//! A case's own network, as the kernel answers for it. Needs root.

#[path = "../../../switch/dataplane/tests/fixture/mod.rs"]
mod fixture;

use dataplane::{Dataplane, Object, Settings};
use packet_test::{Case, Systems, run_case};

fn load() -> Result<Dataplane, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut object = Object::open(&fixture::build(directory.path(), &[]), fixture::manifest())
        .map_err(|error| error.to_string())?;
    object
        .set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })
        .map_err(|error| error.to_string())?;
    object.load().map_err(|error| error.to_string())
}

const NETWORK: &str = "\
# port: 3 mac 02:00:00:00:00:a3 address 10.0.0.1/24 address 2001:db8::1/64
# port: 4 mac 02:00:00:00:00:a4
# neighbor: 10.0.0.5 mac 02:00:00:00:00:05 port 3
# neighbor: 2001:db8::5 mac 02:00:00:00:00:05 port 3
# route: 198.51.100.0/24 via 10.0.0.5 port 3
# route: 2001:db8:1::/48 via 2001:db8::5 port 3
# route: 198.18.0.0/15 blackhole
";

/// What `ip` says in this thread's network.
fn ip(arguments: &str) -> String {
    let output = std::process::Command::new("ip").args(arguments.split(' ')).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn this_network() -> std::path::PathBuf {
    std::fs::read_link("/proc/thread-self/ns/net").unwrap()
}

#[test]
fn the_network_is_as_the_case_says_and_only_there() {
    let case = Case::parse("case.stf", NETWORK, Systems::NONE).unwrap();
    let outside = this_network();
    let seen = std::sync::Mutex::new(vec![]);
    let report = run_case(&case, Systems::NONE, || {
        let mut seen = seen.lock().unwrap();
        seen.push(this_network().display().to_string());
        for question in [
            "link show",
            "neighbor show",
            "route show",
            "-6 route show",
            "-6 neighbor show",
            "-6 address show",
        ] {
            seen.push(ip(question));
        }
        for name in ["all", "lo", "port3"] {
            seen.push(
                std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/forwarding"))
                    .unwrap(),
            );
        }
        load()
    });
    assert!(report.passed(), "{:?}", report.failures);
    let seen = seen.into_inner().unwrap();
    assert_ne!(seen[0], outside.display().to_string());
    for (answer, part) in [
        (1, "port4@"),
        (1, "02:00:00:00:00:a3"),
        (2, "10.0.0.5 dev port3 lladdr 02:00:00:00:00:05 PERMANENT"),
        (3, "198.51.100.0/24 via 10.0.0.5 dev port3"),
        (3, "blackhole 198.18.0.0/15"),
        (4, "2001:db8:1::/48 via 2001:db8::5 dev port3"),
        (5, "2001:db8::5 dev port3 lladdr 02:00:00:00:00:05 PERMANENT"),
        (6, "2001:db8::1/64"),
        (7, "1"),
        (8, "1"),
        (9, "1"),
    ] {
        assert!(seen[answer].contains(part), "{part:?} is not in {:?}", seen[answer]);
    }
    let own = seen[6].lines().find(|line| line.contains("2001:db8::1/64")).unwrap_or_default();
    assert!(!own.contains("tentative"), "{own}");
    assert_eq!(this_network(), outside);
    assert!(!ip("link show").contains("port4@"));
}

#[test]
fn what_the_kernel_refuses_is_told_with_its_line() {
    for (line, part) in [
        ("# route: 10.9.0.1/8 via 10.0.0.5 port 3", "ip route add 10.9.0.1/8"),
        ("# route: 10.9.0.0/16 via 10.8.0.5 port 3", "ip route add 10.9.0.0/16"),
    ] {
        let case = Case::parse("case.stf", &format!("{NETWORK}{line}\n"), Systems::NONE).unwrap();
        let report = run_case(&case, Systems::NONE, load);
        assert_eq!(report.failures.len(), 1, "{line}: {:?}", report.failures);
        assert_eq!(report.failures[0].line, 8, "{line}");
        assert!(report.failures[0].to_string().contains(part), "{}", report.failures[0]);
    }
    let case =
        Case::parse("case.stf", "# port: 9999 mac 02:00:00:00:00:01\n", Systems::NONE).unwrap();
    let report = run_case(&case, Systems::NONE, load);
    assert!(report.failures[0].to_string().starts_with("case.stf:1: "), "{:?}", report.failures);
}
