use serde::Deserialize;

use super::*;
use crate::config::tests::{Shop, shop_schema};
use crate::config::{Change, Channels, ConfigSchema, ManagerConfiguration, Overrides};

fn read(settings: &str) -> ManagerConfiguration {
    let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
    shop_schema().parse(&format!("{head}{settings}"), "m.yaml", &Overrides::default()).unwrap().configuration
}

#[test]
fn a_section_is_published_only_when_it_changes() {
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
fn conflicts_of_live_keys_with_waiting_keys_are_reported() {
    let (old, new) = (read("shop: {currency: JPY}"), read("shop: {currency: EUR, maxOrders: 500}"));
    assert_eq!(new.sections.problems(), []);
    let problems = old.reloaded(&new).sections.problems();
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["shop.maxOrders: 500; expected at most 100 with currency JPY"]);
}

#[test]
fn a_key_applies_at_the_next_start_with_all_keys_below_it() {
    let restart = ["a", "b.c"];
    for (path, expected) in [
        ("a", Applies::AtNextStart),
        ("a.x", Applies::AtNextStart),
        ("a[\"x y\"]", Applies::AtNextStart),
        ("ab", Applies::Live),
        ("b", Applies::AtNextStart),
        ("b.c.d", Applies::AtNextStart),
        ("b.cd", Applies::Live),
    ] {
        assert_eq!(applies(path, &restart), expected, "{path}");
    }
    assert_eq!(applies("any", &[""]), Applies::AtNextStart);
}

/// A depot of goods.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Depot {
    /// The most goods.
    #[schemars(range(min = 1, max = 1000))]
    most: Option<u32>,
    /// The door of the depot.
    door: Option<Door>,
}

/// A door.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Door {
    /// The number on the door.
    number: u32,
}

impl Section for Depot {
    const RESTART: &'static [&'static str] = &["door.number"];
}

fn depot(settings: &str) -> Result<ManagerConfiguration, Vec<String>> {
    let text =
        format!("apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\ndepot: {settings}\n");
    let schema = ConfigSchema::new().section::<Depot>("depot");
    let read = schema.parse(&text, "m.yaml", &Overrides::default());
    read.map(|loaded| loaded.configuration).map_err(|error| error.lines())
}

#[test]
fn bounds_of_an_optional_number_are_checked_also_in_quotes() {
    for wrong in ["5000", "\"5000\"", "0"] {
        let lines = depot(&format!("{{most: {wrong}}}")).unwrap_err();
        assert_eq!(lines, [format!("m.yaml: depot.most: {wrong}; expected a whole number from 1 to 1000")]);
    }
    for right in ["null", "7"] {
        depot(&format!("{{most: {right}}}")).unwrap();
    }
}

#[test]
fn adding_or_removing_a_section_waits_for_the_next_start_with_its_keys() {
    let configurations = ["{}", "{door: {number: 7}}"].map(|settings| depot(settings).unwrap());
    for (old, new) in [(0, 1), (1, 0)].map(|(old, new)| (&configurations[old], &configurations[new])) {
        assert_eq!(old.reloaded(new).sections, old.sections);
        let change = Change::between(old, new);
        assert_eq!((change.live.len(), change.restart.len()), (0, 1), "{change:?}");
    }
}

#[test]
fn an_unknown_restart_key_is_a_problem_of_the_program() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Typo {
        key: u32,
    }
    impl Section for Typo {
        const RESTART: &'static [&'static str] = &["key", "kye"];
    }
    let schema = ConfigSchema::new().section::<Typo>("typo");
    let error = schema.from_overrides(&Overrides::default()).unwrap_err();
    let line = "typo: RESTART of this section has \"kye\"; expected a key of the section";
    assert!(error.to_string().ends_with(line), "{error}");
}
