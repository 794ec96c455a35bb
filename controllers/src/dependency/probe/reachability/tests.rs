use super::*;

#[test]
fn answers_silence_and_local_faults_are_classified() {
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
