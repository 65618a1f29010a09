//! What functions of all workers of a gateway share: the services of the load balancer, and the rules of the SYN proxy.

use std::sync::Arc;

use config::validated::Config;
use network_functions::load_balancer::Services;
use network_functions::syn_cookie::CookieKeys;
use network_functions::syn_proxy::SynProxyRules;
use packet_io::clock;
use rustls::ClientConfig;

use super::build::Secrets;
use crate::check_tls;
use crate::credentials;
use crate::error::ProcessError;

/// What functions of all workers share.
#[derive(Clone)]
pub struct SharedFunctions {
    /// The services of the load balancer.
    pub services: Arc<Services>,
    /// Of each service how its checks use TLS, if they do.
    pub check_tls: Arc<[Option<Arc<ClientConfig>>]>,
    /// The rules of the SYN proxy.
    pub syn_proxy: Arc<SynProxyRules>,
}

impl SharedFunctions {
    /// What is configured. Health, activity and numbers of connections continue from `previous`.
    ///
    /// # Errors
    /// The services or the rules cannot be used, or a secret cannot be read.
    pub fn new(config: &Config, previous: Option<&Self>, secrets: &Secrets) -> Result<Self, ProcessError> {
        let services = services(config, previous.map(|previous| &*previous.services))?;
        let rules = &config.syn_proxy.rules;
        let keys = cookie_keys(config, secrets)?;
        let syn_proxy = SynProxyRules::new(rules, keys, previous.map(|previous| &*previous.syn_proxy))?;
        syn_proxy.set_unix_time(clock::now(), credentials::unix_time());
        let check_tls = check_tls::clients(&config.services)?;
        Ok(Self { services, check_tls, syn_proxy: Arc::new(syn_proxy) })
    }
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
    Ok(Arc::new(Services::new(&configs, previous.unwrap_or(&Services::default()))?))
}
