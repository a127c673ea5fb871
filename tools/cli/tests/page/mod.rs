//! `docs/deploy.md` as tests see it.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A page's blocks of a language.
pub fn texts<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let parts = page.split("\n```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// The page's configurations in a language, each with the path in its first line (`# PATH`).
pub fn blocks(page: &str, language: &str) -> Vec<(PathBuf, String)> {
    let path = |text: &str| {
        let path = text.lines().next().and_then(|line| line.strip_prefix("# /")).unwrap_or_else(|| {
            panic!("a {language} block does not begin with `# /path/of/the/file`:\n{text}");
        });
        PathBuf::from("/").join(path)
    };
    texts(page, language).into_iter().map(|text| (path(text), text.to_owned())).collect()
}
