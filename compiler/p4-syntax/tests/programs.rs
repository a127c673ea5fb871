//! Every P4 file of the project parses. Parts of a program, in a folder `include` of
//! `systems/*/p4`, need that program's types, and parse with it.

use std::fs;
use std::path::{Path, PathBuf};

use p4_syntax::{Options, parse_file, render_all};

fn p4_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            p4_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "p4") {
            out.push(path);
        }
    }
}

#[test]
fn all_project_programs_parse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    p4_files(&root.join("p4"), &mut files);
    // (Parts of programs, which are parsed with these.)
    let functions = root.join("p4/include/functions");
    files.retain(|file| !file.starts_with(&functions));
    for system in fs::read_dir(root.join("systems")).unwrap() {
        let programs = system.unwrap().path().join("p4");
        if programs.is_dir() {
            let mut found = Vec::new();
            p4_files(&programs, &mut found);
            let is_part = |path: &PathBuf| path.parent().is_some_and(|it| it.ends_with("include"));
            files.extend(found.into_iter().filter(|path| !is_part(path)));
        }
    }
    assert!(files.len() >= 3, "no P4 files under {}", root.display());
    for file in files {
        for version in ["20180101", "20200408"] {
            let options = Options {
                defines: vec![format!("V1MODEL_VERSION={version}")],
                ..Options::default()
            };
            match parse_file(&file, &options) {
                Ok((program, _)) => {
                    assert!(!program.declarations.is_empty(), "{} is empty", file.display());
                    assert!(
                        program.warnings.is_empty(),
                        "{}: {:?}",
                        file.display(),
                        program.warnings
                    );
                }
                Err((d, sources)) => panic!("{}", render_all(&d, &sources, false)),
            }
        }
    }
}
