//! Lines added to sources as users edit them.

use super::super::places::{Added, Line};
use super::super::source::{identifiers, masked, without_tests};

#[track_caller]
fn check(line: &Line, source: &str, expected: &str) {
    assert_eq!(line.add_to(source), Added::Now(expected.to_owned()));
    assert_eq!(line.add_to(expected), Added::Already, "added twice");
}

fn controllers() -> Line {
    Line::on_program("controllers", "\"b\"")
}

#[test]
fn comments_strings_and_characters_are_no_code() {
    let source = "a('\"', \"x \\\" y\"); // é z\n/* /* b */ c */ d('\\'', r#\"e \" f\"#, '{'); fn g<'h>() {}";
    assert_eq!(masked(source).len(), source.len());
    assert_eq!(identifiers(source), ["a", "d", "fn", "g", "h"]);
    let (open, closed) = ("a \" b", "a /* b");
    assert_eq!((identifiers(open), identifiers(closed)), (vec!["a".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn items_for_tests_are_no_code() {
    let source = "a!();\n#[cfg(test)]\nuse b::c;\nd!();\n#[cfg(test)]\n#[allow(e)]\nmod f {\n    fn g() {}\n}\
                  \nfn h() {\n    #[cfg(test)]\n    i();\n}\n#[cfg(test)]\nmod j {";
    let code = without_tests(source.to_owned());
    assert_eq!(code.len(), source.len());
    assert_eq!(identifiers(&code), ["a", "d", "fn", "h", "cfg", "test", "i"]);
    assert_eq!(identifiers(&without_tests("#[cfg(test)]\nmod a;\nb();".to_owned())), ["b"]);
}

#[test]
fn items_for_tests_are_no_places() {
    let tests = r#"
#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    fn program() -> Program {
        Program::new("b").crds(["b"]).controllers(["b"]);
    }

    pub fn setup(manager: &Manager) {
        controllers::b::setup(manager)?;
    }
}
"#;
    // Before and after the code.
    let check = |line: &Line, source: &str, expected: &str| {
        check(line, &format!("{source}{tests}"), &format!("{expected}{tests}"));
        check(line, &format!("{tests}{source}"), &format!("{tests}{expected}"));
        assert_eq!(line.add_to(tests), Added::Nowhere, "{line:?}");
    };
    let program = |calls: &str| format!("\nfn program() {{\n    Program::new(\"a\"){calls}\n}}\n");
    let added = ".controllers([\"a\"]).controllers([\"b\"])";
    check(&controllers(), &program(".controllers([\"a\"])"), &program(added));
    check(&controllers(), &program(""), &program(".controllers([\"b\"])"));
    let import = "use kube::CustomResourceExt;\n";
    check(&Line::import("kube::CustomResourceExt"), "use a::b;\n", &format!("{import}use a::b;\n"));
    let setup = |body: &str| format!("\npub fn setup(manager: &Manager) {{\n{body}}}\n");
    let (one, two) = ("    controllers::a::setup(manager)?;\n", "    controllers::b::setup(manager)?;\n");
    check(&Line::setup("b"), &setup(one), &setup(&format!("{one}{two}")));
}

#[test]
fn modules_are_in_the_order_of_their_names() {
    let line = Line::module("b");
    check(&line, "//! Doc.\n\npub mod a;\npub mod c;\n", "//! Doc.\n\npub mod a;\npub mod b;\npub mod c;\n");
    check(
        &line,
        "//! Doc.\n\n/// C.\n#[rustfmt::skip]\npub mod c;\n",
        "//! Doc.\n\npub mod b;\n/// C.\n#[rustfmt::skip]\npub mod c;\n",
    );
    check(&line, "//! Doc.\n", "//! Doc.\n\npub mod b;\n");
    check(&line, "mod a;\n\nfn f() {}\n", "mod a;\npub mod b;\n\nfn f() {}\n");
    // Neither commented out nor within another module.
    check(
        &line,
        "// pub mod b;\nmod x {\n    pub mod b;\n}\n",
        "// pub mod b;\nmod x {\n    pub mod b;\n}\n\npub mod b;\n",
    );
    assert_eq!(line.add_to("mod b;\n"), Added::Already);
}

#[test]
fn a_call_follows_the_last_one_of_its_method() {
    let chain = |calls: &str| format!("    Program::new(\"a\", b(), \"c (d\"){calls};\n");
    let line = controllers();
    let (one, two) = ("\n        .controllers([\"a\"])", "\n        .controllers([\"b\"])");
    check(
        &line,
        &chain(&format!("{one}\n        .setup(setup)")),
        &chain(&format!("{one}{two}\n        .setup(setup)")),
    );
    check(&line, &chain(one), &chain(&format!("{one}{two}")));
    check(
        &line,
        &chain(".controllers([\"a\"]).setup(setup)"),
        &chain(".controllers([\"a\"]).controllers([\"b\"]).setup(setup)"),
    );
    // Over several lines, with a bracket in a comment.
    let long = "\n        .controllers([\n            \"a\", // ])\n        ])";
    check(&line, &chain(long), &chain(&format!("{long}{two}")));
    // Without such a call, after the constructor.
    check(&line, &chain("\n        .setup(setup)"), &chain(&format!("{two}\n        .setup(setup)")));
    check(&line, &chain(""), &chain(".controllers([\"b\"])"));
    let commented = "\n        // .controllers([\"b\"])\n        .setup(setup)";
    check(&line, &chain(commented), &chain(&format!("{two}{commented}")));
}

#[test]
fn a_name_within_another_list_or_text_counts_as_added() {
    let source = "Program::new(\"b\").controllers([\"a\", \"b\"])";
    assert_eq!(controllers().add_to(source), Added::Already);
    assert_eq!(controllers().add_to("fn program() {}"), Added::Nowhere);
}

#[test]
fn an_import_is_added_unless_the_item_is_there_already() {
    let line = Line::import("kube::CustomResourceExt");
    check(&line, "//! Doc.\n\nuse a::b;\n", "//! Doc.\n\nuse kube::CustomResourceExt;\nuse a::b;\n");
    check(&line, "use a::b;\n", "use kube::CustomResourceExt;\nuse a::b;\n");
    assert_eq!(line.add_to("use kube::{Api, CustomResourceExt};\n"), Added::Already);
    assert_eq!(line.add_to("// use a::b;\n"), Added::Nowhere);
}

#[test]
fn a_setup_follows_the_last_one_or_begins_the_function() {
    let function = |body: &str| {
        format!("pub fn setup(manager: &Manager) -> Result<(), BoxError> {{\n{body}    Ok(())\n}}\n")
    };
    let line = Line::setup("b");
    let (one, two) = ("    controllers::a::setup(manager)?;\n", "    controllers::b::setup(manager)?;\n");
    check(&line, &function(one), &function(&format!("{one}{two}")));
    check(&line, &function(""), &function(two));
    let edited = "    // controllers::b::setup(manager)?;\n    let x = 1;\n";
    check(&line, &function(edited), &function(&format!("{two}{edited}")));
    for other in ["fn setup(manager: &Manager) { Ok(()) }", "fn register(manager: &Manager) {\n}\n", ""] {
        assert_eq!(line.add_to(other), Added::Nowhere, "{other}");
    }
}
