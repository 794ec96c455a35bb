use super::*;
use crate::config::tests::{Shop, shop_schema};
use crate::config::{ManagerConfiguration, Overrides};

fn read(settings: &str) -> ManagerConfiguration {
    let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
    shop_schema().parse(&format!("{head}{settings}"), "m.yaml", &Overrides::default()).unwrap().configuration
}

#[test]
fn a_section_is_published_when_it_differs_and_only_then() {
    let (one, two) = (read("shop: {maxOrders: 1}"), read("shop: {maxOrders: 2}"));
    let channels = Channels::new(&one.sections);
    let mut shop = channels.subscribe::<Shop>("shop").unwrap();
    assert_eq!(shop.borrow_and_update().max_orders, 1);
    channels.publish(&one.sections, &read("shop: {maxOrders: 1}\nshutdown: {gracePeriod: 9s}").sections);
    assert!(!shop.has_changed().unwrap());
    channels.publish(&one.sections, &two.sections);
    assert!(shop.has_changed().unwrap());
    assert_eq!(shop.borrow_and_update().max_orders, 2);
    assert!(matches!(channels.subscribe::<Shop>("shp"), Err(SectionError::Unknown { .. })));
}

#[test]
fn live_keys_that_do_not_go_with_waiting_ones_are_reported() {
    let (old, new) = (read("shop: {currency: JPY}"), read("shop: {currency: EUR, maxOrders: 500}"));
    assert_eq!(new.sections.problems(), []);
    let problems = old.reloaded(&new).sections.problems();
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["shop.maxOrders: 500; expected at most 100 with currency JPY"]);
}

#[test]
fn a_key_waits_with_all_below_it() {
    let restart = ["a", "b.c"];
    for (path, expected) in [
        ("a", Applies::AtNextStart),
        ("a.x", Applies::AtNextStart),
        ("a[\"x y\"]", Applies::AtNextStart),
        ("ab", Applies::Live),
        ("b", Applies::Live),
        ("b.c.d", Applies::AtNextStart),
        ("b.cd", Applies::Live),
    ] {
        assert_eq!(applies(path, &restart), expected, "{path}");
    }
    assert_eq!(applies("any", &[""]), Applies::AtNextStart);
}
