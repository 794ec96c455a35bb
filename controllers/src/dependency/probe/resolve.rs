//! The seam through which the engine looks names up, and its real implementation.
//!
//! Asked for names that are no Services and for `dns` checks only. Nothing is remembered: whoever waits for a name to
//! appear is answered by what is there now.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::sync::OnceCell;

/// How long one server may take before it is asked once more: a lost packet costs no more than this.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// What [`Resolve::resolve`] returns.
pub type ResolveFuture<'a> = BoxFuture<'a, io::Result<Vec<IpAddr>>>;
/// What [`Resolve::services`] returns.
pub type ServicesFuture<'a> = BoxFuture<'a, io::Result<usize>>;

/// Looks names up. A name without such a record is [`io::ErrorKind::NotFound`].
pub trait Resolve: Send + Sync + 'static {
    /// Returns every address of the name, of both families.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a>;

    /// Returns how many SRV records the name has.
    fn services<'a>(&'a self, name: &'a str) -> ServicesFuture<'a>;
}

/// Asks the name servers of the system, or some of one's own, with Tokio. Knows the hosts file.
#[derive(Debug, Default)]
pub struct TokioResolve {
    /// In place of those of the system.
    servers: Vec<SocketAddr>,
    /// Made at the first look-up, from inside the runtime.
    resolver: OnceCell<TokioResolver>,
}

// === impl TokioResolve ===

impl TokioResolve {
    /// Asks these servers, by UDP and TCP, and not those of `/etc/resolv.conf`.
    pub fn with_servers(servers: Vec<SocketAddr>) -> Self {
        Self { servers, resolver: OnceCell::new() }
    }

    async fn resolver(&self) -> io::Result<&TokioResolver> {
        let make = || async { self.make().map_err(io::Error::other) };
        self.resolver.get_or_try_init(make).await
    }

    fn make(&self) -> Result<TokioResolver, NetError> {
        let provider = TokioRuntimeProvider::default();
        let mut builder = if self.servers.is_empty() {
            TokioResolver::builder(provider)?
        } else {
            let servers = self.servers.iter().copied().map(server).collect();
            TokioResolver::builder_with_config(ResolverConfig::from_name_servers(servers), provider)
        };
        set(builder.options_mut());
        builder.build()
    }
}

fn server(address: SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}

fn set(options: &mut ResolverOpts) {
    // Both families, as a mixed answer must be seen whole.
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Always;
    options.cache_size = 0;
    options.timeout = SERVER_TIMEOUT;
    options.attempts = 2;
}

/// A name that is complete: the search list of the manager's own Pod would find something else.
fn complete(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.'))
}

impl Resolve for TokioResolve {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            let found = self.resolver().await?.lookup_ip(complete(name)).await.map_err(unanswered)?;
            Ok(found.iter().collect())
        })
    }

    fn services<'a>(&'a self, name: &'a str) -> ServicesFuture<'a> {
        Box::pin(async move {
            let found = self.resolver().await?.lookup(complete(name), RecordType::SRV).await;
            let found = found.map_err(unanswered)?;
            // A target of "." says that the service is decidedly not there (RFC 2782).
            let is_there = |data: &RData| matches!(data, RData::SRV(srv) if !srv.target.is_root());
            Ok(found.answers().iter().filter(|record| is_there(&record.data)).count())
        })
    }
}

/// Says of a failed look-up only what kind of failure it is.
fn unanswered(error: NetError) -> io::Error {
    match error {
        NetError::Timeout => io::ErrorKind::TimedOut.into(),
        error if error.is_no_records_found() => io::ErrorKind::NotFound.into(),
        error => io::Error::other(error),
    }
}
