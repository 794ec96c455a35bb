//! Rust sources as text: which parts are code, and where a call ends.

/// Returns the source with every character of comments, strings and character literals replaced by a space,
/// so that a search finds code only. All positions stay.
pub(super) fn masked(source: &str) -> String {
    let mut masked = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let hidden = hidden(rest, masked.ends_with(|last: char| last.is_alphanumeric() || last == '_'));
        let (part, after) = rest.split_at(if hidden == 0 { first.len_utf8() } else { hidden });
        if hidden == 0 {
            masked.push_str(part);
        } else {
            masked.push_str(&blank(part));
        }
        rest = after;
    }
    masked
}

/// Returns the position after the call or the body whose opening bracket is at `open` in a masked source;
/// `None` if the bracket is never closed.
pub(super) fn end_of_call(masked: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, char) in masked.char_indices().skip_while(|(at, _)| *at < open) {
        match char {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + char.len_utf8());
        }
    }
    None
}

/// Returns a masked source with a space in place of every character of outermost items that only tests have.
pub(super) fn without_tests(mut masked: String) -> String {
    // With a line break in front, the first line is like any other.
    while let Some(begin) = format!("\n{masked}").find("\n#[cfg(test)]") {
        // The item ends with a semicolon or a body.
        let end = masked[begin..].find(['{', ';']).and_then(|length| {
            let at = begin + length;
            if masked[at..].starts_with(';') { Some(at + 1) } else { end_of_call(&masked, at) }
        });
        let tests = begin..end.unwrap_or(masked.len());
        masked.replace_range(tests.clone(), &blank(&masked[tests]));
    }
    masked
}

/// Returns the identifiers in the code of a source.
pub(super) fn identifiers(source: &str) -> Vec<String> {
    let masked = masked(source);
    let words = masked.split(|char: char| !char.is_alphanumeric() && char != '_');
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Returns as many spaces as a text has bytes. Its lines stay.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Returns the length of the comment or literal at the beginning of a source; 0 if code begins there.
/// `in_word` is true if the character before belongs to an identifier.
fn hidden(source: &str, in_word: bool) -> usize {
    if source.starts_with("//") {
        return source.find('\n').unwrap_or(source.len());
    }
    if source.starts_with("/*") {
        return block_comment(source);
    }
    let raw = source.strip_prefix('b').unwrap_or(source).strip_prefix('r').filter(|_| !in_word);
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let opened = source.len() - raw.len() + hashes + 1;
            return source[opened..].find(&end).map_or(source.len(), |at| opened + at + end.len());
        }
    }
    if source.starts_with('"') {
        return literal(source, '"').unwrap_or(source.len());
    }
    // Not a lifetime: those have no second quote after one character.
    if let Some(inner) = source.strip_prefix('\'') {
        let mut chars = inner.chars();
        let first = chars.next();
        if first == Some('\\') || chars.next() == Some('\'') {
            return literal(source, '\'').unwrap_or(source.len());
        }
    }
    0
}

/// Returns the length of a block comment, which may have others in it.
fn block_comment(source: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < source.len() {
        let rest = &source.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    source.len()
}

/// Returns the length of a literal with escapes that begins and ends with `quote`.
fn literal(source: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, char) in source.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return Some(at + char.len_utf8()),
            _ => {}
        }
    }
    None
}
