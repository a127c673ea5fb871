//! Topology files: what is accepted, and that a fault is reported by the field it is in.

use lab::{Error, Topology};
use std::path::Path;

const PAIR: &str = r#"
name = "pair"
modes = ["one"]
[node.a]
[node.b]
role = "router"
asn = 65001
[[link]]
a = { node = "a", address = "10.0.0.1/24" }
b = { node = "b", address = "10.0.0.2/24" }
"#;

fn fault(text: &str) -> (String, String) {
    match Topology::parse(text, Path::new("t.toml")) {
        Err(Error::Topology { field, reason, .. }) => (field, reason),
        other => panic!("expected a faulty field, got {other:?}\n{text}"),
    }
}

#[test]
fn the_shipped_topologies_are_good() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    let folders = ["tools/lab/topologies", "systems/redplane/lab"];
    for entry in
        folders.iter().flat_map(|folder| std::fs::read_dir(root.join(folder)).expect(folder))
    {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|e| e == "toml") {
            let topology = Topology::read(&path).unwrap_or_else(|e| panic!("{e}"));
            assert!(!topology.description.is_empty(), "{}", path.display());
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn a_fault_is_reported_by_its_field() {
    let cases = [
        ("10.0.0.1/24", "10.0.0.1", "link[0].a.address"),
        ("10.0.0.2/24", "10.0.0.2/33", "link[0].b.address"),
        ("10.0.0.2/24", "10.0.1.2/24", "link[0].b.address"),
        ("10.0.0.2/24", "10.0.0.2/25", "link[0].b.address"),
        ("10.0.0.2/24", "10.0.0.1/24", "link[0].b.address"),
        ("node = \"b\"", "node = \"c\"", "link[0].b.node"),
        ("node = \"b\"", "node = \"a\"", "link[0].b.node"),
        ("name = \"pair\"", "name = \"a b\"", "name"),
        ("asn = 65001", "asn = 0", "node.b.asn"),
        ("asn = 65001", "template = \"x\"", "node.b.template"),
        ("asn = 65001", "loopback = \"x\"", "node.b.loopback"),
        ("asn = 65001", "announce = [{ prefix = \"10.0.0.0\" }]", "node.b.announce[0].prefix"),
        ("asn = 65001", "setup = [{ command = [] }]", "node.b.setup[0].command"),
        (
            "asn = 65001",
            "daemon = [{ name = \"bird\", command = [\"x\"] }]",
            "node.b.daemon[0].name",
        ),
        (
            "asn = 65001",
            "daemon = [{ name = \"d\", command = [\"x\"], modes = [\"two\"] }]",
            "node.b.daemon[0].modes",
        ),
        ("[[link]]", "[[ready]]\nnode = \"z\"\ncommand = [\"x\"]\n[[link]]", "ready[0].node"),
        ("modes = [\"one\"]", "prefer = \"z\"", "prefer"),
        (
            "modes = [\"one\"]",
            "modes = [\"one\"]\nmode_vars = { two = { a = \"1\" } }",
            "mode_vars.two",
        ),
    ];
    for (old, new, field) in cases {
        assert!(PAIR.contains(old), "{old}");
        let (found, reason) = fault(&PAIR.replace(old, new));
        assert_eq!(found, field, "{reason}");
        assert!(!reason.is_empty());
    }
    let doubled = format!("{PAIR}{}", &PAIR[PAIR.find("[[link]]").expect("a link")..]);
    assert_eq!(fault(&doubled).0, "link[1]");
}

#[test]
fn a_misspelt_field_is_reported_with_its_line() {
    let text = PAIR.replace("asn = 65001", "as_number = 65001");
    match Topology::parse(&text, Path::new("t.toml")) {
        Err(Error::Syntax { message, .. }) => {
            assert!(message.contains("as_number") && message.contains("line 7"), "{message}");
        }
        other => panic!("expected a syntax error, got {other:?}"),
    }
}

#[test]
fn templates_give_what_the_node_leaves_out() {
    let text = r#"
name = "t"
[template.base]
role = "switch"
asn = 1
accept = ["10.0.0.0/8"]
vars = { a = "base", b = "base" }
[node.x]
template = "base"
asn = 2
accept = ["11.0.0.0/8"]
vars = { b = "own" }
"#;
    let topology = Topology::parse(text, Path::new("t.toml")).expect("good");
    let node = &topology.node["x"];
    assert_eq!(node.role, lab::topology::Role::Switch);
    assert_eq!(node.asn, Some(2));
    assert_eq!(node.accept, ["10.0.0.0/8", "11.0.0.0/8"]);
    assert_eq!((node.vars["a"].as_str(), node.vars["b"].as_str()), ("base", "own"));
}

#[test]
fn the_example_in_the_manual_is_good() {
    let page = include_str!("../../../docs/lab.md");
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let topology =
        Topology::parse(example, Path::new("docs/lab.md")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((topology.node.len(), topology.link.len(), topology.ready.len()), (4, 3, 1));
}

#[test]
fn a_misspelt_variable_or_node_is_refused_before_anything_is_made() {
    let topology = Topology::parse(
        &PAIR.replace(
            "role = \"router\"",
            "role = \"router\"\nvars = { own = \"1\" }\naccept = []\nsetup = [{ command = [\"${used} ${mode}\"] }]",
        ),
        Path::new("t.toml"),
    )
    .expect("good");
    let variables: Vec<String> = topology.variables().into_iter().collect();
    assert_eq!(variables, ["own", "stateplane", "used"]);
    let refused = |vars: &[&str], prefer: Option<&str>| {
        let vars = vars.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
        let options =
            lab::Options { vars, prefer: prefer.map(str::to_owned), ..Default::default() };
        match lab::Lab::up(topology.clone(), Path::new("."), options, &|_| {}) {
            Err(error @ Error::Unknown { .. }) => error.to_string(),
            other => panic!("expected an unknown name, got {other:?}"),
        }
    };
    let error = refused(&["own", "nope"], None);
    assert!(error.contains("no variable \"nope\"; it has own, stateplane, used"), "{error}");
    assert!(refused(&["mode"], None).contains("\"mode\""), "the lab's own");
    let error = refused(&["used"], Some("s9"));
    assert!(error.contains("no node \"s9\"; it has a, b"), "{error}");
}
