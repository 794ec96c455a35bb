//! The names of a project, its kinds and its controllers, each in the spellings that the files need.

use mainstay::config::is_dns_name;

use super::{Done, Refusal};

/// Longest name: with the longest ending that the manifests add, `-metrics`, it is still a DNS label of at
/// most 63 characters.
const LONGEST: usize = 55;

/// Words that Rust reserves, in all editions, if they are names by the other rules.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

/// Names that cargo refuses for a package, and those that it warns about because Windows reserves them.
const REFUSED_BY_CARGO: [&str; 13] = [
    "alloc",
    "aux",
    "build",
    "con",
    "core",
    "deps",
    "examples",
    "incremental",
    "nul",
    "prn",
    "proc-macro",
    "std",
    "test",
];

/// A name of a project or a controller: a DNS label that is a Rust identifier once its dashes are
/// underscores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(String);

/// A kind in the spelling of Kubernetes, such as `WebShop`, whose other spelling is a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) camel: String,
    pub(super) name: Name,
}

// === impl Name ===

impl Name {
    /// Parses the name of a controller.
    pub(super) fn parse(text: &str) -> Done<Self> {
        let is_name = text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-')
            && !text.ends_with('-')
            && !text.contains("--")
            && text.len() <= LONGEST;
        if !is_name {
            return Err(Refusal::new(format_args!(
                "name {text:?}: expected at most {LONGEST} lower-case letters, digits and single dashes, a \
                 letter first, such as web-shop"
            )));
        }
        if KEYWORDS.contains(&text) {
            return Err(Refusal::new(format_args!("name {text:?}: expected no keyword of Rust")));
        }
        Ok(Self(text.to_owned()))
    }

    /// Parses the name of a project, which is that of its package too.
    pub(super) fn parse_package(text: &str) -> Done<Self> {
        let name = Self::parse(text)?;
        let is_port = ["com", "lpt"].iter().any(|port| {
            text.strip_prefix(port).is_some_and(|rest| rest.len() == 1 && rest.parse::<u8>().is_ok())
        });
        if REFUSED_BY_CARGO.contains(&text) || is_port {
            return Err(Refusal::new(format_args!("name {text:?}: cargo refuses a package of this name")));
        }
        Ok(name)
    }

    /// Returns the name as a DNS label, such as `web-shop`.
    pub(super) fn kebab(&self) -> &str {
        &self.0
    }

    /// Returns the name as a module, such as `web_shop`.
    pub(super) fn snake(&self) -> String {
        self.0.replace('-', "_")
    }

    /// Returns the name as a type, such as `WebShop`.
    pub(super) fn camel(&self) -> String {
        let words = self.0.split('-').map(|word| word[..1].to_ascii_uppercase() + &word[1..]);
        words.collect()
    }
}

// === impl Kind ===

impl Kind {
    /// Returns the kind that is named like a project.
    pub(super) fn of(name: &Name) -> Self {
        Self { camel: name.camel(), name: name.clone() }
    }

    /// Parses a kind, such as `WebShop`.
    pub(super) fn parse(text: &str) -> Done<Self> {
        let is_kind = text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.chars().all(|char| char.is_ascii_alphanumeric());
        if !is_kind {
            let camel = Name::parse(&kebab(text).replace(['_', ' '], "-"));
            let hint = camel.map_or_else(|_| "WebShop".to_owned(), |name| name.camel());
            return Err(Refusal::new(format_args!(
                "kind {text:?}: expected letters and digits, a capital letter first, such as {hint}"
            )));
        }
        let name = Name::parse(&kebab(text));
        let name = name.map_err(|Refusal(problem)| Refusal(format!("kind {text:?}: its {problem}")))?;
        Ok(Self { camel: text.to_owned(), name })
    }
}

/// Checks an API group for custom resources.
pub(super) fn check_group(text: &str) -> Done<()> {
    if !is_dns_name(text) || !text.contains('.') {
        return Err(Refusal::new(format_args!(
            "group {text:?}: expected a domain in lower case, such as shop.example.com"
        )));
    }
    if ["k8s.io", "kubernetes.io"].iter().any(|one| text == *one || text.ends_with(&format!(".{one}"))) {
        return Err(Refusal::new(format_args!(
            "group {text:?}: expected no domain of Kubernetes, which the API server protects"
        )));
    }
    Ok(())
}

/// Splits `WebShop` into `web-shop` and `HTTPRoute` into `http-route`.
fn kebab(camel: &str) -> String {
    let letters: Vec<char> = camel.chars().collect();
    let mut kebab = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let ends_word = at > 0 && !letters[at - 1].is_ascii_uppercase();
        let ends_acronym = at > 0 && letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && (ends_word || ends_acronym) {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}
