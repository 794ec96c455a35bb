//! The seam through which the engine resolves names by DNS, and its real implementation.
//!
//! Only for `dns` checks, and for names that are not Services. Answers are not cached, so a new record of a
//! name has an effect at the next probe.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::sync::OnceCell;

/// How long a DNS query waits for a name server before it is sent once more; the cost of a lost packet.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// The future of [`Resolve::resolve`]: all addresses of the name.
pub type ResolveFuture<'a> = BoxFuture<'a, io::Result<Vec<IpAddr>>>;
/// The future of [`Resolve::services`]: the number of SRV records of the name that have a target.
pub type ServicesFuture<'a> = BoxFuture<'a, io::Result<usize>>;

/// Resolves names by DNS. Fails with [`io::ErrorKind::NotFound`] for a name without records of the type.
pub trait Resolve: Send + Sync + 'static {
    /// Returns all IP addresses of the name, of both families.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a>;

    /// Returns the number of SRV records of the name that have a target.
    fn services<'a>(&'a self, name: &'a str) -> ServicesFuture<'a>;
}

/// Resolves names by the name servers of the system or given ones, with Tokio. Reads the hosts file.
#[derive(Debug, Default)]
pub struct TokioResolve {
    /// Addresses of the name servers to query; if empty, those of the system are queried.
    servers: Vec<SocketAddr>,
    /// The DNS resolver, made at the first query, inside the runtime.
    resolver: OnceCell<TokioResolver>,
}

// === impl TokioResolve ===

impl TokioResolve {
    /// Makes a resolver that queries these name servers, by UDP and TCP, instead of those in
    /// `/etc/resolv.conf`.
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
        let options = builder.options_mut();
        // Both families: the policy has to check all addresses of a name.
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.use_hosts_file = ResolveHosts::Always;
        options.cache_size = 0;
        options.timeout = SERVER_TIMEOUT;
        options.attempts = 2;
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

/// Makes a DNS name fully qualified. With the search list of the manager's Pod it could resolve to another
/// host.
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
            // A target of "." means that the service is not available (RFC 2782).
            let is_there = |data: &RData| matches!(data, RData::SRV(srv) if !srv.target.is_root());
            Ok(found.answers().iter().filter(|record| is_there(&record.data)).count())
        })
    }
}

/// Reduces the error of a failed DNS query to its kind.
fn unanswered(error: NetError) -> io::Error {
    match error {
        NetError::Timeout => io::ErrorKind::TimedOut.into(),
        error if error.is_no_records_found() => io::ErrorKind::NotFound.into(),
        error => io::Error::other(error),
    }
}
