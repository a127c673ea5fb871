//! `${name}` substitution in the texts of a topology (daemon configurations, command lines).

use std::collections::BTreeMap;

/// Replaces every `${name}` in `text` by its value. `$` without a brace stands for itself.
///
/// # Errors
/// The reason, naming the unknown variable and the known ones, or an unclosed brace.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let Some(end) = after.find('}') else {
            return Err(format!(
                "\"${{\" without a closing brace near {:?}",
                rest.chars().skip(start).take(30).collect::<String>()
            ));
        };
        let name = after[..end].trim();
        let Some(value) = variables.get(name) else {
            let known: Vec<&str> = variables.keys().map(String::as_str).collect();
            return Err(format!("unknown variable ${{{name}}}; known: {}", known.join(", ")));
        };
        out.push_str(value);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::expand;
    use std::collections::BTreeMap;

    #[test]
    fn replaces_known_and_refuses_unknown() {
        let variables = BTreeMap::from([("node".to_string(), "s1".to_string())]);
        assert_eq!(
            expand("a ${node} $x {y} ${ node }", &variables).as_deref(),
            Ok("a s1 $x {y} s1")
        );
        let error = expand("${nodes}", &variables).expect_err("unknown variable");
        assert!(error.contains("nodes") && error.contains("known: node"), "{error}");
        assert!(expand("é${node", &variables).is_err());
    }
}
