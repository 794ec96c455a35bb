use std::process::Command;

use rustix::process::setrlimit;

use super::*;

#[test]
fn the_boot_clock_never_goes_back() {
    let earlier = boot_time();
    assert!(!earlier.is_zero() && boot_time() >= earlier);
}

#[test]
fn a_pipe_without_a_writer_is_opened_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    assert!(!open_without_waiting(&pipe).unwrap().metadata().unwrap().is_file());
}

/// Makes a named pipe with `mkfifo`, as rustix lacks the call on macOS.
pub(crate) fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Raises the limit of open files as far as the system allows, and returns it.
pub(crate) fn raise_file_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    // macOS refuses more than this if the maximum is unlimited.
    limit.current = Some(limit.maximum.unwrap_or(10_240));
    setrlimit(Resource::Nofile, limit).unwrap();
    limit.current.unwrap()
}

/// Returns the keep-alive of a connection; `None` if it is off.
pub(crate) fn keep_alive(stream: &TcpStream) -> Option<KeepAlive> {
    sockopt::socket_keepalive(stream).unwrap().then(|| KeepAlive {
        idle: sockopt::tcp_keepidle(stream).unwrap(),
        interval: sockopt::tcp_keepintvl(stream).unwrap(),
        probes: sockopt::tcp_keepcnt(stream).unwrap(),
    })
}
