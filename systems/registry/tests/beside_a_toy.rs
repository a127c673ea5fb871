//! A toy system beside those of the registry.

#[path = "../../../compiler/xdp-backend/tests/toy/mod.rs"]
mod toy;

use toy::{ADD, ALONE, TOY, compiled, options, program};
use xdp_backend::system::{System, Systems};
use xdp_backend::{generate, write_headers};

/// The registry's systems and the toy.
fn with_others() -> Systems {
    let all: Vec<&'static dyn System> =
        systems::compiler().0.iter().copied().chain(ALONE.iter().copied()).collect();
    Systems(Vec::leak(all))
}

#[test]
fn two_systems_in_one_program() {
    let flow = "FlowState<k_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) f;";
    let get = "if (f.get({ hdr.h.a }, v) == StateResult.HIT) { f.set({ hdr.h.a }, v); }";
    let c = compiled(with_others(), &format!("{flow} {TOY}"), &format!("{get} {ADD}")).c_source;
    assert!(c.contains("flow, struct toy_context toy)"), "{c}");
    // Each gives the other's context anew to a packet that enters again.
    assert_eq!(c.matches("__u32 ingress_port = toy.port;").count(), 1, "{c}");
    assert_eq!(c.matches("struct toy_context toy = { .port = ingress_port };").count(), 2, "{c}");
}

#[test]
fn a_system_that_a_program_does_not_use_leaves_no_trace() {
    let plain = |systems| {
        compiled(systems, "counter(16, CounterType.packets) c;", "c.count(hdr.h.a);").c_source
    };
    assert_eq!(plain(with_others()), plain(Systems::NONE));
}

#[test]
fn a_system_that_is_not_listed_is_unknown() {
    let errors =
        generate(&program(TOY, ADD), &options(systems::compiler())).err().unwrap_or_default();
    let messages: Vec<_> = errors.into_iter().map(|error| error.message).collect();
    assert_eq!(messages, ["extern ToyCounter is not supported by the XDP target yet"]);
    assert!(with_others().rules().any(|rule| rule.id == "toy-add"));
}

#[test]
fn headers_come_from_the_systems_that_are_listed() {
    let folder = tempfile::tempdir().expect("folder");
    write_headers(folder.path(), Systems(ALONE)).expect("headers");
    let others = systems::compiler().0.iter().flat_map(|system| system.headers());
    let found: Vec<_> = others.filter(|(name, _)| folder.path().join(name).exists()).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// What is refused of counters and sketches, most of it of those with EWO: each with its remedy.
#[test]
fn eventual_variables_are_refused_with_a_remedy() {
    let counter = "SharedCounter(16, Shared.EWO) c;";
    let cases = [
        ("SharedCounter(16, Shared.EWO, WhenFull.DROP) c;", "", "leave WhenFull out"),
        ("SharedCounter(16, Shared.SDW) c;", "", "WhenFull.DROP or WhenFull.PASS"),
        ("SharedCounter(16, Shared.SRO) c;", "", "use Shared.SDW"),
        ("SharedCounter(16, Shared.EWO, WhenFull.DROP, 9) c;", "", "with a period"),
        ("SharedCounter(16, Shared.SDW, WhenFull.DROP, 0) c;", "", "write 1 or more"),
        (counter, "bit<64> w = c.window();", "use Shared.SDW"),
        ("@slots(1) SharedCounter(16, Shared.EWO) c;", "", "how often they may restart"),
        ("@slots(4) SharedSketch(16, Sketch.BITS, Shared.EWO) c;", "", "leave it out"),
        ("@slots(256) SharedCounter(16000000, Shared.EWO) c;", "", "fewer slots"),
        ("@members(64) SharedCounter(16, Shared.EWO) c;", "", "leave it out"),
        ("@members(1) SharedCounter(16, Shared.SDW, WhenFull.PASS) c;", "", "count the switches"),
        (
            "@members(4097) SharedCounter(16, Shared.SDW, WhenFull.PASS) c;",
            "",
            "count the switches",
        ),
        ("@members(x) SharedCounter(16, Shared.SDW, WhenFull.PASS) c;", "", "count the switches"),
        (
            "@group(\"a\") SharedCounter(16, Shared.SDW, WhenFull.PASS) a; \
             @group(\"b\") SharedCounter(16, Shared.SDW, WhenFull.PASS) b; \
             @members(4096) SharedCounter(16000000, Shared.SDW, WhenFull.PASS) c;",
            "",
            "room for fewer switches",
        ),
    ];
    for (objects, apply, remedy) in cases {
        let program = program(objects, &format!("{apply} hdr.h.a = c.get(hdr.h.a);"));
        let errors = generate(&program, &options(systems::compiler())).err().unwrap_or_default();
        let remedies: Vec<_> = errors.into_iter().filter_map(|error| error.help).collect();
        assert!(remedies.iter().any(|it| it.contains(remedy)), "{objects}: {remedies:?}");
    }
    let both = "SharedSketch(16, Sketch.MAXIMA, Shared.SDW, WhenFull.PASS, 7) largest;";
    let apply = "c.sub(hdr.h.a, 3); largest.update(hdr.h.a, c.get(hdr.h.a));";
    let program = program(&format!("{counter} {both}"), apply);
    let c = generate(&program, &options(systems::compiler())).expect("C").c_source;
    // The period of a sketch is its last argument.
    assert!(c.contains("SP_SHARED_MAX, 0, 7)"), "{c}");
    assert!(c.contains("#define SP_SHARED_MEMBERS 32\n"), "{c}");
    // A counter that goes down has two cells; each consistency has its part of a packet.
    assert!(c.contains("0, 16, 2, SP_SHARED_SUM)"), "{c}");
    assert!(c.contains("#define SP_SHARED_OBJECTS(X)"), "{c}");
    assert!(c.contains("#define SP_EVENTUAL_OBJECTS(X)"), "{c}");
    assert!(!c.contains("#define SP_STRONG_OBJECTS(X)"), "{c}");
    // Room is made for a power of two of switches, in all groups.
    let many = "@members(65) SharedCounter(16, Shared.SDW, WhenFull.PASS) c;";
    let program = self::program(&format!("{many} @group(\"x\") {both}"), apply);
    let generated = generate(&program, &options(systems::compiler())).expect("C");
    assert!(generated.c_source.contains("#define SP_SHARED_MEMBERS 128\n"));
    assert!(generated.c_source.contains("#define SP_SHARED_HELD_GROUPS 2\n"));
    let rooms = generated.manifest.state_objects.iter().map(|it| it.settings.get("members"));
    assert_eq!(rooms.collect::<Vec<_>>(), [Some(&128.into()); 2]);
}

/// The same of registers, tables and sets.
#[test]
fn keyed_variables_are_refused_with_a_remedy() {
    let cases = [
        ("SharedSet<k_t>(16, Shared.SDW) x;", "use Shared.EWO"),
        ("SharedTable<k_t, v_t>(16, Shared.SDW) x;", "use Shared.SRO"),
        ("SharedTable<k_t, v_t>(16, Shared.SDW) x;", "the last writer wins"),
        ("SharedTable<k_t, v_t>(8000000, Shared.EWO) x;", "make some of them smaller"),
        ("@group(\"a b\") SharedTable<k_t, v_t>(16, Shared.EWO) x;", "letters, digits"),
        ("@slots(4) SharedTable<k_t, v_t>(16, Shared.EWO) x;", "leave it out"),
        ("@slots(4) SharedTable<k_t, v_t>(16, Shared.SRO) x;", "leave it out"),
        ("@members(64) SharedTable<k_t, v_t>(16, Shared.SRO) x;", "leave it out"),
        ("@group(\"a\") @group(\"b\") SharedTable<k_t, v_t>(16, Shared.EWO) x;", "write it once"),
        ("@grup(\"a\") SharedTable<k_t, v_t>(16, Shared.EWO) x;", "write @group"),
    ];
    for (objects, remedy) in cases {
        let program = program(objects, "x.remove({ hdr.h.a });");
        let errors = generate(&program, &options(systems::compiler())).err().unwrap_or_default();
        let remedies: Vec<_> = errors.into_iter().filter_map(|error| error.help).collect();
        assert!(remedies.iter().any(|it| it.contains(remedy)), "{objects}: {remedies:?}");
    }
    // What is no struct is told once.
    let scalars = program("SharedTable<bit<32>, v_t>(16, Shared.EWO) x;", "");
    let errors = generate(&scalars, &options(systems::compiler())).err().unwrap_or_default();
    let messages: Vec<_> = errors.into_iter().map(|error| error.message).collect();
    assert_eq!(messages, ["SharedTable needs structs as key and value"]);
    let timed = program("SharedTable<k_t, v_t>(16, Shared.EWO) x;", "x.set({ hdr.h.a }, v, 60);");
    let errors = generate(&timed, &options(systems::compiler())).err().unwrap_or_default();
    assert!(errors.iter().any(|it| it.message.contains("`idle_s`")), "{errors:?}");
    let objects = "SharedTable<k_t, v_t>(16, Shared.EWO) x; SharedRegister<v_t>(8, Shared.EWO) y;";
    let too_many = "x.remove({ hdr.h.a }); ".repeat(17);
    let errors = generate(&program(objects, &too_many), &options(systems::compiler())).err();
    let errors = errors.unwrap_or_default();
    assert!(errors.iter().any(|it| it.message.contains("17 calls write")), "{errors:?}");
    // With SRO the longest way counts, and what a packet that reads may write.
    let strong = "SharedTable<k_t, v_t>(16, Shared.SRO) x;";
    let said = |apply: &str| {
        let errors = generate(&program(strong, apply), &options(systems::compiler())).err();
        let messages = errors.unwrap_or_default().into_iter().map(|error| error.message);
        messages.collect::<Vec<_>>().join("; ")
    };
    let (set, remove) = ("x.set({ hdr.h.a }, v); ", "x.remove({ hdr.h.a }); ");
    let ways = |one: &str, other: &str| format!("if (hdr.h.a == 1) {{ {one} }} else {{ {other} }}");
    assert_eq!(said(&ways(&set.repeat(8), &remove.repeat(8))), "");
    assert_eq!(said(&ways(&format!("{} return;", set.repeat(8)), "")), "");
    let many = said(&format!("{set}{}", ways(remove, &set.repeat(8))));
    assert!(many.contains("9 records of 288 bytes in all"), "{many}");
    assert!(said(&ways(&format!("{set} exit;"), &set.repeat(9))).contains("9 records"));
    let timed = format!("x.set({{ hdr.h.a }}, v, 60); {}", "x.get({ hdr.h.a }, v); ".repeat(8));
    assert!(said(&timed).contains("9 records"));
    let program = program(objects, "y.read(hdr.h.a, v); x.insert({ hdr.h.a }, v);");
    let c = generate(&program, &options(systems::compiler())).expect("C").c_source;
    assert!(c.contains("#define SP_LWW_RECORDS 24"), "{c}");
    assert!(c.contains("_put(&shared.eventual.writes, sp_key, sp_value, SP_LWW_ABSENT);"), "{c}");
}

/// All consistencies in one program; but no replicated state of another system.
#[test]
fn consistencies_stand_side_by_side() {
    let strong = "SharedTable<k_t, v_t>(16, Shared.SRO) x;";
    let others = "SharedCounter(16, Shared.EWO) c; \
                  SharedCounter(16, Shared.SDW, WhenFull.DROP) w; \
                  SharedRegister<v_t>(8, Shared.EWO) y;";
    let apply = "x.set({ hdr.h.a }, v); c.add(1, 1); w.add(1, 1); y.write(1, v);";
    let together = program(&format!("{strong} {others}"), apply);
    let c = generate(&together, &options(systems::compiler())).expect("C").c_source;
    // A packet that waits takes what it has noted along; one that goes on has it take effect.
    let park = "if (shared.strong.name) return sp_swish_park(xdp, &shared, ";
    let commit = "if (sp_shared_commit(&shared.windows)) return sp_drop(ingress_port);";
    let places = [park, commit, "sp_eventual_commit(&shared.eventual);"].map(|it| c.find(it));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {c}");

    let flow = "FlowState<k_t, v_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) f;";
    let get = "if (f.get({ hdr.h.a }, v) == StateResult.HIT) { f.set({ hdr.h.a }, v); }";
    for object in [strong, "SharedCounter(16, Shared.EWO) c;"] {
        let beside = program(&format!("{object} {flow}"), get);
        let errors = generate(&beside, &options(systems::compiler())).err().unwrap_or_default();
        let found = errors.iter().find(|it| it.message.contains("would count twice"));
        let help = found.and_then(|it| it.help.as_deref()).unwrap_or_default();
        assert!(help.contains("in two programs"), "{errors:?}");
    }
}
