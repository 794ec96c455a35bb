use super::*;

#[test]
fn an_answer_is_told_from_silence_and_from_a_fault_of_our_own() {
    let cases = [
        (io::ErrorKind::ConnectionRefused.into(), Reachability::Answered),
        (io::ErrorKind::NotFound.into(), Reachability::Answered),
        (io::ErrorKind::TimedOut.into(), Reachability::Silent),
        (io::ErrorKind::HostUnreachable.into(), Reachability::Silent),
        (io::ErrorKind::NetworkUnreachable.into(), Reachability::LocalFault),
        (io::Error::from_raw_os_error(24), Reachability::LocalFault),
        (io::Error::other("SERVFAIL"), Reachability::Silent),
    ];
    for (error, expected) in cases {
        let text = error.to_string();
        assert_eq!(Reachability::of::<()>(&Err(error)), expected, "{text}");
    }
    assert_eq!(Reachability::of(&Ok(())), Reachability::Answered);
}
