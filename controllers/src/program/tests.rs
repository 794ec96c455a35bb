//! The schema of the program, and the configuration files that are shipped with it.

use mainstay::config::Overrides;

use super::config_schema;

/// To update the file: `mainstay config print-defaults > config/manager.yaml`.
#[test]
fn the_shipped_file_is_made_from_the_types() {
    let shipped = include_str!("../../../config/manager.yaml");
    assert!(
        config_schema().default_file("mainstay") == shipped,
        "config/manager.yaml differs from the printed defaults"
    );
}

#[test]
fn every_shipped_file_is_valid() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    for name in ["manager.yaml", "ha.yaml", "low-memory.yaml", "../controllers/src/dev/manager.yaml"] {
        config_schema().load(&folder.join(name), &Overrides::default()).unwrap();
    }
    let whole_folder = config_schema().load(&folder, &Overrides::default()).unwrap();
    let defaults = config_schema().from_overrides(&Overrides::default()).unwrap();
    assert_eq!(whole_folder.configuration, defaults.configuration);
    let deployed = include_str!("../../../deploy/base/config.yaml");
    let deployed: k8s_openapi::api::core::v1::ConfigMap = serde_saphyr::from_str(deployed).unwrap();
    config_schema().parse(&deployed.data.unwrap()["manager.yaml"], "deploy", &Overrides::default()).unwrap();
}

#[test]
fn the_schema_knows_the_controllers() {
    let schema = config_schema().json();
    let controllers = schema["properties"]["controllers"]["properties"].as_object().unwrap();
    assert!(
        controllers.contains_key("wait-deployment") && controllers.contains_key("deployment-status-mirror")
    );
}
