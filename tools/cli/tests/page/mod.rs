//! The repository's files and its pages as tests see them.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files of the repository, from its root, sorted; without hidden ones and what builds leave.
pub fn tree() -> Vec<String> {
    fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with('.') || ["target", "out", "__pycache__"].contains(&name.as_str()) {
                continue;
            }
            let path = format!("{prefix}{name}");
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), &format!("{path}/"), found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = vec![];
    walk(&repository(), "", &mut found);
    found.sort();
    found
}

/// All pages of the documentation.
pub fn markdown() -> Vec<String> {
    let pages: Vec<String> = tree().into_iter().filter(|path| path.ends_with(".md")).collect();
    assert!(pages.len() >= 15, "{pages:?}");
    pages
}

/// The guide for operators, which has two pages and goes on from one to the other.
pub fn guide() -> String {
    read("docs/deploy.md") + &read("docs/operate.md")
}

/// A page's blocks of a language.
pub fn texts<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let parts = page.split("\n```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// The page's configurations in a language, each with the path in its first line (`# PATH`).
pub fn blocks(page: &str, language: &str) -> Vec<(PathBuf, String)> {
    let path = |text: &str| {
        let path =
            text.lines().next().and_then(|line| line.strip_prefix("# /")).unwrap_or_else(|| {
                panic!("a {language} block does not begin with `# /path/of/the/file`:\n{text}");
            });
        PathBuf::from("/").join(path)
    };
    texts(page, language).into_iter().map(|text| (path(text), text.to_owned())).collect()
}
