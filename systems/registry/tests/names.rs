//! Names of systems: where they must be, and where they must not.

/// The page has the rules of the code, all and no others, in the same words.
#[test]
fn the_page_shows_the_rules() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/p4-support.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (_, section) =
        page.split_once("## Refused: the order of calls on state").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let shown: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let row =
        |rule: &xdp_backend::Rule| format!("| `{}` | {} | {} |", rule.id, rule.broken, rule.remedy);
    assert_eq!(shown, systems::compiler().rules().map(row).collect::<Vec<_>>());
}

/// No file of the back end names a system, or what is a system's: its extern types, its headers,
/// the programs and functions of its runtime.
#[test]
fn no_system_leaks() {
    let mut words: Vec<String> = Vec::new();
    for system in systems::compiler().0 {
        words.extend(system.extern_types().iter().map(|name| name.to_string()));
        words.extend(system.headers().iter().map(|(name, _)| name.to_string()));
        // Quoted: some are the beginnings of other names.
        words.extend(
            system
                .program_names()
                .iter()
                .chain(system.own_functions())
                .map(|name| format!("\"{name}\"")),
        );
    }
    words.extend(
        ["sp_flow_", "sp_snapshot_", "SP_FLOW_", "SP_SNAPSHOT_", "flow.kind"].map(str::to_owned),
    );
    let folders =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).expect("systems").flatten();
    let names: Vec<String> = folders
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != "registry")
        .collect();
    assert!(!names.is_empty());
    let mut folders = vec![std::path::PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../compiler/xdp-backend/src"
    ))];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).expect("folder").flatten().map(|entry| entry.path())
        {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("source");
            let lower = text.to_lowercase();
            let named = names.iter().find(|name| lower.contains(name.as_str()));
            assert_eq!(named, None, "{} names a system", path.display());
            let found: Vec<_> = words.iter().filter(|word| text.contains(word.as_str())).collect();
            assert!(
                found.is_empty(),
                "{} names {found:?}, which belong to a system",
                path.display()
            );
            read += 1;
        }
    }
    assert!(read > 30, "{read} files");
}
