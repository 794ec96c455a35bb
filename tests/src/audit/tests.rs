use super::*;

fn write(user: &str, resource: &str, holder: &str, second: i64) -> Write {
    Write {
        user: user.to_owned(),
        verb: "update".to_owned(),
        resource: resource.to_owned(),
        name: "web".to_owned(),
        uri: String::new(),
        code: 200,
        received: Timestamp::from_second(second).unwrap(),
        body: serde_json::json!({"spec": {"holderIdentity": holder}}),
    }
}

#[test]
fn only_the_holder_may_write_and_only_while_it_is_the_holder() {
    let writes = [
        write("b", "deployments", "", 1),
        write("a", "leases", "pod-a", 2),
        write("a", "deployments", "", 3),
        write("b", "deployments", "", 4),
        write("a", "leases", "pod-a", 5),
        write("a", "leases", "", 6),
        write("a", "deployments", "", 7),
        write("a", "events", "", 7),
        write("b", "leases", "pod-b", 8),
        write("b", "deployments", "", 9),
    ];
    let wrong: Vec<i64> = outside_of_terms(&writes).iter().map(|w| w.received.as_second()).collect();
    assert_eq!(wrong, [1, 4, 7], "before any term, in another one's, between two");
    let terms = terms(&writes);
    assert_eq!(terms.len(), 2);
    assert_eq!((terms[0].renewed.as_second(), terms[0].until.map(Timestamp::as_second)), (5, Some(6)));
}
