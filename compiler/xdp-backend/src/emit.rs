//! Lines of C with the P4 place that each stands for.

use p4_ir::Location;

/// C text under construction.
#[derive(Clone, Default)]
pub struct Writer {
    lines: Vec<(String, Option<Location>)>,
    indent: usize,
    location: Option<Location>,
    /// The last place that got a comment, so that each P4 line is named once.
    commented: Option<(u32, u32)>,
}

impl Writer {
    /// The lines that follow come from this place.
    pub(crate) fn at(&mut self, location: Location) {
        self.location = (location.line != 0).then_some(location);
    }

    /// The lines that follow come from no place in P4.
    pub(crate) fn nowhere(&mut self) {
        self.location = None;
    }

    /// Appends one line; braces at its ends change the indentation.
    pub fn line(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        if text.starts_with('}') {
            self.indent = self.indent.saturating_sub(1);
        }
        let is_label = text.ends_with(": ;");
        let depth = if is_label { 0 } else { self.indent };
        let padded =
            if text.is_empty() { String::new() } else { format!("{}{text}", "\t".repeat(depth)) };
        self.lines.push((padded, self.location));
        if text.ends_with('{') {
            self.indent += 1;
        }
    }

    /// Appends a comment: names that P4 programs choose (`@name`) cannot end it.
    pub fn comment(&mut self, text: &str) {
        self.line(format!("/* {} */", comment_text(text)));
    }

    /// Appends another writer's lines at this indentation.
    pub fn append(&mut self, other: Writer) {
        let pad = "\t".repeat(self.indent);
        for (text, location) in other.lines {
            let is_label = text.ends_with(": ;");
            let text = if text.is_empty() || is_label { text } else { format!("{pad}{text}") };
            self.lines.push((text, location));
        }
    }

    /// The text, with a comment where a new P4 line begins, and the place of each C line.
    pub(crate) fn finish(
        mut self,
        file_name: impl Fn(u32) -> String,
    ) -> (String, Vec<Option<Location>>) {
        let mut text = String::new();
        let mut map = Vec::with_capacity(self.lines.len());
        for (line, location) in &self.lines {
            text.push_str(line);
            if let Some(place) = location
                && self.commented != Some((place.file, place.line))
                && !line.is_empty()
            {
                self.commented = Some((place.file, place.line));
                text.push_str(&format!(
                    " // {}:{}",
                    comment_text(&file_name(place.file)),
                    place.line
                ));
            }
            text.push('\n');
            map.push(*location);
        }
        (text, map)
    }
}

/// Text that neither ends a comment nor begins a new line.
fn comment_text(text: &str) -> String {
    text.replace(char::is_control, " ").replace("*/", "* /").replace("/*", "/ *")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_their_comments() {
        let mut writer = Writer::default();
        writer.comment("table t*/ evil(); /*\n*/**//");
        let (text, _) = writer.finish(|_| String::new());
        assert_eq!(text.matches("*/").count(), 1, "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with(" */\n"), "{text}");
    }
}
