//! What an attempt has heard of the network, whatever it comes to.
//!
//! A result may not tell whether anybody answered, and need not: of a raw address nobody is told. Whether losses have a
//! [common cause](super::shaken) depends on it, so the seams are listened at.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::dial::{Dial, DialFuture};
use super::resolve::{Resolve, ResolveFuture, ServicesFuture};
use super::{Seams, Target};

/// `ENFILE` and `EMFILE`, the same on every architecture of Linux and on the BSDs: too many open files.
const TOO_MANY_FILES: [i32; 2] = [23, 24];

/// What came back from the network. The greater one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Heard {
    /// Nothing, or that there is no way to the other side.
    Nothing,
    /// A complaint of our own machine: no network, no address, no descriptor.
    OwnFault,
    /// An answer, welcome or not.
    Answer,
}

/// Listens at the seams during one attempt.
#[derive(Debug, Default)]
pub(super) struct Ear(Arc<Mutex<Notes>>);

/// `None`: not asked.
#[derive(Debug, Default)]
struct Notes {
    dialled: Option<Heard>,
    resolved: Option<Heard>,
}

struct Listening<T: ?Sized> {
    inner: Arc<T>,
    notes: Arc<Mutex<Notes>>,
}

// === impl Ear ===

impl Ear {
    /// Returns the same seams, listened at.
    pub(super) fn listen(&self, seams: &Seams) -> Seams {
        let dial = Listening { inner: Arc::clone(&seams.dial), notes: Arc::clone(&self.0) };
        let resolve = Listening { inner: Arc::clone(&seams.resolve), notes: Arc::clone(&self.0) };
        Seams { dial: Arc::new(dial), resolve: Arc::new(resolve), ..seams.clone() }
    }

    /// Returns what was heard so far of a target; `None`: it was not asked. That a name server answers says nothing of who
    /// is to be connected to then.
    pub(super) fn heard(&self, target: &Target) -> Option<Heard> {
        let notes = self.0.lock();
        let is_other = |heard: &Heard| target.address().is_some() && *heard == Heard::Answer;
        notes.dialled.or(notes.resolved.filter(|heard| !is_other(heard)))
    }
}

// === impl Listening ===

impl Dial for Listening<dyn Dial> {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        Box::pin(async move {
            // Should nobody wait for the end of it, nothing was heard.
            note(&mut self.notes.lock().dialled, Heard::Nothing);
            let dialled = self.inner.dial(address).await;
            note(&mut self.notes.lock().dialled, of(&dialled));
            dialled
        })
    }
}

impl Resolve for Listening<dyn Resolve> {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            note(&mut self.notes.lock().resolved, Heard::Nothing);
            let found = self.inner.resolve(name).await;
            note(&mut self.notes.lock().resolved, of(&found));
            found
        })
    }

    fn services<'a>(&'a self, name: &'a str) -> ServicesFuture<'a> {
        Box::pin(async move {
            note(&mut self.notes.lock().resolved, Heard::Nothing);
            let found = self.inner.services(name).await;
            note(&mut self.notes.lock().resolved, of(&found));
            found
        })
    }
}

fn note(place: &mut Option<Heard>, heard: Heard) {
    *place = (*place).max(Some(heard));
}

fn of<T>(outcome: &io::Result<T>) -> Heard {
    use io::ErrorKind as Kind;
    let Err(error) = outcome else { return Heard::Answer };
    match error.kind() {
        Kind::ConnectionRefused | Kind::ConnectionReset | Kind::ConnectionAborted | Kind::NotFound => {
            Heard::Answer
        }
        Kind::NetworkUnreachable
        | Kind::NetworkDown
        | Kind::AddrNotAvailable
        | Kind::PermissionDenied
        | Kind::OutOfMemory => Heard::OwnFault,
        _ if error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) => Heard::OwnFault,
        _ => Heard::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use mainstay_api::ProbeCheck;
    use mainstay_api::plan::DnsCheck;
    use mainstay_api::wait_for::DnsRecord;

    use super::*;

    #[test]
    fn an_answer_is_told_from_silence_and_from_a_fault_of_our_own() {
        let cases = [
            (io::ErrorKind::ConnectionRefused.into(), Heard::Answer),
            (io::ErrorKind::NotFound.into(), Heard::Answer),
            (io::ErrorKind::TimedOut.into(), Heard::Nothing),
            (io::ErrorKind::HostUnreachable.into(), Heard::Nothing),
            (io::ErrorKind::NetworkUnreachable.into(), Heard::OwnFault),
            (io::Error::from_raw_os_error(24), Heard::OwnFault),
            (io::Error::other("SERVFAIL"), Heard::Nothing),
        ];
        for (error, expected) in cases {
            let text = error.to_string();
            assert_eq!(of::<()>(&Err(error)), expected, "{text}");
        }
        assert_eq!(of(&Ok(())), Heard::Answer);
    }

    #[test]
    fn one_answer_of_many_is_an_answer_and_a_name_server_is_not_the_host() {
        let address = mainstay_api::Address::parse("address", "db.example.com:80").unwrap();
        let host = Target::new("shop", ProbeCheck::Tcp(address));
        let name = Target::new(
            "shop",
            ProbeCheck::Dns(DnsCheck {
                name: "db.example.com".to_owned(),
                record: DnsRecord::Address,
                min_records: 1,
            }),
        );
        let ear = Ear::default();
        let heard = || (ear.heard(&host), ear.heard(&name));
        assert_eq!(heard(), (None, None), "nobody was asked");
        note(&mut ear.0.lock().resolved, Heard::Nothing);
        assert_eq!(heard(), (Some(Heard::Nothing), Some(Heard::Nothing)));
        note(&mut ear.0.lock().resolved, Heard::Answer);
        assert_eq!(heard(), (None, Some(Heard::Answer)), "the host was not asked yet");
        for (dialled, expected) in [
            (Heard::Nothing, Heard::Nothing),
            (Heard::OwnFault, Heard::OwnFault),
            (Heard::Answer, Heard::Answer),
            (Heard::Nothing, Heard::Answer),
        ] {
            note(&mut ear.0.lock().dialled, dialled);
            assert_eq!(ear.heard(&host), Some(expected));
        }
    }
}
