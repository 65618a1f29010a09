//! What functions of all workers of a gateway share: the services of the load balancer, the rules of the SYN proxy and of the rate
//! limits, and rules and lists of the URL filter.

use std::sync::Arc;

use config::validated::{Config, Function};
use network_functions::load_balancer::Services;
use network_functions::nat::EndpointMappings;
use network_functions::rate_limit::RateLimitRules;
use network_functions::syn_cookie::CookieKeys;
use network_functions::syn_proxy::SynProxyRules;
use network_functions::url_filter::rules::UrlFilterRules;
use network_functions::url_filter::server::Categories;
use packet_io::clock;
use rustls::ClientConfig;

use super::files;
use super::nat;
use super::secrets::Secrets;
use crate::category_server::CategoryServer;
use crate::check_tls;
use crate::credentials;
use crate::error::ProcessError;
use crate::url_lists;

/// What functions of all workers share.
#[derive(Clone)]
pub struct SharedFunctions {
    /// The services of the load balancer.
    pub services: Arc<Services>,
    /// Of each service how its checks use TLS, if they do.
    pub check_tls: Arc<[Option<Arc<ClientConfig>>]>,
    /// The rules of the SYN proxy.
    pub syn_proxy: Arc<SynProxyRules>,
    /// Rules and lists of the URL filter.
    pub url_filter: Arc<UrlFilterRules>,
    /// The server that the URL filter asks for categories.
    pub categories: Option<Arc<CategoryServer>>,
    /// The rules of the rate limits.
    pub rate_limit: Arc<RateLimitRules>,
    /// A digest of the files that nodes which back each other up have alike.
    pub(super) files: u64,
    /// The mappings of source NAT that are one for each inside end point.
    pub endpoints: Arc<EndpointMappings>,
}

impl SharedFunctions {
    /// What is configured. Health, activity, buckets and numbers of connections continue from `previous`.
    ///
    /// # Errors
    /// The services or the rules cannot be used, or a secret or a list cannot be read.
    pub fn new(config: &Config, previous: Option<&Self>, secrets: &Secrets) -> Result<Self, ProcessError> {
        let services = services(config, previous.map(|previous| &*previous.services))?;
        let rules = &config.syn_proxy.rules;
        let keys = cookie_keys(config, secrets)?;
        let syn_proxy = SynProxyRules::new(rules, keys, previous.map(|previous| &*previous.syn_proxy))?;
        syn_proxy.set_unix_time(clock::now(), credentials::unix_time());
        let limits_before = previous.map(|previous| &*previous.rate_limit);
        let rate_limit = RateLimitRules::new(&config.rate_limit, secrets.nat_key, limits_before)?;
        rate_limit.set_unix_time(clock::now(), credentials::unix_time());
        let lists_before = previous.map(|previous| &*previous.url_filter);
        let key = secrets.hash_key.0;
        let server_before = previous.and_then(|previous| previous.categories.as_ref());
        let server = config.url_filter.server.as_ref().filter(|_| config.chain.contains(&Function::UrlFilter));
        let categories = server.map(|server| CategoryServer::new(server, key, server_before)).transpose()?;
        let asked = categories.clone().map(|server| server as Arc<dyn Categories>);
        let url_filter = Arc::new(url_lists::load(&config.url_filter, asked, key, lists_before)?);
        let check_tls = check_tls::clients(&config.services)?;
        let (syn_proxy, rate_limit) = (Arc::new(syn_proxy), Arc::new(rate_limit));
        let files = files::digest(config, url_filter.fingerprint());
        let endpoints = endpoints(config, secrets, previous.map(|previous| &*previous.endpoints))?;
        Ok(Self { endpoints, services, check_tls, syn_proxy, rate_limit, url_filter, categories, files })
    }
}

/// The mappings of the rules that have one for each inside end point. Those of addresses that stay continue from `previous`.
fn endpoints(
    config: &Config,
    secrets: &Secrets,
    previous: Option<&EndpointMappings>,
) -> Result<Arc<EndpointMappings>, ProcessError> {
    let rules = config.source_nat.iter().filter(|rule| rule.is_endpoint_independent);
    let addresses = rules.flat_map(|rule| rule.to.iter().copied());
    let key = nat::nat_key(config, secrets)?;
    Ok(Arc::new(EndpointMappings::new(addresses, config.nat_ports, key, previous)))
}

/// The secrets of SYN cookies: those of a file or of the cluster, as every node has them; or else one of this process.
fn cookie_keys(config: &Config, secrets: &Secrets) -> Result<CookieKeys, ProcessError> {
    if config.syn_proxy.rules.is_empty() {
        return Ok(CookieKeys::new(secrets.cookie_key, []));
    }
    if let Some(path) = &config.syn_proxy.key {
        return Ok(CookieKeys::new(credentials::syn_proxy_key(path)?, []));
    }
    let mut shared = credentials::cluster_cookie_keys(config.cluster.as_ref())?.into_iter();
    let first = shared.next().unwrap_or(secrets.cookie_key);
    Ok(CookieKeys::new(first, shared))
}

/// The services as configured, shared by all workers. Health and numbers of connections continue from `previous`.
///
/// # Errors
/// The services cannot be used.
fn services(config: &Config, previous: Option<&Services>) -> Result<Arc<Services>, ProcessError> {
    let configs: Vec<_> = config.services.iter().map(|service| service.config.clone()).collect();
    let services = Services::new(&configs, previous.unwrap_or(&Services::default()))?;
    let key = credentials::cluster_choice_key(config.cluster.as_ref())?;
    Ok(Arc::new(match key {
        Some(key) => services.with_choice_key(key),
        None => services,
    }))
}
