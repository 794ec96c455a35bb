//! Templates with `@key@` in place of values.

/// Returns the text of a template.
macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("templates/", $name))
    };
}
pub(super) use template;

/// The values of a template, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(Vec<(&'static str, String)>);

// === impl Values ===

impl Values {
    /// Sets the value of a key.
    pub(super) fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.0.retain(|(known, _)| *known != key);
        self.0.push((key, value.into()));
        self
    }

    /// Fills in a template. A line with nothing but a key becomes the lines of its value, each indented as
    /// the key; no line if the value is empty.
    pub(super) fn fill(&self, template: &str) -> String {
        let mut text = String::with_capacity(template.len());
        for line in template.lines() {
            let alone = line.trim().strip_prefix('@').and_then(|rest| rest.strip_suffix('@'));
            if let Some((_, value)) = self.0.iter().find(|(key, _)| Some(*key) == alone) {
                let indent = &line[..line.len() - line.trim_start().len()];
                for line in value.lines() {
                    text.extend([if line.is_empty() { "" } else { indent }, line, "\n"]);
                }
                continue;
            }
            let mut line = line.to_owned();
            for (key, value) in &self.0 {
                line = line.replace(&format!("@{key}@"), value);
            }
            text.extend([&line, "\n"]);
        }
        text
    }
}
