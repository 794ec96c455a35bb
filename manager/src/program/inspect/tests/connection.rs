//! The address, the token and the certificate of the manager.

use super::*;

#[test]
fn unreadable_and_missing_answers_are_failures() {
    let manager = Scripted::start(&[("/debug/leader", 200, "<html>")]);
    let address = manager.address.to_string();
    let (exit, _, err) = run(&["leader", "--address", &address]);
    let expected = "error: this version cannot read the answer to /debug/leader; use the binary of the \
                    manager, or -o json: ";
    assert!(exit == Exit::Failure && err.starts_with(expected), "{exit:?} {err}");
    let (exit, _, err) = run(&["caches", "--address", &address]);
    assert_eq!((exit, &*err), (Exit::Failure, "error: 500 Internal Server Error: not in the script\n"));
    drop(manager);
    let (exit, _, err) = run(&["caches", "--address", &address]);
    let hint = "is the manager running, and is inspect.bindAddress this address?";
    let expected = format!("error: no connection to {address}; {hint}: ");
    assert!(exit == Exit::Failure && err.starts_with(&expected), "{exit:?} {err}");
}

#[test]
fn address_and_token_come_from_the_managers_configuration() {
    let manager = Scripted::start(&[("/debug/caches", 200, "{\"caches\":[]}")]);
    let folder = tempfile::tempdir().unwrap();
    let (token, other) = (folder.path().join("token"), folder.path().join("other"));
    std::fs::write(&token, "secret\n").unwrap();
    std::fs::write(&other, "newer").unwrap();
    let text = format!(
        "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
         inspect: {{bindAddress: \"0.0.0.0:{}\", tokenFile: {}}}\n",
        manager.address.port(),
        token.display(),
    );
    std::fs::write(folder.path().join("manager.yaml"), text).unwrap();
    let (folder, other) = (folder.path().display().to_string(), other.display().to_string());
    for args in
        [&["caches", "--config", &folder][..], &["caches", "--config", &folder, "--token-file", &other]]
    {
        assert_eq!(run(args).0, Exit::Success);
    }
    let tokens: Vec<_> = manager.received.lock().iter().filter_map(|(_, token)| token.clone()).collect();
    assert_eq!(tokens, ["Bearer secret", "Bearer newer"]);
    let (exit, _, err) = run(&["caches", "--token-file", "/nonexistent"]);
    let expected = "error: /nonexistent: No such file or directory (os error 2)\n";
    assert_eq!((exit, &*err), (Exit::WrongInput, expected));
}

#[test]
fn tls_accepts_only_the_certificate_of_the_manager() {
    let (folder, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let made = || rcgen::generate_simple_self_signed(["anybody".to_owned()]).unwrap();
    let shown = made();
    std::fs::write(served.path().join("tls.crt"), shown.cert.pem()).unwrap();
    std::fs::write(served.path().join("tls.key"), shown.signing_key.serialize_pem()).unwrap();
    let certificates = Certificates::load(served.path()).unwrap();
    let expected = folder.path().join("tls.crt");
    std::fs::write(&expected, shown.cert.pem()).unwrap();
    let caches = ("/debug/caches", 200, "{\"caches\":[]}");
    let manager = Scripted::start_with(Some(certificates), None, &[caches]);
    let (file, token) = (folder.path().join("manager.yaml"), folder.path().join("token"));
    let text = format!(
        "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
         inspect: {{bindAddress: \"{}\", auth: true, tlsDir: {}, tokenFile: {}}}\n",
        manager.address,
        folder.path().display(),
        token.display(),
    );
    std::fs::write(&file, text).unwrap();
    std::fs::write(&token, "mine").unwrap();
    let file = file.display().to_string();
    let (exit, _, err) = run(&["caches", "--own", "--config", &file]);
    assert_eq!((exit, &*err), (Exit::Success, ""));
    assert_eq!(manager.received.lock()[0].1.as_deref(), Some("Bearer mine"));
    std::fs::write(&expected, made().cert.pem()).unwrap();
    let (exit, _, err) = run(&["caches", "--config", &file]);
    assert!(exit == Exit::Failure && err.contains("ended before the answer was complete"), "{err}");
    assert_eq!(manager.received.lock().len(), 1, "the token is not sent");
    std::fs::remove_file(&expected).unwrap();
    assert_eq!(run(&["caches", "--config", &file]).0, Exit::WrongInput);
}

#[test]
fn an_invalid_configuration_file_does_not_prevent_inspection() {
    let manager = Scripted::start(&[("/debug/caches", 200, "{\"caches\":[]}")]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manager.yaml");
    std::fs::write(&file, "inspekt: {}\n").unwrap();
    let (file, address) = (file.display().to_string(), manager.address.to_string());
    let (exit, _, err) = run(&["caches", "--config", &file, "--address", &address]);
    assert!(exit == Exit::Success && err.contains("inspekt"), "{exit:?} {err}");
    assert!(err.ends_with("using the default address and no token\n"), "{err}");
    assert_eq!(run(&["caches", "--config", "/nonexistent"]).0, Exit::WrongInput);
}

#[test]
fn an_invalid_address_is_wrong_input() {
    for address in ["localhost", ":8082", "http://127.0.0.1:8082", "127.0.0.1:0", "a@b:1", "[::1]"] {
        let expected = format!("error: --address {address:?}: expected HOST:PORT, such as localhost:8082\n");
        assert_eq!(run(&["caches", "--address", address]), (Exit::WrongInput, String::new(), expected));
    }
    for address in ["localhost:8082", "[::1]:8082", "10.0.0.1:1"] {
        assert!(client::is_address(address), "{address}");
    }
}
