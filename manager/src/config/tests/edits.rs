//! Random edits of a valid file, for tests of code that parses such files.

/// Returns the default file without its comments: one key per line.
pub(crate) fn every_key() -> String {
    super::shop_schema()
        .default_file("shop")
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .fold(String::new(), |text, line| text + line + "\n")
}

/// Edits a text at one random place: removes, repeats, swaps, indents or cuts off a line, or changes a value
/// or a character.
pub(crate) fn edit(text: &str, random: &mut fastrand::Rng) -> String {
    const TOKENS: [&str; 24] = [
        "null",
        "~",
        "-1",
        "0",
        "99999999999999999999999",
        "1e400",
        ".nan",
        "true",
        "yes",
        "5s",
        "1h1h1h1h1h",
        "''",
        "[]",
        "{}",
        "[[[[[[",
        "{a: {a: {a: {a: 1}}}}",
        "&a [*a]",
        "*b",
        "<<: {}",
        "!!binary x",
        "\u{feff}",
        "\"\\u0000\"",
        "|\n  text",
        "? complex",
    ];
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return "{}\n".to_owned();
    }
    let at = random.usize(..lines.len());
    match random.u8(..7) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => {
            let other = random.usize(..lines.len());
            lines.swap(at, other);
        }
        3 => lines[at] = format!("{}{}", " ".repeat(random.usize(..5)), lines[at]),
        4 => {
            if let Some((key, _)) = lines[at].clone().split_once(':') {
                lines[at] = format!("{key}: {}", TOKENS[random.usize(..TOKENS.len())]);
            }
        }
        5 => {
            let mut chars: Vec<char> = lines[at].chars().collect();
            if !chars.is_empty() {
                let place = random.usize(..chars.len());
                chars[place] = *random
                    .choice(&[':', '"', '\'', '{', '}', '[', ']', '#', 'x', ' ', '\t', '5', '\u{0}'])
                    .unwrap();
            }
            lines[at] = chars.into_iter().collect();
        }
        _ => lines.truncate(at + 1),
    }
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}
