//! Checks a program and prints its IR: `cargo run -p p4-check --example dump prog.p4`.

fn main() {
    for path in std::env::args().skip(1) {
        let outcome = p4_check::check_file(path.as_ref(), &Default::default());
        eprint!("{}", outcome.render(false));
        if let Some(p) = &outcome.program {
            print!("{p}");
        }
    }
}
