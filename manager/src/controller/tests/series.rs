//! The number of series does not grow with objects.

use std::collections::BTreeSet;

use super::*;

const OBJECTS: usize = 50_000;

#[tokio::test(start_paused = true)]
async fn fifty_thousand_objects_are_told_of_by_the_series_of_one() {
    let (reconciler, mut runs) =
        scripted(async |attempt| if attempt == 1 { Err("down".into()) } else { Ok(Action::Done) });
    let bench = Bench::start(Controller::new("test"), reconciler);
    let series = || -> BTreeSet<String> {
        let text = bench.registry.encode(Format::Text).expect("encoded");
        let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        lines.map(|(series, _)| series.to_owned()).collect()
    };
    let mut of_one = BTreeSet::new();
    for number in 0..OBJECTS {
        let key = NamespacedName::namespaced(format!("shop-{}", number % 100), format!("web-{number}"));
        bench.notifier.notify(key);
        if number == 0 {
            assert_eq!([next(&mut runs).await.1, next(&mut runs).await.1], [1, 2]);
            of_one = series();
        }
    }
    for _ in 0..(OBJECTS - 1) * 2 {
        next(&mut runs).await;
    }
    let counted = bench.counts("controller_runtime_reconcile_errors_total");
    assert_eq!(counted, format!("{{controller=\"test\"}} {OBJECTS}"));
    let more: Vec<_> = series().difference(&of_one).cloned().collect();
    assert!(more.is_empty(), "{more:#?}");
}
