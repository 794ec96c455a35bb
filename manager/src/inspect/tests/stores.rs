//! Pages of stores and watches.

use super::*;
use crate::cache::{KindStatus, Packing, Projection, Scope};
use crate::key::KindId;

#[tokio::test(start_paused = true)]
async fn stores_are_listed_by_kind_and_scope_with_their_errors() {
    let cache = cache(CacheSettings { namespaces: vec!["shop".to_owned()], ..CacheSettings::default() });
    let deployment = || KindId::new("apps", "v1", "Deployment", "deployments", true);
    let _site = cache.kind(deployment(), Scope::namespace("site"), Projection::Metadata);
    let _nodes = cache.kind(KindId::new("", "v1", "Node", "nodes", false), Scope::all(), Projection::Full);
    advance(Duration::from_millis(2_500)).await;
    let inspect = Inspect::new(Directory::default(), cache, unelected()).pages();
    let expected = concat!(
        r#"{"caches":[{"cluster":null,"kind":"Node","version":"v1","scope":"all","projection":"full","#,
        r#""synced":false,"downSeconds":2.5,"lastError":null,"absent":false,"objects":0,"bytes":0,"#,
        r#""tooLarge":0,"packed":null,"restarts":0,"relists":0,"events":0,"lastEventSeconds":null,"#,
        r#""decodeErrors":0,"leftOut":{},"handlers":{},"unindexed":{}},{"cluster":null,"#,
        r#""kind":"Deployment.apps","version":"v1","scope":"namespace site","projection":"metadata","#,
        r#""synced":false,"downSeconds":2.5,"#,
        r#""lastError":"the scope's namespace is not among cache.namespaces; add it there or narrow the "#,
        r#"scope","absent":true,"objects":0,"bytes":0,"tooLarge":0,"packed":null,"restarts":0,"relists":0,"#,
        r#""events":0,"lastEventSeconds":null,"decodeErrors":0,"leftOut":{},"handlers":{},"unindexed":{}}]}"#,
        "\n",
    );
    assert_eq!(get(&inspect, "/debug/caches"), (200, expected.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn every_watch_of_a_store_is_listed() {
    let cache =
        cache(CacheSettings { namespaces: vec!["shop".into(), "site".into()], ..CacheSettings::default() });
    let _maps =
        cache.kind(KindId::new("", "v1", "ConfigMap", "configmaps", true), Scope::all(), Projection::Full);
    advance(Duration::from_millis(1_500)).await;
    let inspect = Inspect::new(Directory::default(), cache, unelected()).pages();
    let row = |namespace: &str| {
        format!(
            concat!(
                r#"{{"cluster":null,"kind":"ConfigMap","scope":"all, namespaces shop site","#,
                r#""projection":"full","namespace":"{}","working":false,"sinceSeconds":1.5,"lists":0,"#,
                r#""watches":0,"lastError":null,"absent":false}}"#,
            ),
            namespace,
        )
    };
    let expected = format!("{{\"watches\":[{},{}]}}\n", row("shop"), row("site"));
    assert_eq!(get(&inspect, "/debug/watches"), (200, expected));
}

#[tokio::test]
async fn stores_of_other_clusters_are_listed_last_with_their_cluster() {
    let own = cache(CacheSettings::default());
    let edge = own.for_cluster("edge", silent());
    let kind = |name: &str| KindId::new("", "v1", name, "any", true);
    let _theirs = edge.kind(kind("Apple"), Scope::all(), Projection::Full);
    let _ours = own.kind(kind("Pear"), Scope::all(), Projection::Full);
    let inspect = Inspect::new(Directory::default(), own, unelected()).pages();
    let (status, page) = get(&inspect, "/debug/caches");
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let rows: Vec<_> =
        page["caches"].as_array().unwrap().iter().map(|row| (&row["cluster"], &row["kind"])).collect();
    let expected = [(serde_json::Value::Null, "Pear".into()), ("edge".into(), "Apple".into())];
    assert_eq!((status, rows), (200, expected.iter().map(|(cluster, kind)| (cluster, kind)).collect()));
}

#[test]
fn a_store_page_has_all_figures_and_failing_handlers() {
    let trouble = crate::cache::HandlerTrouble { panics: 1, slow: 2 };
    let packing =
        Packing { objects: 2, bytes: 300, plain_bytes: 3_100, dictionaries: 1, dictionary_bytes: 9_000 };
    let status = KindStatus {
        cluster: None,
        kind: KindId::new("apps", "v1", "Deployment", "deployments", true),
        scope: "all".to_owned(),
        projection: Projection::Full,
        required: crate::cache::Required::default(),
        synced: true,
        settled: true,
        down_since: None,
        last_error: None,
        absent: false,
        objects: 3,
        bytes: 4096,
        too_large: 1,
        packing,
        restarts: 5,
        relists: 6,
        events: 7,
        last_event_age: Some(Duration::from_micros(1_500_001)),
        decode_errors: 8,
        pack_stalls: 0,
        left_out: [("shop/big".to_owned(), "too long".to_owned())].into(),
        handlers: [("owner".to_owned(), trouble)].into(),
        unindexed: [("by-node".to_owned(), 9)].into(),
        parts: Vec::new(),
    };
    let expected = concat!(
        r#"{"caches":[{"cluster":null,"kind":"Deployment.apps","version":"v1","scope":"all","#,
        r#""projection":"full","synced":true,"downSeconds":null,"lastError":null,"absent":false,"#,
        r#""objects":3,"bytes":4096,"tooLarge":1,"packed":{"objects":2,"bytes":300,"plainBytes":3100,"#,
        r#""ratio":10.3,"dictionaries":1,"dictionaryBytes":9000},"restarts":5,"relists":6,"events":7,"#,
        r#""lastEventSeconds":1.500001,"decodeErrors":8,"leftOut":{"shop/big":"too long"},"#,
        r#""handlers":{"owner":{"panics":1,"slow":2}},"unindexed":{"by-node":9}}]}"#,
    );
    assert_eq!(serde_json::to_string(&super::super::stores::caches(vec![status])).unwrap(), expected);
}
