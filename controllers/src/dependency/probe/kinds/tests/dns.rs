//! Names, resolved by a name server on loopback.

use std::collections::HashMap;

use mainstay_api::plan::DnsCheck;
use mainstay_api::wait_for::DnsRecord;
use parking_lot::Mutex;
use tokio::net::UdpSocket;

use super::*;
use crate::dependency::probe::TokioResolve;
use crate::dependency::probe::tests::no_cluster::{NoCluster, NoServices};

const A: u16 = 1;
const SRV: u16 = 33;

/// The answers of a fake name server by name and record type: one per query in this order; the last one
/// repeats.
type Answers = HashMap<(&'static str, u16), Vec<Vec<&'static [u8]>>>;

struct NameServer {
    address: SocketAddr,
    queries: Arc<Mutex<Vec<(String, u16)>>>,
    _serving: JoinSet<()>,
}

impl NameServer {
    async fn new(mut answers: Answers) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let queries = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&queries);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut packet = [0; 1500];
            loop {
                let (length, from) = socket.recv_from(&mut packet).await.unwrap();
                let (name, kind, end) = question(&packet[..length]);
                received.lock().push((name.clone(), kind));
                let known = answers.iter_mut().find(|((known, of), _)| *known == name && *of == kind);
                let records =
                    known.map(
                        |(_, answers)| {
                            if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
                        },
                    );
                let reply = reply(&packet[..end], kind, records.as_deref());
                socket.send_to(&reply, from).await.unwrap();
            }
        });
        Self { address, queries, _serving: serving }
    }

    fn resolve(&self) -> Arc<TokioResolve> {
        Arc::new(TokioResolve::with_servers(vec![self.address]))
    }
}

/// Returns name, record type and the position of the end of the first question in a DNS packet.
fn question(packet: &[u8]) -> (String, u16, usize) {
    let (mut at, mut labels) = (12, Vec::new());
    while packet[at] != 0 {
        let end = at + 1 + usize::from(packet[at]);
        labels.push(String::from_utf8_lossy(&packet[at + 1..end]).to_lowercase());
        at = end;
    }
    (labels.join("."), u16::from_be_bytes([packet[at + 1], packet[at + 2]]), at + 5)
}

fn reply(question: &[u8], kind: u16, records: Option<&[&[u8]]>) -> Vec<u8> {
    let records = records.unwrap_or_default();
    let mut reply = question.to_vec();
    // An answer with recursion; code 3 means that the name does not exist.
    reply[2] = 0x81;
    reply[3] = if records.is_empty() { 0x83 } else { 0x80 };
    reply[4..12].copy_from_slice(&[0, 1, 0, u8::try_from(records.len()).unwrap(), 0, 0, 0, 0]);
    for data in records {
        // The name of the question; class IN, time to live one minute.
        reply.extend_from_slice(&[0xc0, 12]);
        reply.extend_from_slice(&kind.to_be_bytes());
        reply.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
        reply.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
        reply.extend_from_slice(data);
    }
    reply
}

fn look_up(name: &str, record: DnsRecord, min_records: usize) -> ProbeCheck {
    ProbeCheck::Dns(DnsCheck { name: name.to_owned(), record, min_records })
}

fn seams(server: &NameServer, dial: Arc<dyn Dial>) -> Seams {
    Seams {
        dial,
        resolve: server.resolve(),
        services: Arc::new(NoServices),
        cluster: Arc::new(NoCluster),
        random: Arc::new(|| 0.0),
    }
}

#[tokio::test]
async fn a_check_succeeds_once_the_name_has_enough_records() {
    let srv: &[u8] = &[0, 0, 0, 0, 0x15, 0x38, 2, b'd', b'b', 0];
    let not_there: &[u8] = &[0, 0, 0, 0, 0, 0, 0];
    let server = NameServer::new(HashMap::from([
        (("two.example", A), vec![vec![&[10, 0, 0, 1][..], &[10, 0, 0, 2]]]),
        (("_db._tcp.example", SRV), vec![vec![srv]]),
        (("_no._tcp.example", SRV), vec![vec![not_there]]),
        (("late.example", A), vec![vec![], vec![&[10, 0, 0, 1][..]]]),
    ]))
    .await;
    let seams = seams(&server, Arc::new(TokioDial));
    let reason =
        async |check| attempt(&Target::new("shop", check), PATIENT, &policy(), &seams).await.result.reason();
    assert_eq!(reason(look_up("two.example", DnsRecord::Address, 2)).await, "Answered");
    assert_eq!(reason(look_up("two.example", DnsRecord::Address, 3)).await, "TooFewRecords");
    assert_eq!(reason(look_up("none.example", DnsRecord::Address, 1)).await, "NameNotFound");
    assert_eq!(reason(look_up("_db._tcp.example", DnsRecord::Srv, 1)).await, "Answered");
    assert_eq!(reason(look_up("_no._tcp.example", DnsRecord::Srv, 1)).await, "NameNotFound");
    assert_eq!(reason(look_up("two.example", DnsRecord::Srv, 1)).await, "NameNotFound");
    assert_eq!(reason(look_up("late.example", DnsRecord::Address, 1)).await, "NameNotFound");
    assert_eq!(
        reason(look_up("late.example", DnsRecord::Address, 1)).await,
        "Answered",
        "answers are not cached"
    );
}

#[tokio::test]
async fn a_name_outside_the_suffixes_is_not_sent_to_the_name_server() {
    let server = NameServer::new(HashMap::new()).await;
    let seams = seams(&server, Arc::new(TokioDial));
    let narrow = ProbePolicy { mode: ProbeMode::ServicesOnly, ..policy() };
    let target = Target::new("shop", look_up("secret.evil.example", DnsRecord::Address, 1));
    let result = attempt(&target, PATIENT, &narrow, &seams).await.result;
    assert!(matches!(&result, ProbeResult::Denied { rule: "dnsSuffixes", .. }), "{result:?}");
    assert_eq!(*server.queries.lock(), []);
}

/// Dialler that records the addresses, and refuses to connect.
#[derive(Default)]
struct Recorded(Mutex<Vec<SocketAddr>>);

impl Dial for Recorded {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        self.0.lock().push(address);
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

/// DNS rebinding: the name resolves to other addresses each time.
#[tokio::test]
async fn the_dialled_address_is_the_checked_one_although_the_name_changes() {
    let server = NameServer::new(HashMap::from([(
        ("db.example.com", A),
        vec![
            vec![&[203, 0, 113, 7][..]],
            vec![&[169, 254, 169, 254]],
            vec![&[203, 0, 113, 7], &[127, 0, 0, 1]],
        ],
    )]))
    .await;
    let dial = Arc::new(Recorded::default());
    let seams = seams(&server, Arc::clone(&dial) as Arc<dyn Dial>);
    let allow = vec![".example.com".parse::<crate::settings::AllowRule>().unwrap().into()];
    let policy = ProbePolicy { mode: ProbeMode::AllowList, allow, allow_loopback: false, ..policy() };
    let check = ProbeCheck::Tcp(Address::parse("address", "db.example.com:5432").unwrap());
    let target = Target::new("shop", check);
    let reason = async || attempt(&target, PATIENT, &policy, &seams).await.result.reason();
    assert_eq!(reason().await, "NotReady", "refused, which a result for a raw address does not show");
    assert_eq!(*dial.0.lock(), ["203.0.113.7:5432".parse().unwrap()]);
    let lookups = server.queries.lock().iter().filter(|(_, kind)| *kind == A).count();
    assert_eq!(lookups, 1, "one lookup per dial");
    assert_eq!(reason().await, "PolicyDenied", "the metadata service");
    assert_eq!(reason().await, "PolicyDenied", "one forbidden address among others");
    assert_eq!(dial.0.lock().len(), 1, "no other address was dialled");
}
