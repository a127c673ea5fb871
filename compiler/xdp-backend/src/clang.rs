//! Runs clang on the emitted C, and chooses the fastest placement of storage that fits BPF's stack.

use crate::facts::Facts;
use crate::layout::scalar_width;
use crate::system::Systems;
use crate::verifier::{TOO_LONG, TOO_SLOW, VerifierReport, beginning, explain};
use crate::walk::{self, Visitor};
use crate::{BackendError, Generated, LineMap, Options, Placement, generate};
use p4_ir::{Expr, ExprKind, Location, Program, Statement, StatementKind, Type};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The runtime headers of the platform, built into the binary. Systems add theirs.
const HEADERS: &[(&str, &str)] = &[
    ("stateplane_xdp.h", include_str!("../../../bpf/core/stateplane_xdp.h")),
    ("stateplane_layouts.h", include_str!("../../../bpf/core/stateplane_layouts.h")),
    ("stateplane_batch_layouts.h", include_str!("../../../bpf/core/stateplane_batch_layouts.h")),
    ("stateplane_commit.h", include_str!("../../../bpf/core/stateplane_commit.h")),
    ("stateplane_commit_record.h", include_str!("../../../bpf/core/stateplane_commit_record.h")),
    ("stateplane_commit_release.h", include_str!("../../../bpf/core/stateplane_commit_release.h")),
    ("stateplane_messages.h", include_str!("../../../bpf/core/stateplane_messages.h")),
    ("stateplane_clock.h", include_str!("../../../bpf/core/stateplane_clock.h")),
    ("stateplane_fib.h", include_str!("../../../bpf/core/stateplane_fib.h")),
    ("stateplane_gateway.h", include_str!("../../../bpf/net/stateplane_gateway.h")),
    ("stateplane_gateway_layouts.h", include_str!("../../../bpf/net/stateplane_gateway_layouts.h")),
    ("stateplane_gateway_check.h", include_str!("../../../bpf/net/stateplane_gateway_check.h")),
    ("stateplane_gateway_icmp.h", include_str!("../../../bpf/net/stateplane_gateway_icmp.h")),
    ("stateplane_gateway_mss.h", include_str!("../../../bpf/net/stateplane_gateway_mss.h")),
    ("stateplane_gateway_slow.h", include_str!("../../../bpf/net/stateplane_gateway_slow.h")),
    ("stateplane_hash.h", include_str!("../../../bpf/core/stateplane_hash.h")),
    ("stateplane_siphash.h", include_str!("../../../bpf/core/stateplane_siphash.h")),
];

/// Why [`compile`] made no object.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The program uses what XDP cannot do.
    #[error("the program uses {} feature(s) that the XDP target does not have", .0.len())]
    Unsupported(Vec<BackendError>),
    /// No clang.
    #[error("clang was not found: it turns the emitted C into BPF. Install it: apt install clang")]
    NoClang,
    /// clang rejected the emitted C: headers missing, or our fault.
    #[error("{error}:\n{log}")]
    Clang {
        /// What there is to say of the program.
        error: Box<BackendError>,
        /// clang's own words, for reports of bugs.
        log: String,
    },
    /// The kernel's verifier refused the object.
    #[error("{error}:\n{log}")]
    Kernel {
        /// What there is to say of the program.
        error: Box<BackendError>,
        /// The same, and what it was taken from.
        report: Box<VerifierReport>,
        /// The verifier's own words, for reports of bugs.
        log: String,
        /// What it refused. Its object is there.
        compiled: Box<Compiled>,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// An object and what belongs to it.
#[derive(Debug)]
pub struct Compiled {
    /// C, manifest, line map.
    pub generated: Generated,
    /// Where storage went.
    pub placement: Placement,
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> CompileError {
    let path = path.to_path_buf();
    move |source| CompileError::File { path, source }
}

/// Writes the runtime headers into a folder, for who compiles the emitted C by hand.
pub fn write_headers(folder: &Path, systems: Systems) -> io::Result<()> {
    let of_systems = systems.0.iter().flat_map(|system| system.headers());
    for (name, text) in HEADERS.iter().chain(of_systems) {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}

/// Compiles to `object`. Climbs from registers to scratch memory while the stack is too small.
pub fn compile(
    program: &Program,
    options: &Options,
    object: &Path,
) -> Result<Compiled, CompileError> {
    compile_for_kernel(program, options, object, &mut |_| None)
}

/// The same, and on when the kernel refuses the object. `try_on_kernel` loads it; what it gives
/// back is the verifier's log, if that refuses it.
pub fn compile_for_kernel(
    program: &Program,
    options: &Options,
    object: &Path,
    try_on_kernel: &mut dyn FnMut(&Compiled) -> Option<String>,
) -> Result<Compiled, CompileError> {
    let folder = tempfile::tempdir().map_err(file_error(Path::new("temporary folder")))?;
    write_headers(folder.path(), options.systems).map_err(file_error(folder.path()))?;
    let name =
        object.file_stem().map_or("program".into(), |stem| stem.to_string_lossy().into_owned());
    let source = folder.path().join(format!("{name}.c"));
    let mut next = Some(first_placement(program, options.placement));
    let mut refused = None;
    while let Some(placement) = next {
        let attempt = Options { placement, ..options.clone() };
        let generated = generate(program, &attempt).map_err(CompileError::Unsupported)?;
        std::fs::write(&source, &generated.c_source).map_err(file_error(&source))?;
        next = Options::PLACEMENTS.iter().copied().skip_while(|known| *known != placement).nth(1);
        match run_clang(&source, object, &options.defines)? {
            None if longest_section(&std::fs::read(object).map_err(file_error(object))?)
                > MAX_INSTRUCTIONS =>
            {
                stack_usage(object);
                std::fs::remove_file(object).map_err(file_error(object))?;
                let (message, help) = TOO_LONG;
                let (location, help) = (beginning(program), Some(help.into()));
                let error = BackendError { location, message: message.into(), help, note: None };
                return Err(CompileError::Unsupported(vec![error]));
            }
            None if fits(&stack_usage(object), placement, options.systems) => {
                let compiled = Compiled { generated, placement };
                let Some(log) = try_on_kernel(&compiled) else { return Ok(compiled) };
                let report =
                    explain(&log, &compiled.generated.c_source, &compiled.generated.line_map);
                // A fault is a test that clang knows to be superfluous, and the verifier does not:
                // with variables elsewhere clang knows less.
                if report.too_many_ways {
                    next = next.map(|_| Placement::Forgotten);
                } else if !report.too_much_stack && !report.is_fault() {
                    next = None;
                }
                let error = Box::new(report.error(program));
                let (report, compiled) = (Box::new(report), Box::new(compiled));
                refused = Some(CompileError::Kernel { error, report, log, compiled });
            }
            None => {}
            Some(log) => {
                if log.contains("unable to open output file") {
                    // The system says why.
                    std::fs::File::create(object).map_err(file_error(object))?;
                }
                let too_big = log.contains("stack limit") || log.contains("BPF stack");
                // What the kernel said of an attempt before says more than that there is no other
                // way.
                if let Some(CompileError::Kernel { compiled, .. }) = &refused {
                    std::fs::write(&source, &compiled.generated.c_source)
                        .map_err(file_error(&source))?;
                    run_clang(&source, object, &options.defines)?;
                    stack_usage(object);
                    break;
                }
                refused = Some(match too_big {
                    true => CompileError::Unsupported(vec![stack_error(
                        program,
                        &log,
                        &generated.line_map,
                    )]),
                    false => clang_error(program, log, &generated.line_map),
                });
                if !too_big {
                    break;
                }
            }
        }
    }
    let no_place =
        || CompileError::Unsupported(vec![stack_error(program, "", &LineMap::default())]);
    Err(refused.unwrap_or_else(no_place))
}

/// The placement to try first. A parser with loops has its variables in the scratch map: the
/// verifier does not know what a map holds, so it prunes a round that differs from others in
/// nothing else. One loop that changes no headers does without.
fn first_placement(program: &Program, wanted: Placement) -> Placement {
    let facts = Facts::new(program);
    let mut changes = HeaderChanges(false);
    for (state, on_cycle) in program.parser.states.iter().zip(&facts.on_cycles) {
        if *on_cycle {
            walk::block(&state.body, &mut changes);
        }
    }
    if wanted != Placement::Forgotten && (facts.loop_heads.len() > 1 || changes.0) {
        return Placement::AllScratch;
    }
    wanted
}

/// Looks for statements that change headers.
struct HeaderChanges(bool);

impl Visitor for HeaderChanges {
    fn statement(&mut self, statement: &Statement) {
        self.0 |= matches!(
            statement.kind,
            StatementKind::Extract { .. }
                | StatementKind::SetValid(..)
                | StatementKind::PushFront(..)
                | StatementKind::PopFront(..)
        );
    }

    fn write(&mut self, target: &Expr, _value: Option<&Expr>) {
        let target = walk::unsliced(target);
        let header_field = match &target.kind {
            ExprKind::Field(base, _) => matches!(base.ty, Type::Header(_)),
            _ => false,
        };
        self.0 |= header_field || scalar_width(&target.ty).is_none();
    }
}

/// The P4 place of the first of clang's messages that has these words: `file.c:12:5: error: ...`.
fn place_of(words: &str, log: &str, lines: &LineMap) -> Option<Location> {
    let message = log.lines().find(|line| line.contains(words))?;
    let line: usize = message.split(':').nth(1)?.parse().ok()?;
    lines.place(line)
}

/// clang's words about the stack, for who wrote the P4.
fn stack_error(program: &Program, log: &str, lines: &LineMap) -> BackendError {
    BackendError {
        // Often that is only where the C function begins, which comes from no P4 line.
        location: place_of("BPF stack", log, lines).unwrap_or_else(|| beginning(program)),
        message: "the program needs more than BPF's 512 bytes of stack, even with its variables in a map".into(),
        help: Some(
            "table keys, hash and checksum inputs, and expressions with many intermediate values take stack: narrow them, or compute in steps, \
             through metadata fields"
                .into(),
        ),
        note: None,
    }
}

/// The P4 line that most of the C comes from.
fn longest_part(lines: &LineMap) -> Option<Location> {
    let mut counts: HashMap<(u32, u32), (usize, Location)> = HashMap::new();
    for location in lines.lines.iter().flatten() {
        counts.entry((location.file, location.line)).or_insert((0, *location)).0 += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(place, (count, _))| (*count, std::cmp::Reverse(*place)))
        .map(|(_, (_, place))| place)
}

/// What clang refuses otherwise.
fn clang_error(program: &Program, log: String, lines: &LineMap) -> CompileError {
    let location = match log == STOPPED {
        true => longest_part(lines),
        false => place_of("error:", &log, lines),
    };
    let location = location.unwrap_or_else(|| beginning(program));
    let stopped = log == STOPPED;
    let far = log.contains("Branch target out of insn range") || stopped;
    let (message, help) = if stopped {
        TOO_SLOW
    } else if far {
        TOO_LONG
    } else if log.contains("file not found") {
        (
            "clang does not find the kernel's headers for BPF programs",
            "install them: apt install libbpf-dev linux-libc-dev",
        )
    } else {
        ("clang refuses the emitted C: this is a bug of the compiler", "please report the program")
    };
    let error =
        BackendError { location, message: message.into(), help: Some(help.into()), note: None };
    if far {
        CompileError::Unsupported(vec![error])
    } else {
        CompileError::Clang { error: Box::new(error), log }
    }
}

/// Older clangs (14, for one) cut the distance of a far jump to 16 bits, and say nothing. In a
/// section up to this length such a jump leads outside of it, which the kernel refuses; in a longer
/// one it may lead to other code.
const MAX_INSTRUCTIONS: u64 = 65_535;

/// Instructions of the longest section with code in an ELF file of 64 bits, little endian.
fn longest_section(elf: &[u8]) -> u64 {
    const CODE: u64 = 4;
    let number = |at: u64, bytes: u64| {
        let from = usize::try_from(at).ok()?;
        let raw = elf.get(from..from.checked_add(bytes as usize)?)?;
        Some(raw.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let (Some(table), Some(entry), Some(count)) = (number(40, 8), number(58, 2), number(60, 2))
    else {
        return 0;
    };
    let sections = (0..count).map(|index| table.saturating_add(index * entry));
    let code = sections
        .filter(|at| number(at.saturating_add(8), 8).is_some_and(|flags| flags & CODE != 0));
    code.filter_map(|at| number(at.saturating_add(32), 8)).max().unwrap_or(0) / 8
}

/// BPF's stack, for a program and all that it calls.
const STACK_BYTES: u32 = 512;
/// Kernels round each frame up to this.
const FRAME_BYTES: u32 = 32;

/// Reads, and removes, what clang's -fstack-usage wrote beside the object: functions and their
/// frames.
fn stack_usage(object: &Path) -> Vec<(String, u32)> {
    let path = object.with_extension("su");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    text.lines()
        .filter_map(|line| {
            let mut columns = line.split('\t');
            let name = columns.next()?.rsplit(':').next()?.to_string();
            Some((name, columns.next()?.trim().parse().ok()?))
        })
        .collect()
}

/// With more stack than this, variables live there and not in registers: moving back and forth
/// costs more than the scratch map.
const SPILLING_BYTES: u32 = 256;

/// Is the placement good for the frames that came of it?
fn fits(frames: &[(String, u32)], placement: Placement, systems: Systems) -> bool {
    match placement {
        Placement::Registers => {
            let spilling =
                frames.iter().any(|(name, bytes)| name == "sp_main" && *bytes > SPILLING_BYTES);
            !spilling && fits_with_callees(frames, systems)
        }
        // With nowhere else to go the verifier decides.
        Placement::AllScratch | Placement::Forgotten => true,
        _ => fits_with_callees(frames, systems),
    }
}

/// XDP programs of their own, as against functions that they call.
/// Systems add theirs.
const PROGRAMS: [&str; 4] = ["sp_main", "sp_icmp", "sp_pass", "sp_generator"];

/// Functions of the gateway's runtime, which call nothing: only one of them runs at a time.
const GATEWAY_FUNCTIONS: [&str; 5] = [
    "sp_gateway_check_ipv4",
    "sp_gateway_check_ipv6",
    "sp_gateway_clamp_mss",
    "sp_slow_send",
    "sp_fragment_find",
];

/// Does every program fit even if all functions call one another?
fn fits_with_callees(frames: &[(String, u32)], systems: Systems) -> bool {
    let round = |bytes: u32| bytes.div_ceil(FRAME_BYTES) * FRAME_BYTES;
    let is_own = |name: &str| systems.0.iter().any(|system| system.own_functions().contains(&name));
    let is_added =
        |name: &str| systems.0.iter().any(|system| system.program_names().contains(&name));
    let frames = frames.iter().filter(|(name, _)| !is_own(name));
    let (programs, callees): (Vec<_>, Vec<_>) =
        frames.partition(|(name, _)| PROGRAMS.contains(&name.as_str()) || is_added(name));
    // Of the ternary tables' callbacks (ternary.rs) only one runs at a time, and it calls nothing.
    let calls_nothing = |name: &str| name.ends_with("_round") || GATEWAY_FUNCTIONS.contains(&name);
    let (searches, callees): (Vec<_>, Vec<_>) =
        callees.into_iter().partition(|(name, _)| calls_nothing(name));
    let is_leaf = |name: &str| systems.0.iter().any(|it| it.leaf_functions().contains(&name));
    let (leaves, callees): (Vec<_>, Vec<_>) =
        callees.into_iter().partition(|(name, _)| is_leaf(name));
    let largest = |frames: &[&(String, u32)]| {
        frames.iter().map(|(_, bytes)| round(*bytes)).max().unwrap_or(0)
    };
    let chain = callees.iter().map(|(_, bytes)| round(*bytes)).sum::<u32>() + largest(&leaves);
    let called = chain.max(largest(&searches));
    let most = largest(&programs);
    most + called <= STACK_BYTES
}

/// What clang may take. Its time grows with the square of the program's length.
const CLANG_SECONDS: u32 = 60;
/// What a shell exits with if there is no such command.
const COMMAND_NOT_FOUND: i32 = 127;
/// Stands for the messages of a clang that was stopped.
const STOPPED: &str =
    "a signal stopped clang: it took too long, or needed more memory than this machine has";

/// None: good; else clang's messages.
fn run_clang(
    source: &Path,
    object: &Path,
    defines: &[String],
) -> Result<Option<String>, CompileError> {
    run_clang_within(CLANG_SECONDS, source, object, defines)
}

fn run_clang_within(
    seconds: u32,
    source: &Path,
    object: &Path,
    defines: &[String],
) -> Result<Option<String>, CompileError> {
    // By CPU time, so that a busy machine refuses no program; a signal ends clang.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -S -t {seconds} && exec clang \"$@\""), "clang"]);
    command.args([
        "-target",
        "bpf",
        "-mcpu=v3",
        "-O2",
        "-g",
        "-std=gnu11",
        "-fno-strict-aliasing",
        "-fstack-usage",
    ]);
    // Chains of operators nest as deep as the front end lets them.
    command.args(["-fbracket-depth=2048"]);
    command.args([
        "-Wall",
        "-Wno-unused-label",
        "-Wno-unused-variable",
        "-Wno-unused-but-set-variable",
    ]);
    command.args([
        "-Wno-unused-const-variable",
        "-Wno-unused-function",
        "-Wno-parentheses-equality",
    ]);
    command.args([
        "-Wno-tautological-compare",
        "-Wno-constant-conversion",
        "-fno-color-diagnostics",
    ]);
    command.args(defines.iter().map(|define| format!("-D{define}")));
    // Line information names files relative to here, so that objects do not depend on the temporary
    // folder.
    if let Some(folder) = source.parent() {
        command.current_dir(folder);
        command.arg(format!("-fdebug-prefix-map={}=.", folder.display()));
    }
    // Debian keeps asm/types.h under the multiarch folder, where -target bpf does not look.
    let multiarch = PathBuf::from(format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    if multiarch.is_dir() {
        command.arg("-I").arg(multiarch);
    }
    let absolute = std::path::absolute(object).map_err(file_error(object))?;
    command
        .arg("-I.")
        .arg("-c")
        .arg(source.file_name().unwrap_or_default())
        .arg("-o")
        .arg(absolute);
    let output = command.output().map_err(file_error(Path::new("sh")))?;
    match (output.status.success(), output.status.code()) {
        (true, _) => return Ok(None),
        (_, Some(COMMAND_NOT_FOUND)) => return Err(CompileError::NoClang),
        (_, None) => return Ok(Some(STOPPED.into())),
        _ => {}
    }
    Ok(Some(String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clang_that_does_not_end_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (folder.path().join("slow.c"), folder.path().join("slow.o"));
        let mut text = String::from("#define A0 + x\n");
        for level in 1..30 {
            let below = level - 1;
            text += &format!("#define A{level} A{below} A{below}\n");
        }
        std::fs::write(&source, text + "int a(int x) { return 0 A29; }\n").unwrap();
        let log = run_clang_within(1, &source, &object, &[]).unwrap();
        assert_eq!(log.as_deref(), Some(STOPPED));
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().file_name())
            .collect();
        assert_eq!(left, ["slow.c"]);
        let place = |line| Some(Location { file: 0, line, column: 1 });
        let lines = LineMap { lines: vec![place(7), None, place(9), place(9), None, None, None] };
        assert_eq!(longest_part(&lines).map(|place| place.line), Some(9));
    }

    #[test]
    fn the_longest_section_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (folder.path().join("long.c"), folder.path().join("long.o"));
        let text = "int a(void) { asm volatile(\".rept 70000\\n r0 = r0\\n .endr\"); return 0; }\n\
                    __attribute__((section(\"xdp\"))) int b(void) { return 0; }";
        std::fs::write(&source, text).unwrap();
        assert_eq!(run_clang(&source, &object, &[]).unwrap(), None);
        // `r0 = 0` and `exit`, too.
        assert_eq!(longest_section(&std::fs::read(&object).unwrap()), 70_002);
        assert_eq!(longest_section(b"not an object"), 0);
    }
}
