//! Why a process cannot run.

use crate::credentials::SecretError;
use crate::logging;
use control::ServerError;
use control::metrics::server::MetricsError;
use control::remote::RemoteError;

/// Why a gateway, an edge or `mainstay sync` cannot run. The operator sees its text only.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    /// Logging cannot begin.
    #[error(transparent)]
    Logging(#[from] logging::LoggingError),
    /// The system refuses something: an interface, an address, a privilege, connection tracking.
    #[error(transparent)]
    System(#[from] packet_io::IoError),
    /// The gateway's node cannot be made as configured.
    #[error(transparent)]
    Node(#[from] cluster::node::ConfigError),
    /// The node of `mainstay sync` cannot be made as configured.
    #[error(transparent)]
    SyncNode(#[from] conntrack_sync::ConfigError),
    /// The edge cannot be made as configured.
    #[error("[edge]: {0}")]
    Edge(#[from] ::edge::ConfigError),
    /// Failure detection cannot be used as configured.
    #[error("[failure_detection]: {0}")]
    Detection(#[from] cluster::failure_detector::ConfigError),
    /// The deferral cannot be used as configured.
    #[error("[replication.lazy]: {0}")]
    Lazy(#[from] replication::deferral::ConfigError),
    /// The chain cannot be made as configured.
    #[error(transparent)]
    Chain(#[from] network_functions::chain::ChainError),
    /// The traffic classes cannot be used.
    #[error("[classifier]: {0}")]
    Classifier(#[from] network_functions::classifier::ClassifierError),
    /// The firewall's rules cannot be used.
    #[error("[firewall]: {0}")]
    Firewall(#[from] network_functions::rule_set::RuleSetError),
    /// NAT's rules cannot be used.
    #[error("[nat]: {0}")]
    Nat(#[from] network_functions::nat::NatError),
    /// The services of the load balancer cannot be used.
    #[error("[[service]]: {0}")]
    Services(#[from] network_functions::load_balancer::ServiceError),
    /// The certificates that checks verify servers by cannot be used.
    #[error(transparent)]
    Authorities(#[from] crate::check_tls::AuthoritiesError),
    /// The rules of the SYN proxy cannot be used.
    #[error("[syn_proxy]: {0}")]
    SynProxy(#[from] network_functions::syn_proxy::RulesError),
    /// The lists or rules of the URL filter cannot be used.
    #[error("[url_filter]: {0}")]
    UrlFilter(#[from] crate::url_lists::UrlListsErrors),
    /// The categorisation server cannot be used.
    #[error(transparent)]
    Categories(#[from] crate::category_server::CategoryServerError),
    /// The rules of the rate limits cannot be used.
    #[error("[rate_limit]: {0}")]
    RateLimit(#[from] network_functions::rate_limit::RulesError),
    /// The FTP helper cannot be made as configured.
    #[error("[ftp]: {0}")]
    Ftp(#[from] network_functions::ftp::FtpError),
    /// Keys or certificates cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}: raise the limit of processes (ulimit -u, TasksMax)")]
    Thread(#[source] std::io::Error),
    /// A thread of a gateway cannot be started.
    #[error(
        "a thread cannot be started: {0}: lower workers.count or raise the limit of processes (ulimit -u, TasksMax)"
    )]
    GatewayThread(#[source] std::io::Error),
    /// The control API cannot be served.
    #[error(transparent)]
    Control(#[from] ServerError),
    /// The control API cannot be offered from afar.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The source of members cannot be used as configured.
    #[error(transparent)]
    Membership(#[from] crate::etcd::EtcdError),
    /// The metrics cannot be served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}
