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
    assert_eq!((count("closed"), count("open")), (0, 0), "a reconcile that ends after its term");
    leading.send_replace(true);
    metrics.observe(&web, "open");
    assert_eq!((count("closed"), count("open")), (0, 1), "and begins anew when it leads again");
    metrics.clear();
    assert_eq!((count("closed"), count("open")), (0, 1), "an end of the last term that comes late");
}
