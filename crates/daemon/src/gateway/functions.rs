//! From the checked configuration to the functions of a worker's chain.

use std::net::IpAddr;
use std::sync::Arc;

use flow::IpFamily;
use network_functions::chain::ChainBuilder;
use network_functions::classifier::Classifier;
use network_functions::firewall::{self, Firewall, FirewallConfig};
use network_functions::ftp::{Ftp, FtpConfig};
use network_functions::load_balancer::{LoadBalancer, Services};
use network_functions::nat::{
    Algorithm, DestinationRule, EndpointMappings, Mapping, Nat, NatConfig, NatError, SourceAction, SourcePorts,
    SourceRule,
};
use network_functions::rate_limit::RateLimit;
use network_functions::rule_set::Conditions;
use network_functions::syn_proxy::SynProxy;
use network_functions::url_filter::UrlFilter;

use super::hash::fnv;
use super::nat::{PortDivision, nat_key, port_division};
use super::secrets::Secrets;
use super::shared::SharedFunctions;
use crate::credentials;
use crate::error::ProcessError;
use config::validated::{Config, Function, NatMapping};

/// The chain of a worker, with these functions.
pub(super) fn chain(
    config: &Config,
    functions: &[Function],
    shared: &SharedFunctions,
    secrets: &Secrets,
) -> Result<ChainBuilder, ProcessError> {
    let mut builder = ChainBuilder::new();
    for function in functions {
        builder = match function {
            Function::Classifier => builder.push(Classifier::new(&config.classifier)?),
            Function::Firewall => builder.push(firewall_of(config)?),
            Function::UrlFilter => builder.push(UrlFilter::new(Arc::clone(&shared.url_filter))),
            Function::RateLimit => builder.push(RateLimit::new(Arc::clone(&shared.rate_limit))),
            Function::SynProxy => builder.push(SynProxy::new(Arc::clone(&shared.syn_proxy))),
            Function::LoadBalancer => builder.push(load_balancer_of(config, &shared.services, secrets)?),
            Function::Nat => builder.push(nat_of(config, &shared.endpoints, secrets)?),
            Function::Ftp => builder.push(ftp_of(config, secrets)?),
        };
    }
    Ok(builder)
}

fn firewall_of(config: &Config) -> Result<Firewall, ProcessError> {
    let (rules, generation) = (config.firewall.clone(), generation(&config.firewall));
    Ok(Firewall::new(FirewallConfig { rules, log_default: false, generation, related: config.related })?)
}

/// Nodes with equal rules have equal numbers: rule numbers in replicated states refer to them.
fn generation(rules: &[firewall::Rule]) -> u16 {
    let hash = fnv(&format!("{rules:?}"));
    (hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) as u16
}

/// The load balancer of a worker. Full NAT takes its ports from those of source NAT.
fn load_balancer_of(
    config: &Config,
    services: &Arc<Services>,
    secrets: &Secrets,
) -> Result<LoadBalancer, ProcessError> {
    let PortDivision { ports, node, nodes } = port_division(config);
    let source_ports = SourcePorts::new(ports, node, nodes, nat_key(config, secrets)?);
    let source_ports = source_ports.ok_or(NatError::NoPorts { ports, node, nodes })?;
    Ok(LoadBalancer::new(Arc::clone(services), source_ports))
}

fn nat_of(config: &Config, endpoints: &Arc<EndpointMappings>, secrets: &Secrets) -> Result<Nat, ProcessError> {
    let source_rules = config.source_nat.iter().map(|rule| {
        let conditions = Conditions {
            family: rule.to.first().map(|address| family(*address)),
            sources: rule.source.clone(),
            destinations: rule.destination.clone(),
            protocols: rule.protocol.into_iter().collect(),
            ..Conditions::default()
        };
        let action = match rule.mapping {
            None if rule.is_endpoint_independent => {
                SourceAction::TranslateEndpoints(rule.to.clone(), Arc::clone(endpoints))
            }
            None => SourceAction::Translate(rule.to.clone()),
            Some(mapping) => SourceAction::Compute(rule.to.clone(), computed(config, mapping)?),
        };
        Ok(SourceRule { conditions, action })
    });
    let destination_rules = config.destination_nat.iter().map(|rule| DestinationRule {
        conditions: Conditions {
            family: Some(family(rule.destination)),
            destinations: vec![rule.destination.into()],
            protocols: rule.protocol.into_iter().collect(),
            destination_ports: rule.ports.into_iter().collect(),
            ..Conditions::default()
        },
        address: rule.to,
        port: rule.to_port,
    });
    let PortDivision { ports, node, nodes } = port_division(config);
    Ok(Nat::new(NatConfig {
        source_rules: source_rules.collect::<Result<Vec<_>, ProcessError>>()?,
        destination_rules: destination_rules.collect(),
        ports,
        node,
        nodes,
        key: nat_key(config, secrets)?,
    })?)
}

/// How a source translation is computed; the secret of a keyed one is read from its file.
fn computed(config: &Config, mapping: NatMapping) -> Result<Mapping, ProcessError> {
    let algorithm = match (mapping.is_keyed, &config.nat_mapping_key) {
        (true, Some(path)) => Algorithm::Keyed(credentials::mapping_key(path)?),
        _ => Algorithm::Sequential,
    };
    Ok(Mapping { algorithm, block_ports: mapping.block_ports })
}

/// Where the helper only stays for the connections that it has, no more begin.
fn ftp_of(config: &Config, secrets: &Secrets) -> Result<Ftp, ProcessError> {
    let is_wanted = config.chain.contains(&Function::Ftp);
    let control_ports = config.ftp.ports.iter().filter(|_| is_wanted);
    let PortDivision { ports, node, nodes } = port_division(config);
    Ok(Ftp::new(FtpConfig {
        control_ports: control_ports.copied().collect(),
        loose: config.ftp.loose,
        privileged_ports: config.ftp.privileged_ports,
        timeout: config.ftp.timeout,
        ports,
        node,
        nodes,
        key: nat_key(config, secrets)?,
    })?)
}

const fn family(address: IpAddr) -> IpFamily {
    if address.is_ipv4() { IpFamily::V4 } else { IpFamily::V6 }
}
