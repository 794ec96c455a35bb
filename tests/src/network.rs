//! A network for one test: two network namespaces of the kernel, joined by a pair of virtual links, without a
//! way out.
//!
//! The test runs again in a process inside one namespace. A second process runs in the other one, where it
//! accepts connections to every address and counts them. So every connection of the test is seen, also to
//! wrong addresses, and reaches no real host.
//!
//! # Invariants
//! 1. Each namespace has loopback and one end of the link. No packet can leave.
//! 2. Both processes end with their parent, however it ends: their standard input closes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, StdinLock};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster::skip_or_fail;
use crate::wait::{PATIENCE, until_so};

/// The environment variable with the role of a test process: `inside` or `outside`.
const ROLE: &str = "MAINSTAY_TEST_NETWORK";

/// The port at which the test network accepts connections to every address.
pub const PORT: u16 = 5432;
/// Two addresses of the inner end of the link, where the test runs.
pub const INSIDE: [&str; 2] = ["10.77.0.1", "10.77.0.3"];
/// Two addresses of the outer end of the link. It accepts connections to every other address as well.
pub const OUTSIDE: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// Addresses of the outer and the inner end that only `take_accepted` connects to.
const LAST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 80, 0, 1)), IpAddr::V4(Ipv4Addr::new(127, 80, 0, 1))];

/// Line that the process at the outer end of the link prints once it runs.
const THERE: &str = "there";
const LISTENING: &str = "listening";
/// Text that the process at the outer end prints before each address that was connected to.
const ACCEPTED: &str = "accepted ";

/// Commands to try first, because some machines lack their support: user namespaces, virtual links, IPv4 and
/// IPv6.
const OF_ATTEMPT: &str =
    "ip link set lo up && ip link add near type veth peer name far && ip addr add fd77::1/64 dev near nodad";
const OF_INSIDE: [&str; 6] = [
    "addr add 10.77.0.1/24 dev near",
    "addr add 10.77.0.3/24 dev near",
    "addr add fd77::1/64 dev near nodad",
    "link set near up",
    "route add default via 10.77.0.2",
    "-6 route add default via fd77::2 dev near",
];
const OF_OUTSIDE: [&str; 6] = [
    "link set lo up",
    "addr add 10.77.0.2/24 dev far",
    "addr add fd77::2/64 dev far nodad",
    "link set far up",
    // In the table that is searched last, so that routes of the link's own network win.
    "route add local 0.0.0.0/0 dev lo table main",
    "-6 route add local ::/0 dev lo table main",
];

/// The network of one test, as the test process inside uses it.
#[derive(Debug)]
pub struct Network {
    accepted: Arc<Mutex<BTreeSet<IpAddr>>>,
    _outside: Child,
    /// Standard input of the process at the outer end, open for as long as it must run.
    _stdin: ChildStdin,
    /// Two tasks: one records addresses printed by the outer end, one records connections inside.
    _noting: JoinSet<()>,
}

// === impl Network ===

impl Network {
    /// Runs `test`, the full name of the calling test, again inside a network of its own, and returns that
    /// network there.
    ///
    /// Returns `None` to the caller outside, once the test inside has passed, and in the process of the outer
    /// end: the test then returns. Also `None`, after a printed notice, on a system that lacks such links or
    /// forbids them; in CI that fails the test instead.
    ///
    /// # Panics
    /// Panics if the test fails inside.
    pub async fn enter(test: &str) -> Option<Self> {
        match std::env::var(ROLE).as_deref() {
            Ok("inside") => Some(Self::inside(test).await),
            Ok(_) => {
                run_outside().await;
                None
            }
            Err(_) => {
                if let Err(cause) = attempt(in_a_namespace().args(["sh", "-c", OF_ATTEMPT])).await {
                    return skip_or_fail(&format!("no network can be made: {cause}"));
                }
                run_inside(test).await;
                None
            }
        }
    }

    /// Returns the addresses connected to since the last call, at either end of the link. None is missing:
    /// each end reports connections in order, and this function waits for the report of a last connection it
    /// makes itself.
    pub async fn take_accepted(&self) -> BTreeSet<IpAddr> {
        for last in LAST {
            let connected = timeout(PATIENCE, TcpStream::connect((last, PORT))).await;
            assert!(matches!(connected, Ok(Ok(_))), "{last} cannot be connected to: {connected:?}");
            until_so("the last connection to be reported", async || self.accepted.lock().remove(&last)).await;
        }
        std::mem::take(&mut *self.accepted.lock())
    }

    async fn inside(test: &str) -> Self {
        ip("link set lo up").await;
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--"]);
        let outside = again(&mut unshare, test, "outside").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut outside = outside.spawn().unwrap_or_else(|error| panic!("no other end: {error}"));
        let (Some(mut stdin), Some(stdout), Some(process)) =
            (outside.stdin.take(), outside.stdout.take(), outside.id())
        else {
            panic!("the other end has ended")
        };
        let mut output = BufReader::new(stdout).lines();
        until_line(&mut output, THERE).await;
        ip(&format!("link add near type veth peer name far netns {process}")).await;
        for command in OF_INSIDE {
            ip(command).await;
        }
        if let Err(error) = stdin.write_all(b"\n").await {
            panic!("the other end does not listen: {error}");
        }
        until_line(&mut output, LISTENING).await;

        let accepted = Arc::new(Mutex::new(BTreeSet::new()));
        let (there, here) = (Arc::clone(&accepted), Arc::clone(&accepted));
        let mut noting = JoinSet::new();
        noting.spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                let address = line.strip_prefix(ACCEPTED).and_then(|address| address.parse::<IpAddr>().ok());
                there.lock().extend(address);
            }
        });
        let listener = listen().await;
        noting.spawn(accept(listener, move |address| here.lock().extend([address])));
        // A thread of its own: at its end the runtime waits for its blocking threads, and this read would
        // delay that.
        std::thread::spawn(|| {
            drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
            // The test outside has ended. The processes started here end with this one, by their standard
            // input.
            std::process::exit(1);
        });
        Self { accepted, _outside: outside, _stdin: stdin, _noting: noting }
    }
}

// === private functions ===

/// Returns a command that runs another one in a network namespace of its own; the user is root there, and
/// unchanged elsewhere.
fn in_a_namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--"]).kill_on_drop(true);
    command
}

/// Runs the test again in a process inside the network, prints its output and asserts that it passed.
async fn run_inside(test: &str) {
    let mut command = in_a_namespace();
    let started = again(&mut command, test, "inside").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut inside =
        started.unwrap_or_else(|error| panic!("{test} cannot be run in its own network: {error}"));
    // Kept open until the process has ended: `wait_with_output` would close it.
    let _stdin = inside.stdin.take();
    let ended = inside.wait_with_output().await;
    let ended = ended.unwrap_or_else(|error| panic!("{test} is lost in its own network: {error}"));
    let printed = String::from_utf8_lossy(&ended.stdout);
    say(&printed);
    assert!(ended.status.success(), "{test} failed in its own network, see above");
    // The test runner succeeds for a name that no test has.
    assert!(printed.contains(" 1 passed;"), "there is no test {test}");
}

/// Appends this program and the name of the test to a command, with the role of its process.
fn again<'a>(command: &'a mut Command, test: &str, role: &str) -> &'a mut Command {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("this program has no path: {error}"));
    command.arg(program).args([test, "--exact", "--nocapture"]).env(ROLE, role).kill_on_drop(true)
}

async fn attempt(command: &mut Command) -> Result<(), String> {
    match command.status().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

async fn ip(arguments: &str) {
    let mut command = Command::new("ip");
    if let Err(cause) = attempt(command.args(arguments.split(' ')).stdout(Stdio::null())).await {
        panic!("{cause}");
    }
}

async fn until_line(output: &mut Lines<BufReader<ChildStdout>>, expected: &str) {
    loop {
        match output.next_line().await {
            Ok(Some(line)) if line == expected => return,
            // Output of the test runner.
            Ok(Some(_)) => {}
            ended => panic!("the other end is not {expected}: {ended:?}"),
        }
    }
}

/// Runs the outer end of the link, for as long as the standard input of the process is open.
async fn run_outside() {
    say(THERE);
    read_stdin(|stdin| stdin.read_line(&mut String::new()).map(drop)).await;
    for command in OF_OUTSIDE {
        ip(command).await;
    }
    let listener = listen().await;
    say(LISTENING);
    let accept = accept(listener, |address| say(&format!("{ACCEPTED}{address}")));
    // The first to finish ends the process.
    tokio::select! {
        () = accept => {}
        () = read_stdin(|stdin| std::io::copy(stdin, &mut std::io::sink()).map(drop)) => {}
    }
}

/// Reads standard input on a blocking thread; an end of the input also returns.
async fn read_stdin(read: impl FnOnce(&mut StdinLock<'_>) -> std::io::Result<()> + Send + 'static) {
    let read = move || read(&mut std::io::stdin().lock());
    drop(tokio::task::spawn_blocking(read).await);
}

/// Prints text on a line of its own on standard output: the test runner leaves its own line unfinished.
fn say(line: &str) {
    #[expect(clippy::print_stdout, reason = "standard output is what the test inside reads")]
    {
        println!("\n{line}");
    }
}

/// Listens at [`PORT`] on all addresses of both families.
async fn listen() -> TcpListener {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).await;
    listener.unwrap_or_else(|error| panic!("cannot listen at {PORT}: {error}"))
}

async fn accept(listener: TcpListener, note: impl Fn(IpAddr)) {
    loop {
        let accepted = listener.accept().await.and_then(|(stream, _)| stream.local_addr());
        match accepted {
            Ok(address) => note(address.ip().to_canonical()),
            Err(error) => panic!("a connection was not taken: {error}"),
        }
    }
}
