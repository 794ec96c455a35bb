use super::*;

fn meta(namespace: Option<&str>, name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectMeta::default()
    }
}

fn owner_kind() -> KindId {
    KindId::new("apps.mainstay.dev", "v1alpha1", "Bundle", "bundles", true)
}

fn child_name() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

#[test]
fn a_reference_for_an_apply_is_refused_as_one_in_an_edit_is() {
    let owner = meta(Some("shop"), "web", "o");
    let refused = |child: &NamespacedName| controller_reference(&owner, &owner_kind(), child).unwrap_err();
    let error = refused(&NamespacedName::namespaced("bank", "web")).to_string();
    let why = "an owner in a namespace can own only within that namespace";
    assert_eq!(error, format!("{} shop/web cannot own bank/web: {why}", owner_kind()));
    let error = refused(&NamespacedName::new(None, "web"));
    assert!(error.to_string().ends_with(NO_NAMESPACE), "{error}");
}

#[test]
fn the_owner_becomes_the_only_controller() {
    let mut child = meta(Some("shop"), "web", "c");
    let owner = meta(Some("shop"), "web", "o");
    child.owner_references = Some(vec![OwnerReference { uid: "friend".to_owned(), ..Default::default() }]);
    set_controller_reference(&mut child, &owner, &owner_kind()).unwrap();
    set_controller_reference(&mut child, &owner, &owner_kind()).unwrap();
    let owners = child.owner_references.unwrap();
    assert_eq!(owners.len(), 2, "the other owner stays and the second call replaces the first: {owners:?}");
    assert_eq!(owners[1], controller_reference(&owner, &owner_kind(), &child_name()).unwrap());
    assert_eq!((owners[1].controller, owners[1].block_owner_deletion), (Some(true), Some(true)));
    assert_eq!(owners[1].api_version, "apps.mainstay.dev/v1alpha1");
}

#[test]
fn the_error_for_a_second_controller_names_the_first() {
    let mut child = meta(Some("shop"), "web", "c");
    set_controller_reference(&mut child, &meta(Some("shop"), "first", "1"), &owner_kind()).unwrap();
    let before = child.clone();
    let error =
        set_controller_reference(&mut child, &meta(Some("shop"), "second", "2"), &owner_kind()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "shop/web is already controlled by Bundle first (uid 1); delete it or remove that owner \
             reference first"
    );
    assert_eq!(child, before);
}

#[test]
fn an_owner_in_another_namespace_is_refused() {
    let owner = meta(Some("shop"), "web", "o");
    for set in [set_controller_reference, set_owner_reference] {
        let mut elsewhere = meta(Some("bank"), "web", "c");
        let error = set(&mut elsewhere, &owner, &owner_kind()).unwrap_err();
        assert!(error.to_string().contains("only within that namespace"), "{error}");
        let mut cluster_wide = meta(None, "web", "c");
        let error = set(&mut cluster_wide, &owner, &owner_kind()).unwrap_err();
        assert!(error.to_string().ends_with(NO_NAMESPACE), "{error}");
        assert_eq!((elsewhere.owner_references, &cluster_wide.owner_references), (None, &None));
        let unplaced = meta(None, "web", "o");
        let error = set(&mut cluster_wide, &unplaced, &owner_kind()).unwrap_err();
        assert!(error.to_string().ends_with(NO_NAMESPACE), "{error}");
    }
}

#[test]
fn a_cluster_scoped_owner_may_own_anything() {
    let node = KindId::new("", "v1", "Node", "nodes", false);
    for mut child in [meta(Some("shop"), "web", "c"), meta(None, "web", "c")] {
        assert!(set_controller_reference(&mut child, &meta(None, "node", "n"), &node).unwrap());
    }
}

#[test]
fn another_version_of_the_group_updates_the_same_owner_in_place() {
    let mut child = meta(Some("shop"), "web", "c");
    let owner = meta(Some("shop"), "web", "o");
    let newer = KindId::new("apps.mainstay.dev", "v1", "Bundle", "bundles", true);
    set_controller_reference(&mut child, &owner, &owner_kind()).unwrap();
    set_owner_reference(&mut child, &meta(Some("shop"), "friend", "f"), &owner_kind()).unwrap();
    assert!(set_controller_reference(&mut child, &owner, &newer).unwrap());
    assert!(!set_controller_reference(&mut child, &owner, &newer).unwrap(), "already set");
    let owners = child.owner_references.unwrap();
    let versions: Vec<_> = owners.iter().map(|given| (&*given.uid, &*given.api_version)).collect();
    assert_eq!(versions, [("o", "apps.mainstay.dev/v1"), ("f", "apps.mainstay.dev/v1alpha1")]);
}

#[test]
fn many_owners_may_share_a_child_without_control() {
    let mut child = meta(Some("shop"), "web", "c");
    for uid in ["1", "2"] {
        assert!(set_owner_reference(&mut child, &meta(Some("shop"), uid, uid), &owner_kind()).unwrap());
    }
    assert_eq!(controller_of(&child), None);
    set_controller_reference(&mut child, &meta(Some("shop"), "2", "2"), &owner_kind()).unwrap();
    assert_eq!(controller_of(&child).map(|owner| &*owner.name), Some("2"));
    set_owner_reference(&mut child, &meta(Some("shop"), "2", "2"), &owner_kind()).unwrap();
    assert_eq!(controller_of(&child), None, "no longer the controller");
}

#[test]
fn removing_an_owner_reports_whether_it_was_one() {
    let mut child = meta(Some("shop"), "web", "c");
    assert!(!remove_owner_reference(&mut child, "1"));
    set_owner_reference(&mut child, &meta(Some("shop"), "first", "1"), &owner_kind()).unwrap();
    assert!(has_owner_reference(&child, "1") && !has_owner_reference(&child, "2"));
    assert!(!remove_owner_reference(&mut child, "2"));
    assert!(remove_owner_reference(&mut child, "1"));
    assert!(!has_owner_reference(&child, "1"));
}

#[test]
fn an_owner_of_the_same_name_with_another_uid_is_another_owner() {
    let mut child = meta(Some("shop"), "web", "c");
    set_controller_reference(&mut child, &meta(Some("shop"), "web", "old"), &owner_kind()).unwrap();
    let error = set_controller_reference(&mut child, &meta(Some("shop"), "web", "new"), &owner_kind());
    assert!(matches!(error, Err(OwnerError::AlreadyControlled { .. })), "{error:?}");
}

#[test]
fn an_owner_without_uid_is_refused() {
    let owner = ObjectMeta { uid: None, ..meta(Some("shop"), "web", "") };
    let error = controller_reference(&owner, &owner_kind(), &child_name()).unwrap_err();
    assert!(error.to_string().contains("has no metadata.uid"), "{error}");
}
