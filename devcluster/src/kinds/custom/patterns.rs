//! Regular expressions of schemas, written in the syntax of Go's `regexp`.

use regex::Regex;

/// Compiles a regular expression of Go.
///
/// The syntax is nearly the same as that of [`Regex`]. Two differences are rewritten: in Go, `\d`, `\w`, `\s`
/// and `\b` match only ASCII, and inside brackets `[`, `&&`, `--` and `~~` are plain characters.
pub(super) fn compile(source: &str) -> Result<Regex, regex::Error> {
    Regex::new(&translated(source))
}

fn translated(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 8);
    let mut chars = source.chars().peekable();
    let mut in_brackets = false;
    let mut at_start = false;
    while let Some(c) = chars.next() {
        let first = std::mem::take(&mut at_start);
        match c {
            '\\' => match chars.next() {
                Some('Q') if !in_brackets => literal(&mut chars, &mut out),
                Some(class) => escape(class, in_brackets, &mut out),
                None => out.push('\\'),
            },
            '[' if !in_brackets => {
                in_brackets = true;
                at_start = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            ']' if in_brackets && first => out.push_str("\\]"),
            ']' => {
                in_brackets = false;
                out.push(']');
            }
            '[' if chars.peek() == Some(&':') => {
                out.push('[');
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' if in_brackets => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_brackets && (first || chars.peek() == Some(&'-')) => out.push_str("\\-"),
            _ => out.push(c),
        }
    }
    out
}

/// Copies the text up to `\E`, which `\Q` has started to quote.
fn literal(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            break;
        }
        text.push(c);
    }
    out.push_str(&regex::escape(&text));
}

fn escape(class: char, in_brackets: bool, out: &mut String) {
    let ascii = match (class, in_brackets) {
        ('d', true) => "0-9",
        ('d', false) => "[0-9]",
        ('D', false) => "[^0-9]",
        ('w', true) => "0-9A-Za-z_",
        ('w', false) => "[0-9A-Za-z_]",
        ('W', false) => "[^0-9A-Za-z_]",
        ('s', true) => "\\t\\n\\f\\r ",
        ('s', false) => "[\\t\\n\\f\\r ]",
        ('S', false) => "[^\\t\\n\\f\\r ]",
        ('b', false) => "(?-u:\\b)",
        _ => {
            out.push('\\');
            out.push(class);
            return;
        }
    };
    out.push_str(ascii);
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, text, expected) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{664}\u{662}", false),
            (r"^[\w-]+$", "a_b-c", true),
            (r"^[[a]+$", "[a", true),
            (r"^[]a]+$", "]a", true),
            (r"^[&&~~a]+$", "&~a", true),
            (r"^[^-a]$", "-", false),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), expected, "{pattern} {text}");
        }
        assert!(compile("[a").is_err());
    }
}
