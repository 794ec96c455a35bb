use prometheus_client::metrics::counter::Counter;

use super::*;

#[tokio::test(start_paused = true)]
async fn slow_peers_share_one_text_and_a_lone_scrape_gets_present_values() {
    let registry = Registry::new();
    let cakes = Counter::<u64>::default();
    registry.register("cakes", "Cakes sold", cakes.clone());
    let scrapes = ScrapeCache::new(registry);
    let scrape = |format| scrapes.encode(format).unwrap();

    let first = scrape(Format::Text);
    cakes.inc();
    let held: Vec<Bytes> = (0..100).map(|_| scrape(Format::Text)).collect();
    assert!(held.iter().all(|text| text.as_ptr() == first.as_ptr()), "one text");
    assert!(scrape(Format::OpenMetrics).ends_with(b"# EOF\n"), "formats do not share a text");
    tokio::time::advance(MAX_AGE).await;
    assert!(scrape(Format::Text).ends_with(b"cakes_total 1\n"), "the shared text is too old");

    drop((first, held));
    cakes.inc();
    assert!(scrape(Format::Text).ends_with(b"cakes_total 2\n"), "no response holds a text");
}
