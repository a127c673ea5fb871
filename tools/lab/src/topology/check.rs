//! What a topology must be: names, addresses, modes, commands.

use super::*;

impl Topology {
    pub(super) fn apply_templates(&mut self) -> Fallible {
        for (name, node) in &mut self.node {
            let Some(template) = &node.template else { continue };
            let Some(base) = self.template.get(template) else {
                return fail(
                    format!("node.{name}.template"),
                    format!("no [template.{template}]; there is {}", list(self.template.keys())),
                );
            };
            *node = merge(base, node);
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Fallible {
        check_name("name", &self.name)?;
        if self.node.is_empty() {
            return fail("node", "a topology needs at least one [node.NAME]");
        }
        for (name, node) in &self.node {
            self.check_node(name, node)?;
        }
        let mut seen = BTreeSet::new();
        for (i, link) in self.link.iter().enumerate() {
            self.check_end(&format!("link[{i}].a"), &link.a)?;
            self.check_end(&format!("link[{i}].b"), &link.b)?;
            self.check_link(i, link, &mut seen)?;
        }
        if let Some(prefer) = &self.prefer {
            self.known_node("prefer", prefer)?;
        }
        self.check_commands("build", &self.build)?;
        for mode in self.mode_vars.keys() {
            self.check_modes(&format!("mode_vars.{mode}"), std::slice::from_ref(mode))?;
        }
        for (i, probe) in self.ready.iter().enumerate() {
            self.known_node(&format!("ready[{i}].node"), &probe.node)?;
            check_command(&format!("ready[{i}].command"), &probe.command)?;
            self.check_modes(&format!("ready[{i}].modes"), &probe.modes)?;
        }
        if self.bfd.interval_ms == 0 || self.bfd.multiplier == 0 {
            return fail("bfd", "interval_ms and multiplier must be at least 1");
        }
        Ok(())
    }

    pub(super) fn check_node(&self, name: &str, node: &Node) -> Fallible {
        let at = format!("node.{name}");
        check_name(&at, name)?;
        if node.asn == Some(0) {
            return fail(format!("{at}.asn"), "AS number 0 is reserved (RFC 7607)");
        }
        if let Some(loopback) = &node.loopback {
            check_prefix(&format!("{at}.loopback"), loopback)?;
        }
        for (i, announce) in node.announce.iter().enumerate() {
            check_prefix(&format!("{at}.announce[{i}].prefix"), &announce.prefix)?;
            self.check_modes(&format!("{at}.announce[{i}].modes"), &announce.modes)?;
        }
        for (i, daemon) in node.daemon.iter().enumerate() {
            let at = format!("{at}.daemon[{i}]");
            check_name(&format!("{at}.name"), &daemon.name)?;
            let taken = node.daemon[..i].iter().any(|earlier| {
                earlier.name == daemon.name && modes_overlap(&earlier.modes, &daemon.modes)
            });
            if taken || daemon.name == "bird" {
                return fail(
                    format!("{at}.name"),
                    format!("\"{}\" is taken in this node", daemon.name),
                );
            }
            check_command(&format!("{at}.command"), &daemon.command)?;
            self.check_modes(&format!("{at}.modes"), &daemon.modes)?;
        }
        self.check_commands(&format!("{at}.setup"), &node.setup)?;
        self.check_commands(&format!("{at}.wipe"), &node.wipe)
    }

    pub(super) fn check_commands(&self, at: &str, commands: &[Setup]) -> Fallible {
        for (i, setup) in commands.iter().enumerate() {
            check_command(&format!("{at}[{i}].command"), &setup.command)?;
            self.check_modes(&format!("{at}[{i}].modes"), &setup.modes)?;
        }
        Ok(())
    }

    pub(super) fn check_link<'a>(
        &self,
        i: usize,
        link: &'a Link,
        seen: &mut BTreeSet<(&'a str, &'a str)>,
    ) -> Fallible {
        if link.a.node == link.b.node {
            return fail(
                format!("link[{i}].b.node"),
                format!("\"{}\" is at both ends; a link joins two nodes", link.b.node),
            );
        }
        let pair = if link.a.node < link.b.node {
            (link.a.node.as_str(), link.b.node.as_str())
        } else {
            (link.b.node.as_str(), link.a.node.as_str())
        };
        if !seen.insert(pair) {
            return fail(
                format!("link[{i}]"),
                format!("{}–{} are joined already; one link a pair", pair.0, pair.1),
            );
        }
        if !(576..=9000).contains(&link.mtu) {
            return fail(
                format!("link[{i}].mtu"),
                format!("{} is not between 576 and 9000", link.mtu),
            );
        }
        Ok(())
    }

    pub(super) fn check_end(&self, at: &str, end: &End) -> Fallible {
        self.known_node(&format!("{at}.node"), &end.node)?;
        check_prefix(&format!("{at}.address"), &end.address)
    }

    pub(super) fn known_node(&self, field: &str, name: &str) -> Fallible {
        if self.node.contains_key(name) {
            return Ok(());
        }
        fail(field, format!("no node \"{name}\"; there is {}", list(self.node.keys())))
    }

    pub(super) fn check_modes(&self, field: &str, modes: &[String]) -> Fallible {
        match modes.iter().find(|m| !self.modes.contains(m)) {
            Some(unknown) => fail(
                field,
                format!("no mode \"{unknown}\"; the topology's modes are {}", list(&self.modes)),
            ),
            None => Ok(()),
        }
    }
}

fn list<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<String> = names.into_iter().map(|n| n.as_ref().to_string()).collect();
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

fn check_name(field: &str, name: &str) -> Fallible {
    let good = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if good {
        return Ok(());
    }
    fail(
        field,
        format!(
            "\"{name}\" must be 1 to {NAME_MAX} letters, digits, '-' or '_' (it names interfaces and files)"
        ),
    )
}

fn check_prefix(field: &str, text: &str) -> Fallible {
    let good = text.split_once('/').is_some_and(|(address, length)| {
        address.parse::<Ipv4Addr>().is_ok() && length.parse::<u8>().is_ok_and(|l| l <= 32)
    });
    if good {
        return Ok(());
    }
    fail(
        field,
        format!("\"{text}\" is not an IPv4 address with a prefix length, such as 10.0.1.1/30"),
    )
}

fn check_command(field: &str, command: &[String]) -> Fallible {
    match command.first() {
        Some(program) if !program.is_empty() => Ok(()),
        _ => fail(
            field,
            "empty; it must be a program and its arguments, such as [\"ping\", \"-c1\", \"10.0.0.1\"]",
        ),
    }
}

/// A node on top of its template.
fn merge(base: &Node, node: &Node) -> Node {
    fn chain<T: Clone>(a: &[T], b: &[T]) -> Vec<T> {
        a.iter().chain(b).cloned().collect()
    }
    fn over(
        a: &BTreeMap<String, String>,
        b: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        a.iter().chain(b).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
    Node {
        role: if node.role == Role::default() { base.role } else { node.role },
        template: None,
        asn: node.asn.or(base.asn),
        loopback: node.loopback.clone().or_else(|| base.loopback.clone()),
        announce: chain(&base.announce, &node.announce),
        accept: chain(&base.accept, &node.accept),
        routes: chain(&base.routes, &node.routes),
        rules: chain(&base.rules, &node.rules),
        sysctl: over(&base.sysctl, &node.sysctl),
        vars: over(&base.vars, &node.vars),
        setup: chain(&base.setup, &node.setup),
        wipe: chain(&base.wipe, &node.wipe),
        state: chain(&base.state, &node.state),
        daemon: chain(&base.daemon, &node.daemon),
    }
}
