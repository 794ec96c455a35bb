use super::*;

#[test]
fn a_standby_counts_no_gates() {
    let leading = watch::Sender::new(true);
    let metrics = GateMetrics::register(&Registry::new(), leading.subscribe());
    let count = |state| metrics.gates.get_or_create(&[("state", state)]).get();
    let web = NamespacedName::namespaced("shop", "web");
    metrics.observe(&web, "closed");
    metrics.observe(&NamespacedName::namespaced("shop", "api"), "closed");
    metrics.observe(&web, "open");
    assert_eq!((count("closed"), count("open")), (1, 1));
    leading.send_replace(false);
    metrics.clear();
    assert_eq!((count("closed"), count("open")), (0, 0));
    metrics.observe(&web, "open");
    assert_eq!((count("closed"), count("open")), (0, 0), "a run that ends after its term is not counted");
    leading.send_replace(true);
    metrics.observe(&web, "open");
    assert_eq!((count("closed"), count("open")), (0, 1), "counting starts again in the next term");
    metrics.clear();
    assert_eq!((count("closed"), count("open")), (0, 1), "a late clear of the last term removes nothing");
}
