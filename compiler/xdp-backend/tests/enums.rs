//! Names of enums' members: from the program into the manifest, and from there into entries.

use dataplane::{ActionSpec, Dataplane, EntrySpec, KeySpec, Listed, Match};
use xdp_backend::{Options, Systems};

const SOURCE: &str = "
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>
enum bit<8> Protocol { TCP = 6, UDP = 17 }
enum bit<32> Class { GOLD = 0, LEAD = 1 }
enum int<8> Offset { BACK = -1, STAY = 0 }
enum Colour { RED, GREEN }
type Protocol Inner;
header h_t { Protocol protocol; bit<8> plain; }
struct headers_t { h_t h; }
struct meta_t { Inner inner; Colour colour; }
parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { meta.colour = Colour.RED; pkt.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    register<Offset, bit<32>>(4) offsets;
    counter<Class>(2, CounterType.packets) classes;
    action paint(Colour colour, Protocol next, bit<9> port) {
        meta.colour = colour;
        hdr.h.protocol = next;
        sm.egress_spec = port;
    }
    action nothing() { }
    table painted {
        key = { hdr.h.protocol: ternary; meta.colour: exact; meta.inner: exact; hdr.h.plain: exact; }
        actions = { paint; nothing; }
        default_action = nothing();
    }
    apply {
        Offset offset;
        offsets.read(offset, 0);
        if (offset == Offset.BACK) { classes.count(Class.LEAD); }
        meta.inner = (Inner)hdr.h.protocol;
        painted.apply();
        if (meta.colour == Colour.GREEN) { hdr.h.plain = 1; }
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
";

fn manifest() -> manifest::Manifest {
    let outcome = p4_check::check_source("enums.p4", SOURCE, &Default::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let manifest = xdp_backend::generate(program, &Options::new(Systems::NONE)).unwrap().manifest;
    // As a runtime reads it.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("enums.json");
    std::fs::write(&path, manifest.to_json()).unwrap();
    manifest::Manifest::read(&path).unwrap()
}

/// `Protocol(TCP=6 UDP=17)`
fn text(enumeration: Option<&manifest::Enumeration>) -> String {
    enumeration.map_or("-".to_owned(), |it| {
        let members = it.members.iter().map(|member| format!("{}={}", member.name, member.value));
        format!("{}({})", it.name, members.collect::<Vec<_>>().join(" "))
    })
}

#[test]
fn a_manifest_names_the_members_of_each_enum() {
    let manifest = manifest();
    let keys = &manifest.tables[0].keys;
    let keys: Vec<String> = keys.iter().map(|key| text(key.enumeration.as_ref())).collect();
    let protocol = "Protocol(TCP=6 UDP=17)";
    assert_eq!(keys, [protocol, "Colour(RED=0 GREEN=1)", protocol, "-"]);
    let paint = manifest.actions.iter().find(|action| action.name.ends_with("paint")).unwrap();
    let parameters: Vec<String> =
        paint.parameters.iter().map(|it| text(it.enumeration.as_ref())).collect();
    assert_eq!(parameters, ["Colour(RED=0 GREEN=1)", protocol, "-"]);
    let register = &manifest.registers[0];
    let of_register = (text(register.enumeration.as_ref()), text(register.index.as_ref()));
    assert_eq!(of_register, ("Offset(BACK=255 STAY=0)".to_owned(), "-".to_owned()));
    assert_eq!(text(manifest.counters[0].index.as_ref()), "Class(GOLD=0 LEAD=1)");
}

#[test]
fn entries_are_written_and_listed_with_names() {
    let dataplane = Dataplane::description_only(manifest());
    let table = dataplane.table("painted").unwrap();
    let entry = |protocol: &str, colour: &str, next: &str| {
        let keys = [protocol, colour, "Protocol.TCP", "7"];
        table.resolve(&EntrySpec {
            keys: keys.map(|text| KeySpec { name: None, text: text.to_owned() }).into(),
            priority: Some(1),
            action: ActionSpec {
                name: "paint".to_owned(),
                arguments: ["RED", next, "2"].map(|text| (None, text.to_owned())).into(),
            },
        })
    };
    let resolved = entry("UDP", "GREEN", "0x11").unwrap();
    let values = [17, 1, 6, 7].map(Match::Exact);
    assert_eq!(
        (&resolved.matches[..], &resolved.action.arguments[..]),
        (&values[..], &[0, 17, 2][..])
    );
    let listed = Listed { entry: resolved.clone(), counter: None, constant: false };
    let described = table.describe(&listed);
    let pairs = |list: &[(String, String)]| {
        list.iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(pairs(&described.key_names), "hdr.h.protocol=UDP meta.colour=GREEN meta.inner=TCP");
    assert_eq!(pairs(&described.argument_names), "colour=RED next=UDP");
    // Who reads numbers goes on reading numbers.
    assert_eq!(pairs(&described.arguments), "colour=0 next=17 port=2");
    assert_eq!(table.resolve(&described.to_spec()).unwrap(), resolved);
    assert_eq!(entry("6&&&6", "1", "TCP").unwrap().matches[0], Match::Mask { value: 6, mask: 6 });
    let refused = entry("UDP", "BLUE", "TCP").unwrap_err().to_string();
    assert!(refused.contains("BLUE") && refused.contains("Colour: RED, GREEN"), "{refused}");
}
