//! A router built by hand in the IR, through clang and the kernel's verifier. Needs root.

use num_bigint::BigInt;
use p4_ir::*;
use std::path::Path;
use std::process::Command;
use xdp_backend::{Options, Placement, Systems, compile};

const HERE: Location = Location { file: 0, line: 7, column: 1 };

fn expr(kind: ExprKind, ty: Type) -> Expr {
    Expr { kind, ty, location: HERE }
}

fn constant(value: u64, width: u32) -> Expr {
    expr(ExprKind::Const(BigInt::from(value)), Type::bits(width))
}

fn statement(kind: StatementKind) -> Statement {
    Statement { kind, location: HERE }
}

fn record(name: &str, fields: &[(&str, Type)]) -> Record {
    let fields = fields
        .iter()
        .map(|(name, ty)| Field {
            name: (*name).into(),
            ty: ty.clone(),
            enumeration: None,
            annotations: Vec::new(),
        })
        .collect();
    Record { name: name.into(), fields, annotations: Vec::new(), location: HERE }
}

fn variable(name: &str, ty: Type, scope: Scope) -> Variable {
    Variable { name: name.into(), ty, scope, location: HERE }
}

fn var(id: u32, ty: Type) -> Expr {
    expr(ExprKind::Var(VariableId(id)), ty)
}

fn field(base: Expr, index: u32, ty: Type) -> Expr {
    expr(ExprKind::Field(Box::new(base), index), ty)
}

fn control(name: &str, body: Block) -> Control {
    Control { name: name.into(), body }
}

/// headers { ethernet; ipv4 }: variable 0; metadata: 1; standard metadata: 2; parameters: 3 (port),
/// 4 (mac).
fn router() -> Program {
    let ethernet =
        || field(var(0, Type::Struct(StructTypeId(0))), 0, Type::Header(HeaderTypeId(0)));
    let ipv4 = || field(var(0, Type::Struct(StructTypeId(0))), 1, Type::Header(HeaderTypeId(1)));
    let standard =
        |index, width| field(var(2, Type::Struct(StructTypeId(2))), index, Type::bits(width));
    let widths = [4, 4, 8, 16, 16, 3, 13, 8, 8, 16, 32, 32];
    let names = [
        "version", "ihl", "tos", "len", "id", "flags", "fragment", "ttl", "protocol", "sum", "src",
        "dst",
    ];
    let ipv4_fields: Vec<(&str, Type)> =
        names.iter().copied().zip(widths.map(Type::bits)).collect();
    let ttl = || field(ipv4(), 7, Type::bits(8));
    let extract = |header| statement(StatementKind::Extract { header, varbit_bits: None });
    let sum_fields: Vec<Expr> = (0..12u32)
        .filter(|i| *i != 9)
        .map(|i| field(ipv4(), i, Type::bits(widths[i as usize])))
        .collect();
    let checksum = StatementKind::Extern {
        instance: None,
        name: "update_checksum".into(),
        type_arguments: Vec::new(),
        arguments: vec![
            Argument::In(expr(ExprKind::IsValid(Box::new(ipv4())), Type::Bool)),
            Argument::In(expr(ExprKind::StructValue(sum_fields), Type::Struct(StructTypeId(0)))),
            Argument::InOut(field(ipv4(), 9, Type::bits(16))),
            Argument::In(expr(ExprKind::Const(BigInt::from(0)), Type::Enum(EnumTypeId(0)))),
        ],
        result: None,
    };
    let drop = StatementKind::Extern {
        instance: None,
        name: "mark_to_drop".into(),
        type_arguments: Vec::new(),
        arguments: vec![Argument::InOut(var(2, Type::Struct(StructTypeId(2))))],
        result: None,
    };
    let forward = vec![
        statement(StatementKind::Assign(standard(1, 9), var(3, Type::bits(9)))),
        statement(StatementKind::Assign(
            field(ethernet(), 0, Type::bits(48)),
            var(4, Type::bits(48)),
        )),
        statement(StatementKind::Assign(
            ttl(),
            expr(
                ExprKind::Binary(BinaryOp::Sub, Box::new(ttl()), Box::new(constant(1, 8))),
                Type::bits(8),
            ),
        )),
    ];
    let action = |name: &str, parameters: Vec<u32>, names: &[&str], body| Action {
        name: format!("ingress.{name}"),
        c_name: format!("ingress_{name}"),
        parameters: parameters.into_iter().map(VariableId).collect(),
        parameter_names: names.iter().map(|name| (*name).to_string()).collect(),
        parameter_enumerations: vec![None; names.len()],
        body,
        annotations: Vec::new(),
        location: HERE,
    };
    let routes = Table {
        name: "ingress.routes".into(),
        c_name: "ingress_routes".into(),
        keys: vec![Key {
            name: "hdr.ipv4.dst".into(),
            expr: field(ipv4(), 11, Type::bits(32)),
            enumeration: None,
            match_kind: "lpm".into(),
            location: HERE,
        }],
        actions: (0..2)
            .map(|index| TableAction {
                action: ActionId(index),
                default_only: false,
                table_only: false,
            })
            .collect(),
        default_action: ActionCall { action: 1, arguments: Vec::new() },
        const_default: false,
        entries: Vec::new(),
        const_entries: false,
        smallest_priority_wins: false,
        exchange: false,
        per_incarnation: false,
        size: Some(100),
        attached: Vec::new(),
        annotations: Vec::new(),
        location: HERE,
    };
    let state = |name: &str, body, transition| State {
        name: name.into(),
        body,
        transition,
        continues: false,
        location: HERE,
    };
    Program {
        files: vec!["router.p4".into()],
        header_types: vec![
            record(
                "ethernet_t",
                &[("dst", Type::bits(48)), ("src", Type::bits(48)), ("kind", Type::bits(16))],
            ),
            record("ipv4_t", &ipv4_fields),
        ],
        struct_types: vec![
            record(
                "headers_t",
                &[
                    ("ethernet", Type::Header(HeaderTypeId(0))),
                    ("ipv4", Type::Header(HeaderTypeId(1))),
                ],
            ),
            record("metadata_t", &[]),
            record(
                "standard_metadata_t",
                &[
                    ("ingress_port", Type::bits(9)),
                    ("egress_spec", Type::bits(9)),
                    ("egress_port", Type::bits(9)),
                    ("parser_error", Type::Error),
                    ("checksum_error", Type::bits(1)),
                    ("ingress_global_timestamp", Type::bits(48)),
                    ("egress_global_timestamp", Type::bits(48)),
                ],
            ),
        ],
        union_types: Vec::new(),
        serializable_enums: Vec::new(),
        enum_types: vec![EnumType { name: "HashAlgorithm".into(), members: vec!["csum16".into()] }],
        errors: vec!["NoError".into(), "PacketTooShort".into(), "NoMatch".into()],
        variables: vec![
            variable("hdr", Type::Struct(StructTypeId(0)), Scope::Pipeline),
            variable("meta", Type::Struct(StructTypeId(1)), Scope::Pipeline),
            variable("standard_metadata", Type::Struct(StructTypeId(2)), Scope::Pipeline),
            variable("forward_port", Type::bits(9), Scope::Ingress),
            variable("forward_mac", Type::bits(48), Scope::Ingress),
        ],
        headers: VariableId(0),
        metadata: VariableId(1),
        standard_metadata: VariableId(2),
        actions: vec![
            action("forward", vec![3, 4], &["port", "mac"], forward),
            action("drop", Vec::new(), &[], vec![statement(drop)]),
        ],
        tables: vec![routes],
        externs: Vec::new(),
        parser: Parser {
            name: "p".into(),
            prologue: Vec::new(),
            states: vec![
                state(
                    "start",
                    vec![extract(ethernet())],
                    Transition::Select {
                        keys: vec![field(ethernet(), 2, Type::bits(16))],
                        cases: vec![
                            (vec![Match::Value(BigInt::from(0x800))], Target::State(1), HERE),
                            (vec![Match::Any], Target::Accept, HERE),
                        ],
                    },
                ),
                state("ipv4", vec![extract(ipv4())], Transition::To(Target::Accept)),
            ],
        },
        verify_checksum: control("verify", Vec::new()),
        ingress: control(
            "ingress",
            vec![statement(StatementKind::Apply {
                table: TableId(0),
                hit: None,
                action_run: None,
            })],
        ),
        egress: control("egress", Vec::new()),
        compute_checksum: control("compute", vec![statement(checksum)]),
        deparser: control(
            "deparser",
            vec![
                statement(StatementKind::Emit(ethernet())),
                statement(StatementKind::Emit(ipv4())),
            ],
        ),
    }
}

/// Loads an object through the verifier, if we may.
fn load(object: &Path) {
    let pin = format!(
        "/sys/fs/bpf/sp_hand_ir_{}_{}",
        std::process::id(),
        object.display().to_string().len()
    );
    let output = Command::new("bpftool").args(["prog", "loadall"]).arg(object).arg(&pin).output();
    let _ = std::fs::remove_file(format!("{pin}/sp_main"));
    let _ = std::fs::remove_file(format!("{pin}/sp_pass"));
    let _ = std::fs::remove_dir(&pin);
    match output {
        Ok(output) if !output.status.success() => {
            let log = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(log.contains("Operation not permitted"), "{log}");
        }
        _ => {}
    }
}

#[test]
fn a_router_passes_the_verifier_in_every_placement() {
    let folder = tempfile::tempdir().expect("folder");
    for placement in [Placement::Registers, Placement::Scratch, Placement::AllScratch] {
        let object = folder.path().join(format!("router_{placement:?}.o"));
        let options =
            Options { program_name: "router.p4".into(), placement, ..Options::new(Systems::NONE) };
        let compiled =
            compile(&router(), &options, &object).unwrap_or_else(|error| panic!("{error}"));
        if let Ok(path) = std::env::var("SHOW_C") {
            std::fs::write(path, &compiled.generated.c_source).expect("write");
        }
        assert_eq!(compiled.placement, placement);
        load(&object);
    }
}

#[test]
fn what_xdp_cannot_do_is_an_error_with_its_place() {
    let mut program = router();
    program.tables[0].keys[0].match_kind = "selector".into();
    let errors =
        xdp_backend::generate(&program, &Options::new(Systems::NONE)).expect_err("selector");
    assert_eq!(errors[0].location, HERE);
    assert!(errors[0].message.contains("selector"), "{}", errors[0].message);
}

/// A call for the time costs a fifth of a NAT's packet, and clang keeps one whose result nobody
/// reads.
#[test]
fn a_program_asks_for_the_time_only_if_it_reads_it() {
    let asks = |program: &Program| {
        let generated = xdp_backend::generate(program, &Options::new(Systems::NONE)).expect("good");
        generated.c_source.matches("sp_now_ns() / 1000").count()
    };
    let mut program = router();
    assert_eq!(asks(&program), 0, "mark_to_drop(standard_metadata) reads nothing");
    let timestamp = field(var(2, Type::Struct(StructTypeId(2))), 6, Type::bits(48));
    program.egress = control(
        "egress",
        vec![statement(StatementKind::Assign(var(4, Type::bits(48)), timestamp))],
    );
    assert_eq!(asks(&program), 1, "the egress's");
}
