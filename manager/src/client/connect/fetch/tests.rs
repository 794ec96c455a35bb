use std::fs;

use super::*;

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs(seconds))
}

#[test]
fn renewal_is_a_minute_ahead_or_in_the_last_quarter_of_a_short_lifetime() {
    assert_eq!(renewal(at(10), Duration::from_hours(1)), (at(10 + 3540), at(10 + 3600)));
    assert_eq!(renewal(at(10), Duration::from_mins(1)), (at(10 + 45), at(10 + 60)));
    assert_eq!(renewal(at(10), Duration::ZERO), (at(10), at(10)));
}

#[test]
fn the_source_is_chosen_as_kube_does() {
    let of = |edit: &dyn Fn(&mut AuthInfo)| {
        let mut auth = AuthInfo::default();
        edit(&mut auth);
        match SourceKind::of(&auth) {
            SourceKind::Fixed => "fixed",
            SourceKind::Files => "files",
            SourceKind::Plugin(_) => "plug-in",
        }
    };
    assert_eq!(of(&|_| ()), "fixed");
    assert_eq!(of(&|auth| auth.token_file = Some("t".to_owned())), "files");
    assert_eq!(of(&|auth| auth.client_certificate = Some("c".to_owned())), "files");
    assert_eq!(of(&|auth| auth.exec = Some(ExecConfig::default())), "plug-in");
    let inline = |auth: &mut AuthInfo| {
        auth.token = Some("t".to_owned().into());
        auth.exec = Some(ExecConfig::default());
    };
    assert_eq!(of(&inline), "fixed", "kube uses neither file nor plug-in beside a token");
    let provider = |auth: &mut AuthInfo| {
        auth.auth_provider = Some(kube::config::AuthProviderConfig::default());
        auth.client_certificate = Some("c".to_owned());
    };
    assert_eq!(of(&provider), "fixed", "its refresh token may be valid for a single use");
}

#[test]
fn a_token_in_a_file_is_trimmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let named = || AuthInfo { token_file: Some(path.display().to_string()), ..AuthInfo::default() };
    fs::write(&path, "abc\n").unwrap();
    let mut auth = named();
    read_files(&mut auth).unwrap();
    assert_eq!(secret(&auth), serde_json::json!("abc"));
    fs::write(&path, "\n").unwrap();
    let error = read_files(&mut named()).unwrap_err();
    assert_eq!(error.to_string(), format!("{} holds no token", path.display()));
    fs::remove_file(&path).unwrap();
    let error = read_files(&mut named()).unwrap_err();
    assert_eq!(error.to_string(), format!("{} cannot be read", path.display()));
}

fn secret(auth: &AuthInfo) -> serde_json::Value {
    serde_json::to_value(auth).unwrap()["token"].clone()
}
