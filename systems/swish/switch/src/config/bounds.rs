//! What `--check` tells of `bound`.

use super::{FIELDS, Read};
use swish_protocol::control::{USUAL_DEAD_MS, USUAL_SLOW_MS};
use switch_agent::Result;
use switch_agent::config::Config;

/// Of each group that has a `bound`: which rate of updates it carries while a window stands still.
/// `groups`: those with SDW.
///
/// # Errors
/// The section cannot be read.
pub(crate) fn bounds(config: &Config, groups: &[String]) -> Result<Vec<(String, String)>> {
    let said: Read = config.part(&FIELDS)?;
    let with_bound = groups.iter().filter_map(|name| {
        let shared = said.shared.get(name)?;
        let told = bound_text(shared.bound?, !shared.controllers.is_empty());
        Some((format!("shared.{name}.bound"), told))
    });
    Ok(with_bound.collect())
}

fn bound_text(bound: u64, has_controllers: bool) -> String {
    let [dies, slow] = [USUAL_DEAD_MS, USUAL_SLOW_MS].map(|it| bound.saturating_mul(1000) / it);
    let others = if has_controllers {
        ""
    } else {
        ". Without `controllers` nobody removes a dead member: windows stand still for good"
    };
    format!(
        "carries {dies} updates a second while a window stands still for {} s, as when a switch \
         dies (`dead_ms` of controllers), {slow} for {} s, as when one is slow (`slow_ms`). Each \
         CPU has an equal part{others}",
        USUAL_DEAD_MS as f64 / 1000.0,
        USUAL_SLOW_MS as f64 / 1000.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_a_bound_carries_is_told() {
        let of = |fields: &str, groups: &[&str]| {
            let text = format!(
                "name = \"s1\"\nobject = \"x.o\"\n[shared.main]\nown = \"10.9.0.1\"\n{fields}\n\
                 [[port]]\ninterface = \"a\"\nport = 1\n"
            );
            let config = Config::parse(Path::new("s1.toml"), &text, &[&crate::SwiSh]);
            let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
            bounds(&config.expect(fields), &groups).expect(fields)
        };
        let controllers = "controllers = [\"10.0.0.9:5412\"]";
        let told = of(&format!("{controllers}\nbound = 1000000"), &["main"]);
        let [(field, text)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(field, "shared.main.bound");
        assert!(text.contains("carries 10000000 updates a second") && text.contains("0.1 s"));
        assert!(text.contains("500000 for 2 s") && !text.contains("for good"), "{text}");
        let fixed = of("members = [\"10.9.0.1\"]\nbound = 1", &["main"]);
        assert!(fixed[0].1.contains("carries 10 updates") && fixed[0].1.ends_with("for good"));
        // Without a bound, and without windows.
        assert!(of(controllers, &["main"]).is_empty());
        assert!(of("bound = 5", &[]).is_empty());
    }
}
