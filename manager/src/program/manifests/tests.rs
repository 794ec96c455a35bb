use k8s_openapi::api::core::v1::ConfigMap;

use super::template::Values;
use super::*;
use crate::rbac::Access;

/// Returns the files of a chart of a program that reads `ConfigMap`s and adds one document.
fn chart(settings: &str, document: &'static str) -> Files {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{settings}");
    let loaded = ConfigSchema::new().parse(&text, "test", &Overrides::default()).unwrap();
    let flags = ManifestsFlags {
        config: None,
        format: Format::Helm,
        out: None,
        check: false,
        namespace: None,
        image: None,
    };
    let wiring = Wiring { loaded, namespace: "shop-system".to_owned() };
    let own = [("own.yaml", document)];
    let shown = Shown { name: "shop", version: "1.2.3", crds: &[], sizes: Sizes::default(), own: &own };
    let setup: Setup = Box::new(|manager| {
        manager.needs(Access::to::<ConfigMap>(["get"]).because("{{ none }}"));
        Box::pin(async { Ok(()) })
    });
    files(&shown, ManifestsArgs { wiring, text, flags }, setup).unwrap()
}

#[test]
fn a_key_alone_on_a_line_becomes_lines_and_one_in_a_line_its_value() {
    let values = Values::default().with("name", "web").with("list", "- a\n\n- b").with("none", "");
    let template = "name: @name@-@name@\nitems:\n  @list@\n@none@\nother: @unknown@\n";
    assert_eq!(values.fill(template), "name: web-web\nitems:\n  - a\n\n  - b\nother: @unknown@\n");
}

#[test]
fn texts_of_the_program_are_no_expressions_of_its_chart() {
    let files = chart("", "summary: \"{{ $labels.pod }} of @namespace@\"\n");
    let expected = "summary: \"{{ `{{` }} $labels.pod }} of {{ .Release.Namespace }}\"\n";
    assert_eq!(files["chart/templates/own.yaml"], expected);
    assert!(
        !files["chart/templates/rbac.yaml"].contains("{{ none"),
        "{}",
        files["chart/templates/rbac.yaml"]
    );
}

#[test]
fn a_chart_may_be_released_in_one_of_the_served_namespaces() {
    let rbac = &chart("cache: {namespaces: [garden]}\n", "")["chart/templates/rbac.yaml"];
    let role = |name: &str, namespace: &str| {
        format!("kind: Role\nmetadata:\n  name: {name}\n  namespace: {namespace}\n")
    };
    assert!(rbac.contains(&role("shop", "garden")), "{rbac}");
    assert!(rbac.contains(&role("shop-own", "{{ .Release.Namespace }}")), "{rbac}");
}

#[test]
fn a_chart_without_metrics_has_no_switch_for_their_monitor() {
    for (settings, has) in [("", true), ("metrics: {bindAddress: \"\"}\n", false)] {
        let files = chart(settings, "");
        for file in ["values.yaml", "values.schema.json"] {
            assert_eq!(files[&format!("chart/{file}")].contains("serviceMonitor"), has, "{file}");
        }
        assert_eq!(files.contains_key("chart/templates/service_monitor.yaml"), has);
    }
}
