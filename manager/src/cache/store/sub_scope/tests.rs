use super::*;

#[test]
fn a_scope_is_a_part_of_a_wider_one_if_metadata_decides_it() {
    let shop = Scope::namespace("shop");
    let web = Scope::all().labels("app=web".parse().unwrap());
    for (wide, narrow, part) in [
        (Scope::all(), shop.clone(), true),
        (Scope::all(), web.clone(), true),
        (web.clone(), shop.clone().labels("app=web".parse().unwrap()), true),
        (shop.clone(), Scope::all(), false),
        (shop.clone(), Scope::namespace("bank"), false),
        (web.clone(), Scope::all(), false),
        (web.clone(), shop.clone(), false),
        (Scope::all(), Scope::all().fields("metadata.name=a"), false),
        (Scope::all().fields("metadata.name=a"), shop.clone().fields("metadata.name=a"), true),
    ] {
        assert_eq!(SubScope::of(&wide, &narrow).is_some(), part, "{narrow} in {wide}");
    }
}
