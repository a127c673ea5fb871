//! What surrounds the switch in a case: macros, and for programs that ask the kernel's routes (`fib_lookup`), a network namespace with ports,
//! neighbours and routes that only this case has. It stands in comments of the STF file, so that the file stays plain STF:
//!
//! | comment | meaning |
//! | --- | --- |
//! | `# define: NAME[=VALUE]` | the program is compiled with this macro |
//! | `# port: N mac MAC [address ADDRESS/LENGTH]` | P4 port N is an interface |
//! | `# neighbor: ADDRESS mac MAC port N` | who has this address |
//! | `# route: PREFIX via ADDRESS port N`, `# route: PREFIX unreachable` | also `blackhole` and `prohibit` |
//! | `# nat_pool: OBJECT ADDRESS… ports LOW-HIGH` | what a local NAT_PORTS allocator draws from |

use crate::stf::StfError;
use dataplane::Dataplane;
use nix::sched::{CloneFlags, unshare};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

/// The environment that a case asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `-D` definitions that the program must be compiled with.
    pub defines: Vec<String>,
    /// P4 ports with an interface.
    ports: Vec<u32>,
    /// Lines for `ip -batch`: links and their addresses.
    links: Vec<String>,
    /// Lines for `ip -batch`: neighbours and routes, when all links are up.
    routes: Vec<String>,
    /// Addresses, lowest and highest port of the local NAT allocator.
    nat_pool: Option<(Vec<Ipv4Addr>, u16, u16)>,
}

impl Environment {
    /// Reads the directives in a case's comments. Comments of other forms are comments.
    pub fn parse(path: &str, text: &str) -> Result<Environment, Vec<StfError>> {
        let (mut environment, mut errors) = (Environment::default(), vec![]);
        for (number, line) in (1..).zip(text.lines()) {
            let Some((name, rest)) = line.trim().strip_prefix('#').and_then(|line| line.trim().split_once(':')) else {
                continue;
            };
            let words: Vec<&str> = rest.split_whitespace().collect();
            let reason = match environment.directive(name, &words) {
                Some(Ok(())) | None => continue,
                Some(Err(form)) => format!("write `# {name}: {form}`"),
            };
            let column = line.chars().take_while(|character| *character != '#').count() as u32 + 1;
            errors.push(StfError { path: path.to_owned(), line: number, column, reason });
        }
        if errors.is_empty() { Ok(environment) } else { Err(errors) }
    }

    /// None: not a directive. An error: the form that it should have.
    fn directive(&mut self, name: &str, words: &[&str]) -> Option<Result<(), &'static str>> {
        let done = match name {
            "define" => self.define(words).ok_or("NAME[=VALUE]"),
            "port" => self.port(words).ok_or("NUMBER mac MAC [address ADDRESS/LENGTH]"),
            "neighbor" => self.neighbor(words).ok_or("ADDRESS mac MAC port NUMBER"),
            "route" => self.route(words).ok_or("PREFIX via ADDRESS port NUMBER, or PREFIX unreachable"),
            "nat_pool" => self.pool(words).ok_or("OBJECT ADDRESS… ports LOW-HIGH"),
            _ => return None,
        };
        Some(done)
    }

    fn define(&mut self, words: &[&str]) -> Option<()> {
        let [define] = words else { return None };
        self.defines.push((*define).to_owned());
        Some(())
    }

    fn port(&mut self, words: &[&str]) -> Option<()> {
        let (port, mac, address) = match words {
            [port, "mac", mac] => (port, mac, None),
            [port, "mac", mac, "address", address] => (port, mac, Some(prefix(address)?)),
            _ => return None,
        };
        let (number, mac) = (port.parse().ok()?, self::mac(mac)?);
        self.links.push(format!("link add port{number} address {mac} type veth peer name peer{number}"));
        self.links.push(format!("link set peer{number} up"));
        self.links.push(format!("link set port{number} up"));
        self.links.extend(address.map(|address| format!("address add {address} dev port{number}")));
        self.ports.push(number);
        Some(())
    }

    fn neighbor(&mut self, words: &[&str]) -> Option<()> {
        let [address, "mac", mac, "port", port] = words else { return None };
        let (address, mac): (IpAddr, String) = (address.parse().ok()?, self::mac(mac)?);
        let port: u32 = port.parse().ok()?;
        self.routes.push(format!("neighbour replace {address} lladdr {mac} dev port{port} nud permanent"));
        Some(())
    }

    fn route(&mut self, words: &[&str]) -> Option<()> {
        let line = match words {
            [prefix, "via", hop, "port", port] => {
                let (prefix, hop, port): (_, IpAddr, u32) =
                    (self::prefix(prefix)?, hop.parse().ok()?, port.parse().ok()?);
                format!("route add {prefix} via {hop} dev port{port} onlink")
            }
            [prefix, kind @ ("unreachable" | "blackhole" | "prohibit")] => {
                format!("route add {kind} {}", self::prefix(prefix)?)
            }
            _ => return None,
        };
        self.routes.push(line);
        Some(())
    }

    fn pool(&mut self, words: &[&str]) -> Option<()> {
        let [_object, addresses @ .., "ports", range] = words else { return None };
        let addresses: Vec<Ipv4Addr> = addresses.iter().map(|text| text.parse().ok()).collect::<Option<_>>()?;
        let (low, high) = range.split_once('-')?;
        let (low, high) = (low.parse().ok()?, high.parse().ok()?);
        if addresses.is_empty() || addresses.len() > dataplane::MAX_POOL_ADDRESSES || low > high {
            return None;
        }
        self.nat_pool = Some((addresses, low, high));
        Some(())
    }

    /// Runs `body` in this environment: if it has ports, on a thread of its own in a network namespace that ends with it.
    pub fn within<T: Send>(&self, body: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
        if self.ports.is_empty() {
            return body();
        }
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET)
                    .map_err(|error| format!("a network namespace: {error}; run as root"))?;
                self.build()?;
                body()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn build(&self) -> Result<(), String> {
        let lines: Vec<&str> = self.links.iter().chain(&self.routes).map(String::as_str).collect();
        ip(&format!("link set lo up\n{}\n", lines.join("\n")))?;
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            let path = format!("/proc/sys/net/{setting}");
            match std::fs::write(&path, "1") {
                // A kernel without IPv6.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => other.map_err(|error| format!("{path}: {error}"))?,
            }
        }
        Ok(())
    }

    /// Tells a loaded object of its ports and pool; within [`Environment::within`].
    pub fn configure(&self, dataplane: &Dataplane) -> Result<(), String> {
        for port in &self.ports {
            let link = format!("port{port}");
            let index = nix::net::if_::if_nametoindex(link.as_str()).map_err(|error| format!("{link}: {error}"))?;
            dataplane.set_port(*port, index).map_err(|error| error.to_string())?;
        }
        if let Some((addresses, low, high)) = &self.nat_pool {
            dataplane.set_nat_pool(addresses, *low, *high).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Runs a script of `ip` commands in this thread's network namespace.
fn ip(script: &str) -> Result<(), String> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("ip (package iproute2): {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // If it has ended already, its own words say why.
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("the case's network: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Only what cannot be anything else reaches `ip`.
fn mac(text: &str) -> Option<String> {
    dataplane::value::parse_value("mac", text, 48).ok().filter(|_| text.contains(':')).map(|_| text.to_owned())
}

fn prefix(text: &str) -> Option<String> {
    let (address, length) = text.split_once('/')?;
    let bits = if address.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
    (length.parse::<u32>().ok()? <= bits).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_directives_and_leaves_comments() {
        let text = "# define: LOCAL\n# port: 0 mac 02:00:00:00:00:a0 address 10.0.0.1/24\n# port: 1 mac 02:00:00:00:00:a1\n\
                    # neighbor: 10.0.0.5 mac 02:00:00:00:00:05 port 0\n# route: 10.1.0.0/16 via 10.0.0.5 port 0\n\
                    # route: 10.2.0.0/16 unreachable\n# nat_pool: NatIngress.bindings 203.0.113.1 ports 1024-2047\n\
                    # a remark: not a directive\npacket 0 00\n";
        let environment = Environment::parse("a.stf", text).unwrap();
        assert_eq!((&environment.defines[..], &environment.ports[..]), (&["LOCAL".to_owned()][..], &[0, 1][..]));
        assert_eq!(environment.routes[2], "route add unreachable 10.2.0.0/16");
        assert_eq!(environment.nat_pool, Some((vec![Ipv4Addr::new(203, 0, 113, 1)], 1024, 2047)));
    }

    #[test]
    fn says_what_a_directive_should_look_like() {
        for line in [
            "# port: x mac 02:00:00:00:00:a0",
            "# port: 1 mac 02:00",
            "# port: 1 mac 02:00:00:00:00:a0 address 10.0.0.1",
            "# neighbor: 10.0.0.5 port 0",
            "# route: 10.1.0.0/33 via 10.0.0.5 port 0",
            "# route: 10.1.0.0/16 maybe",
            "# nat_pool: x ports 1-2",
            "# nat_pool: x 10.0.0.1 ports 3-2",
            "# define: A B",
        ] {
            let errors = Environment::parse("a.stf", line).unwrap_err();
            assert!(errors[0].to_string().starts_with("a.stf:1:1: write `# "), "{line}: {errors:?}");
        }
    }

    #[test]
    fn the_network_is_there_and_nobody_elses() {
        let text = "# port: 3 mac 02:00:00:00:00:01 address 192.0.2.1/24\n# neighbor: 192.0.2.9 mac 02:00:00:00:00:09 port 3\n\
                    # route: 198.51.100.0/24 via 192.0.2.9 port 3\n# route: 198.51.101.0/24 blackhole\n";
        let environment = Environment::parse("x.stf", text).unwrap();
        let index = || nix::net::if_::if_nametoindex("port3").map_err(|error| error.to_string());
        environment.within(index).unwrap();
        assert!(index().is_err());
    }
}
