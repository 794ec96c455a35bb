//! The path of a value inside an object, kept on the stack and formatted only for an error.

/// The path from the root of an object to one of its values.
///
/// Each step borrows the step before it, so a walk over a valid object allocates no memory.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The root of the walk. Its text, often empty, is the prefix of all paths below.
    Root(&'a str),
    /// A named field.
    Field(&'a Path<'a>, &'a str),
    /// An entry of a map.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// Returns the path of a field of this value.
    #[must_use]
    pub fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    /// Returns the path of an entry of this map.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    /// Returns the path of an item of this list.
    #[must_use]
    pub fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// Returns the path in the form of field errors: `spec.ports[0].labels[app]`; `<nil>` for an empty root.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        if out.is_empty() { "<nil>".to_owned() } else { out }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Root(prefix) => out.push_str(prefix),
            Self::Field(parent, name) => {
                parent.write(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Self::Key(parent, key) => {
                parent.write(out);
                out.push('[');
                out.push_str(key);
                out.push(']');
            }
            Self::Index(parent, index) => {
                parent.write(out);
                out.push('[');
                out.push_str(&index.to_string());
                out.push(']');
            }
        }
    }

    /// Returns the path below the root in the form of validation messages: `spec.ports[0].labels.app`.
    pub fn name(&self) -> String {
        let mut out = String::new();
        self.write_name(&mut out);
        out
    }

    fn write_name(&self, out: &mut String) {
        match self {
            Self::Root(_) => {}
            Self::Field(parent, name) => {
                parent.write_name(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Self::Key(parent, key) => {
                parent.write_name(out);
                out.push('.');
                out.push_str(key);
            }
            Self::Index(parent, index) => {
                parent.write_name(out);
                out.push('[');
                out.push_str(&index.to_string());
                out.push(']');
            }
        }
    }

    /// Returns the path of a field error: the root, then `name`, which [`name`](Self::name) returns.
    pub fn named_field(&self, name: &str) -> String {
        match (self.prefix(), name.strip_prefix('.').unwrap_or(name)) {
            ("", "") => "<nil>".to_owned(),
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}.{name}"),
        }
    }

    /// Returns the text of the root.
    pub fn prefix(&self) -> &'a str {
        match self {
            Self::Root(prefix) => prefix,
            Self::Field(parent, _) | Self::Key(parent, _) | Self::Index(parent, _) => parent.prefix(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn map_keys_are_bracketed_in_fields_and_dotted_in_texts() {
        let root = Path::Root("");
        let spec = root.field("spec");
        let ports = spec.field("ports");
        let first = ports.index(0);
        let labels = first.field("labels");
        let app = labels.key("app");
        assert_eq!(app.text(), "spec.ports[0].labels[app]");
        assert_eq!(app.name(), "spec.ports[0].labels.app");
        assert_eq!(root.text(), "<nil>");
    }

    #[test]
    fn names_are_relative_to_the_root() {
        let status = Path::Root("status");
        let ready = status.field("ready");
        assert_eq!(ready.text(), "status.ready");
        assert_eq!(ready.name(), "ready");
        assert_eq!(ready.named_field(&ready.name()), "status.ready");
        assert_eq!(status.named_field(""), "status");
    }
}
