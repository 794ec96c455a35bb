//! Volumes, claims, and the kinds of the group `storage.k8s.io`.

use serde_json::{Value, json};

use super::text;
use super::view::View;

/// The access modes in the order in which they are shown.
const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

/// The annotation that named the class of a volume before there was a field.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn volume(volume: &View<'_>) -> Value {
    let claim = if volume.has("/spec/claimRef") {
        let claim = volume.part("/spec/claimRef");
        format!("{}/{}", claim.text("/namespace"), claim.text("/name"))
    } else {
        String::new()
    };
    json!([
        volume.name(),
        volume.text_or("/spec/capacity/storage", "0"),
        access_modes(volume, "/spec/accessModes"),
        volume.text("/spec/persistentVolumeReclaimPolicy"),
        phase(volume),
        claim,
        volume.annotation(CLASS).unwrap_or_else(|| volume.text("/spec/storageClassName")),
        set(volume, "/spec/volumeAttributesClassName"),
        volume.text("/status/reason"),
        volume.age(),
        set(volume, "/spec/volumeMode"),
    ])
}

pub(super) fn claim(claim: &View<'_>) -> Value {
    let bound = !claim.text("/spec/volumeName").is_empty();
    let capacity = if bound { claim.text_or("/status/capacity/storage", "0") } else { "" };
    let modes = if bound { access_modes(claim, "/status/accessModes") } else { String::new() };
    json!([
        claim.name(),
        phase(claim),
        claim.text("/spec/volumeName"),
        capacity,
        modes,
        claim.annotation(CLASS).unwrap_or_else(|| claim.text("/spec/storageClassName")),
        set(claim, "/spec/volumeAttributesClassName"),
        claim.age(),
        set(claim, "/spec/volumeMode"),
    ])
}

fn access_modes(of: &View<'_>, pointer: &str) -> String {
    let modes = of.texts(pointer);
    let shown = ACCESS_MODES.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short);
    shown.collect::<Vec<_>>().join(",")
}

fn phase<'a>(of: &View<'a>) -> &'a str {
    if of.is_terminating() { "Terminating" } else { of.text("/status/phase") }
}

fn set<'a>(of: &View<'a>, pointer: &str) -> &'a str {
    of.get(pointer).and_then(Value::as_str).unwrap_or("<unset>")
}

pub(super) fn class(class: &View<'_>) -> Value {
    let default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|name| class.annotation(name) == Some("true"));
    json!([
        format!("{}{}", class.name(), if default { " (default)" } else { "" }),
        class.text("/provisioner"),
        class.text_or("/reclaimPolicy", "Delete"),
        class.text_or("/volumeBindingMode", "Immediate"),
        class.flag("/allowVolumeExpansion"),
        class.age(),
    ])
}

pub(super) fn attachment(attachment: &View<'_>) -> Value {
    json!([
        attachment.name(),
        attachment.text("/spec/attacher"),
        attachment.text("/spec/source/persistentVolumeName"),
        attachment.text("/spec/nodeName"),
        attachment.flag("/status/attached"),
        attachment.age(),
    ])
}

pub(super) fn attributes_class(class: &View<'_>) -> Value {
    json!([class.name(), class.text("/driverName"), class.age()])
}

pub(super) fn csi_driver(driver: &View<'_>) -> Value {
    let attach = driver.get("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true);
    let audiences: Vec<_> = driver.list("/spec/tokenRequests").map(|it| it.text("/audience")).collect();
    let tokens = if driver.has("/spec/tokenRequests") { audiences.join(",") } else { "<unset>".to_owned() };
    json!([
        driver.name(),
        attach,
        driver.flag("/spec/podInfoOnMount"),
        driver.flag("/spec/storageCapacity"),
        tokens,
        driver.flag("/spec/requiresRepublish"),
        text::or_none(driver.texts("/spec/volumeLifecycleModes").join(",")),
        driver.age(),
    ])
}

pub(super) fn csi_node(node: &View<'_>) -> Value {
    json!([node.name(), node.count("/spec/drivers"), node.age()])
}
