//! `stateplane-bench`: what is refused before anything is brought up.

use std::process::Command;

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stateplane-bench"))
        .args(arguments)
        .output()
        .expect("stateplane-bench");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

#[test]
fn a_capture_is_refused_where_it_means_nothing() {
    for (arguments, named) in [
        (&["run", "fig08", "fig13", "--pcap", "x.pcap"][..], "has no meaning for fig13"),
        (&["all", "--pcap", "x.pcap"], "it is for fig08"),
        (&["page", "--pcap", "x.pcap"], "has no meaning for `page`"),
    ] {
        let (code, said) = refused(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
}
