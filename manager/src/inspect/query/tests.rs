use super::*;

#[test]
fn filters_order_and_limit_are_parsed() {
    let query = "state=delayed&state=parked&namespace=shop&name=a%2Fb&sort=name&limit=5&after=shop/a";
    let wanted = Wanted {
        states: vec![State::Backoff, State::Requeued, State::Parked],
        namespace: Some("shop".to_owned()),
        name: Some("a/b".to_owned()),
    };
    let after = Some("shop/a".to_owned());
    assert_eq!(Query::parse(Some(query)), Ok(Query { wanted, sort: Sort::Name, limit: 5, after }));
    let everything =
        Query { wanted: Wanted::default(), sort: Sort::Trouble, limit: DEFAULT_LIMIT, after: None };
    assert_eq!(Query::parse(None), Ok(everything));
}

#[test]
fn every_state_has_a_word_in_queries() {
    for state in State::ALL {
        let query = Query::parse(Some(&format!("state={}", state.as_str())));
        assert_eq!(query.map(|query| query.wanted.states), Ok(vec![state]));
    }
    assert_eq!(states().count(), State::ALL.len() + 1);
}

#[test]
fn misspelt_parameters_are_refused() {
    let known = "expected state, namespace, name, sort, limit or after";
    let states = "expected one of delayed, backoff, requeued, parked, running, dirty, ready";
    let sorts = "expected one of trouble, attempts, next, since, name";
    let pages = "after needs sort=name; any other order changes from page to page";
    for (query, expected) in [
        ("sate=ready", &*format!(r#"unknown parameter "sate"; {known}"#)),
        ("state=", &format!(r#"unknown state ""; {states}"#)),
        ("state=Ready", &format!(r#"unknown state "Ready"; {states}"#)),
        ("name=a&name=b", "name is given twice; give it once"),
        ("sort=age", &format!(r#"unknown sort "age"; {sorts}"#)),
        ("limit=0", r#"invalid limit "0"; expected 1 to 100000"#),
        ("limit=100001", r#"invalid limit "100001"; expected 1 to 100000"#),
        ("limit=all", r#"invalid limit "all"; expected 1 to 100000"#),
        ("after=shop/a", pages),
        ("sort=next&after=shop/a", pages),
    ] {
        assert_eq!(Query::parse(Some(query)), Err(expected.to_owned()), "{query}");
    }
    assert_eq!(none(Some("")), Ok(()));
    assert_eq!(none(Some("a")), Err(r#"unknown parameter "a"; this path has no parameters"#.to_owned()));
}
