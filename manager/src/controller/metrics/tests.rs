use super::*;

#[test]
fn each_way_to_end_has_a_place_of_its_own() {
    for (place, result) in Counted::ALL.into_iter().enumerate() {
        assert_eq!(result as usize, place, "{result:?}");
    }
}

#[test]
fn series_of_a_controller_that_was_removed_do_not_come_back_and_those_of_its_successor_begin_at_zero() {
    let registry = Registry::new();
    let metrics = ControllerMetrics::register(&registry);
    let successes = || {
        let text = registry.encode(crate::metrics::Format::Text).unwrap();
        let series = "controller_runtime_reconcile_total{controller=\"web\",result=\"success\"} ";
        text.lines().find_map(|line| line.strip_prefix(series)?.parse::<u64>().ok())
    };
    let first = metrics.of("web");
    first.count(Counted::success);
    assert_eq!(successes(), Some(1));
    first.remove();
    // A worker that is late keeps the series it has.
    first.count(Counted::success);
    drop(first.started());
    let text = registry.encode(crate::metrics::Format::Text).unwrap();
    assert!(!text.contains("controller=\"web\""), "{text}");
    let second = metrics.of("web");
    first.count(Counted::success);
    assert_eq!(successes(), Some(0));
    second.count(Counted::success);
    assert_eq!(successes(), Some(1));
}
