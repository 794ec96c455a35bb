use proptest::prelude::*;

use super::*;

fn walk(text: &[u8]) -> Result<(), Malformed> {
    let mut cursor = Cursor::new(text)?;
    cursor.value()?;
    cursor.end()
}

/// Whether `serde_json` reads the text, apart from the range of numbers.
fn reads(text: &[u8]) -> bool {
    let read = serde_json::from_slice::<serde_json::Value>(text);
    read.map_or_else(|error| error.to_string().starts_with("number out of range"), |_| true)
}

/// Pieces of valid and of invalid JSON.
const PIECES: [&str; 32] = [
    "{",
    "}",
    "[",
    "]",
    "{}",
    "[]",
    ",",
    ":",
    " ",
    "\n",
    "\"a\"",
    "\"a\":",
    "\"",
    "\\",
    "\\n",
    "\\u00e9",
    "\\ud83d\\ude00",
    "\\ud83d",
    "\\udc00",
    "\\x",
    "0",
    "-1",
    "01",
    "1.5",
    "1.",
    "2e+7 ",
    "true",
    "fals",
    "null",
    "long enough for a whole word of text",
    "\u{e9}",
    "\u{1}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_walk_accepts_exactly_the_text_that_serde_json_reads(
        pieces in proptest::collection::vec(0..PIECES.len(), 0..12),
    ) {
        let text: String = pieces.iter().map(|at| PIECES[*at]).collect();
        for text in [text.clone(), format!("[{text}]"), format!("{{\"k\":{text}}}"), format!("\"{text}\"")] {
            prop_assert_eq!(walk(text.as_bytes()).is_ok(), reads(text.as_bytes()), "{}", text);
        }
    }
}

#[test]
fn a_string_ends_at_its_quote_at_any_offset_in_a_chunk() {
    for length in 0..40 {
        for (end, well) in [("\"", true), ("\\\"\"", true), ("\\", false), ("\u{1f}\"", false), ("", false)] {
            let text = format!("\"{}{end}", "x".repeat(length));
            assert_eq!(walk(text.as_bytes()).is_ok(), well, "{text}");
        }
    }
}

#[test]
fn nesting_is_limited_as_in_serde_json() {
    let nested = |open: &str, close: &str, levels| open.repeat(levels) + "1" + &close.repeat(levels);
    for levels in [126, 127, 128, 200] {
        for text in [nested("[", "]", levels), nested("{\"a\":", "}", levels)] {
            assert_eq!(walk(text.as_bytes()).is_ok(), reads(text.as_bytes()), "{levels} levels");
            let outer = format!("{{\"a\":{text}}}");
            let mut cursor = Cursor::over(&outer);
            let mut members = cursor.open().unwrap();
            members.next().unwrap();
            assert_eq!(members.cursor.value().is_ok(), reads(outer.as_bytes()), "{levels} levels below one");
        }
    }
}

#[test]
fn an_error_contains_the_offset_in_the_text() {
    let of = |text: &[u8]| walk(text).unwrap_err().to_string();
    assert_eq!(of(br#"{"a":[1,}"#), "a value expected at byte 8");
    assert_eq!(of(b"[1 2]"), "a comma or the end of the object or list expected at byte 3");
    assert_eq!(of(b"\"ab\xff\""), "UTF-8 expected at byte 3");
    assert_eq!(of(b"\"ab\0\""), "an escape in place of a control character expected at byte 3");
}
