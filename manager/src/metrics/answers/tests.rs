use prometheus_client::metrics::counter::Counter;

use super::*;

#[tokio::test(start_paused = true)]
async fn peers_that_hold_their_answers_hold_one_and_who_asks_alone_is_told_of_this_moment() {
    let registry = Registry::new();
    let cakes = Counter::<u64>::default();
    registry.register("cakes", "Cakes sold", cakes.clone());
    let answers = Answers::new(registry);
    let answer = |format| answers.answer(format).unwrap();

    let first = answer(Format::Text);
    cakes.inc();
    let held: Vec<Bytes> = (0..100).map(|_| answer(Format::Text)).collect();
    assert!(held.iter().all(|text| text.as_ptr() == first.as_ptr()), "one text");
    assert!(answer(Format::OpenMetrics).ends_with(b"# EOF\n"), "the other form is another");
    tokio::time::advance(SHARED).await;
    assert!(answer(Format::Text).ends_with(b"cakes_total 1\n"), "that was too old");

    drop((first, held));
    cakes.inc();
    assert!(answer(Format::Text).ends_with(b"cakes_total 2\n"), "nobody holds another");
}
