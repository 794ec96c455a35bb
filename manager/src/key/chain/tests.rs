use super::*;

#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Link {
    text: &'static str,
    #[source]
    cause: Option<Box<Link>>,
}

fn link(texts: &[&'static str]) -> Option<Box<Link>> {
    let (text, rest) = texts.split_first()?;
    Some(Box::new(Link { text, cause: link(rest) }))
}

#[test]
fn each_cause_is_displayed_once() {
    let text = |texts: &[&'static str]| Chain(&*link(texts).expect("an error")).to_string();
    assert_eq!(text(&["cannot start", "no config", "no such file"]), "cannot start: no config: no such file");
    assert_eq!(text(&["no config: no such file", "no such file"]), "no config: no such file");
}
