//! The lines, as they are read.

use packet_test::Words;
use packet_test::stf::{Wrong, wrong};
use redplane_switch::MAX_POOL_ADDRESSES;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Leases of this length where the line gives none, as in `store.toml`.
const DEFAULT_LEASE_MS: u32 = 250;
/// Switches end leases some 12 ms early; and a store that dies is not part of a case.
const LEASES_MS: std::ops::RangeInclusive<u32> = 50..=60_000;

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreLine {
    /// How long it leases a session's flows.
    pub lease_ms: u32,
}

impl StoreLine {
    /// `[lease_ms N]`
    pub fn parse(words: &mut Words<'_, '_>) -> Result<StoreLine, Wrong> {
        let mut store = StoreLine { lease_ms: DEFAULT_LEASE_MS };
        if words.peek().is_some() {
            words.literal("lease_ms")?;
            let (at, lease_ms) = words.parsed("a number of milliseconds")?;
            if !LEASES_MS.contains(&lease_ms) {
                let (low, high) = (LEASES_MS.start(), LEASES_MS.end());
                return wrong(at, format!("{lease_ms} is out of range; write {low} to {high}"));
            }
            store.lease_ms = lease_ms;
        }
        Ok(store)
    }
}

/// External addresses and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NatPool {
    /// The FlowState that allocates from it: its name, or a last part that is unique.
    pub flow_state: String,
    /// 1 to [`MAX_POOL_ADDRESSES`].
    pub addresses: Vec<Ipv4Addr>,
    /// The lowest port.
    pub port_low: u16,
    /// The highest port, included.
    pub port_high: u16,
}

impl NatPool {
    /// `FLOWSTATE ADDRESS… ports LOW-HIGH`
    pub fn parse(words: &mut Words<'_, '_>) -> Result<NatPool, Wrong> {
        let (_, flow_state) = words.next("a FlowState's name")?;
        let mut addresses = vec![];
        let what = "an IPv4 address, or `ports LOW-HIGH`,";
        while words.peek().is_none_or(|(_, word)| word != "ports") {
            let (at, text) = words.next(what)?;
            match text.parse() {
                Ok(address) if addresses.len() < MAX_POOL_ADDRESSES => addresses.push(address),
                Ok(_) => {
                    return wrong(at, format!("a pool has at most {MAX_POOL_ADDRESSES} addresses"));
                }
                Err(_) => return wrong(at, format!("{text:?}: {what} belongs here")),
            }
        }
        if let ([], Some((at, _))) = (&addresses[..], words.peek()) {
            return wrong(at, "an IPv4 address belongs before the ports");
        }
        words.literal("ports")?;
        let (at, text) = words.next("LOW-HIGH")?;
        let range = text
            .split_once('-')
            .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        match range {
            Some((port_low, port_high)) if port_low <= port_high => {
                Ok(NatPool { flow_state: flow_state.to_owned(), addresses, port_low, port_high })
            }
            _ => wrong(at, format!("{text:?} is not LOW-HIGH such as 1024-65535")),
        }
    }
}

/// Backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backends {
    /// The FlowState that picks from them: its name, or a last part that is unique.
    pub flow_state: String,
    /// Each with its weight.
    pub backends: Vec<(SocketAddrV4, u32)>,
}

impl Backends {
    /// `FLOWSTATE ADDRESS:PORT[*WEIGHT]…`
    pub fn parse(words: &mut Words<'_, '_>) -> Result<Backends, Wrong> {
        let (_, flow_state) = words.next("a FlowState's name")?;
        let what = "ADDRESS:PORT or ADDRESS:PORT*WEIGHT";
        let mut backends = vec![];
        while backends.is_empty() || words.peek().is_some() {
            let (at, text) = words.next(what)?;
            let (address, weight) = text.split_once('*').unwrap_or((text, "1"));
            match (address.parse(), weight.parse()) {
                (Ok(address), Ok(weight)) => backends.push((address, weight)),
                _ => return wrong(at, format!("{text:?} is not {what}")),
            }
        }
        Ok(Backends { flow_state: flow_state.to_owned(), backends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedPlane;
    use packet_test::{Case, Systems};

    fn parse(text: &str) -> Result<Case, Vec<packet_test::StfError>> {
        Case::parse("x.stf", text, Systems(&[&RedPlane]))
    }

    #[test]
    fn reads_every_line() {
        let case = parse(
            "# store: lease_ms 100\n# nat_pool: ingress.b 203.0.113.1 203.0.113.2 ports 1024-2047\n\
             # backends: b 10.0.0.1:80 10.0.0.2:81*3\n",
        );
        let lines = case.unwrap_or_else(|errors| panic!("{errors:?}")).setup.systems;
        assert_eq!(lines[0].read(StoreLine::parse), Ok(StoreLine { lease_ms: 100 }));
        let pool = lines[1].read(NatPool::parse).expect("a pool");
        assert_eq!(
            (pool.flow_state.as_str(), pool.port_low, pool.port_high),
            ("ingress.b", 1024, 2047)
        );
        assert_eq!(pool.addresses, [[203, 0, 113, 1], [203, 0, 113, 2]].map(Ipv4Addr::from));
        let given = lines[2].read(Backends::parse).expect("backends");
        let expected = [("10.0.0.1:80", 1), ("10.0.0.2:81", 3)];
        assert_eq!(
            given.backends,
            expected.map(|(to, weight)| (to.parse().expect("address"), weight))
        );
        assert_eq!((lines[0].number, lines[2].number), (1, 3));
    }

    #[test]
    fn says_where_a_line_is_wrong() {
        for (line, column, part) in [
            ("# nat_pool: b ports 1-2", 15, "before the ports"),
            ("# nat_pool: b 10.0.0.1", 23, "belongs here"),
            ("# nat_pool: b 10.0.0.1 ports 2-1", 30, "not LOW-HIGH"),
            ("# nat_pool: b é ports 2-1", 15, "belongs here"),
            ("# backends: b", 14, "belongs here"),
            ("# backends: b 10.0.0.1:80 10.0.0.2", 27, "is not ADDRESS:PORT"),
            ("# backends: b 10.0.0.1:80*x", 15, "is not ADDRESS:PORT"),
            ("# store: here", 10, "`lease_ms` belongs here"),
            ("# store: lease_ms", 18, "a number of milliseconds belongs here"),
            ("# store: lease_ms 49", 19, "write 50 to 60000"),
            ("# store: lease_ms 50 ms", 22, "nothing may follow"),
        ] {
            let errors = parse(&format!("\n{line}\n")).expect_err(line);
            let found = (errors.len(), errors[0].line, errors[0].column);
            assert_eq!(found, (1, 2, column), "{line}: {}", errors[0]);
            assert!(errors[0].reason.contains(part), "{line}: {}", errors[0]);
        }
        let many = format!("# nat_pool: b {}ports 1-2", "10.0.0.1 ".repeat(17));
        assert!(parse(&many).is_err());
        for line in ["# backends: b 10.0.0.1:80", "# nat_pool: b 10.0.0.1 ports 1-2", "# store:"] {
            let errors = parse(&format!("{line}\n{line}\n")).expect_err("twice");
            assert!(errors[0].to_string().contains("line 1 gives it"), "{}", errors[0]);
        }
    }
}
