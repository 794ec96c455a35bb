use super::*;

fn refused(code: u16) -> WriteError {
    let status = Status::failure("it was modified", "Conflict").with_code(code);
    WriteError::Refused {
        what: "apply of Pod shop/web".to_owned(),
        status: status.boxed(),
        retry_after: None,
    }
}

#[test]
fn a_refusal_is_found_in_the_source_chain() {
    let wrapped = io::Error::other(refused(409));
    assert!(is_conflict(&wrapped));
    assert!(!is_fenced(&wrapped));
    let kube = kube::Error::Api(Status::failure("gone", "NotFound").with_code(404).boxed());
    assert_eq!(refusal(&kube).map(|status| status.code), Some(404));
}

#[test]
fn a_closed_fence_is_found_in_the_source_chain() {
    let deep = io::Error::other(io::Error::new(io::ErrorKind::PermissionDenied, Fenced));
    assert!(is_fenced(&kube::Error::Service(Box::new(deep))));
}

#[test]
fn a_refusal_displays_as_one_line() {
    let text = refused(409).to_string();
    assert_eq!(text, "apply of Pod shop/web was refused: 409 Conflict: it was modified");
}
