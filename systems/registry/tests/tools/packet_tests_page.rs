//! docs/packet-tests.md says what the parser takes.

use packet_test::{Case, setup, stf};

const PAGE: &str = include_str!("../../../../docs/packet-tests.md");

/// The first words of the rows of all tables, with `before` in front and up to `after`.
fn words(before: &str, after: &[char]) -> Vec<&'static str> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix(before));
    rows.filter_map(|row| row.split(after).next()).collect()
}

#[test]
fn the_page_has_the_words_of_the_parser() {
    let commands: Vec<_> =
        words("| `", &[' ', '`']).into_iter().filter(|word| *word != "#").collect();
    assert_eq!(commands, stf::COMMANDS);
    let keywords: Vec<_> =
        setup::KEYWORDS.into_iter().chain(systems::packet_tests().keywords()).collect();
    assert_eq!(words("| `# ", &[':']), keywords);
    // A line belongs to one system, or to none.
    let distinct: std::collections::BTreeSet<_> = keywords.iter().collect();
    assert_eq!(distinct.len(), keywords.len(), "{keywords:?}");
}

#[test]
fn the_example_is_stf_and_every_word_is_carried_out() {
    let (_, rest) = PAGE.split_once("```stf\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let case = Case::parse("packet-tests.md", example, systems::packet_tests())
        .unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!((case.setup.ports.len(), case.commands.len()), (2, 6));
    // A word without arguments is incomplete, not unknown.
    for word in stf::COMMANDS {
        let said = Case::parse("x.stf", word, systems::packet_tests())
            .map_or_else(|errors| errors[0].reason.clone(), |_| String::new());
        assert!(!said.contains("unknown") && !said.contains("not supported"), "{word}: {said}");
    }
    let unknown =
        Case::parse("x.stf", "send 1", systems::packet_tests()).expect_err("no such command");
    assert!(stf::COMMANDS.iter().all(|word| unknown[0].reason.contains(word)), "{unknown:?}");
}
