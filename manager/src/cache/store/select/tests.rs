use super::*;
use crate::cache::tests::fixtures::labels;

#[test]
fn a_selector_reads_as_the_server_reads_it() {
    let web = labels(&[("app", "web"), ("cores", "4"), ("tier", "front")]);
    for (selector, matches) in [
        ("", true),
        ("app=web", true),
        ("app==web, tier = front", true),
        ("app!=web", false),
        ("zone!=a", true),
        ("app in (api, web),tier", true),
        ("app notin (api, web)", false),
        ("zone notin (a)", true),
        ("!zone", true),
        ("!app", false),
        ("zone", false),
        ("cores>3", true),
        ("cores > 4", false),
        ("cores<5", true),
        ("app<5", false),
        ("zone<5", false),
    ] {
        assert_eq!(selector.parse::<LabelSelector>().unwrap().matches(&web), matches, "{selector}");
    }
}

#[test]
fn equivalent_selectors_are_equal_scopes() {
    for (one, other, shown) in [
        ("tier = x, app==web", "app=web,tier=x,app=web", "app=web,tier=x"),
        ("app in (web, api)", "app in (api,web,web)", "app in (api,web)"),
        ("app in (web)", "app=web", "app=web"),
        (
            "!old,cores>4,zone notin (b,a)",
            "zone notin (a, b) , !old, cores > 4",
            "cores>4,!old,zone notin (a,b)",
        ),
        ("a=,b", "b,a in ()", "a=,b"),
    ] {
        let scope = |text: &str| Scope::all().labels(text.parse().unwrap());
        assert_eq!(scope(one), scope(other));
        assert_eq!(scope(one).to_string(), format!("all, labels {shown}"));
        assert_eq!(scope(shown), scope(one), "the displayed selector parses to the same scope");
    }
    assert_eq!(Scope::all().labels(LabelSelector::default()), Scope::all());
}

#[test]
fn an_invalid_selector_is_refused_with_its_invalid_part() {
    for (selector, part) in [
        ("app=web,,", ""),
        ("a b", "a b"),
        ("a in x", "a in x"),
        ("a in (b c)", "a in (b c)"),
        ("=x", "=x"),
        ("a>b", "a>b"),
    ] {
        let error = selector.parse::<LabelSelector>().unwrap_err();
        assert_eq!(error.part, part, "{selector}");
    }
}
