//! Records and settings in etcd that somebody writes who may write there, and who is no operator.

use super::edge_site::EdgeSite;
use super::report::Observed;
use crate::demo::run::RunError;
use crate::testbed::cluster::ClusterError;
use crate::testbed::etcd::EtcdCluster;
use crate::testbed::many_nodes::{SETTINGS_KEY, member_key};
use api::MembershipStatus;
use membership::VERSION_END;

/// The highest version that counts.
const LAST_VERSION: u64 = VERSION_END - 1;
/// The node whose records are forged.
const VICTIM: usize = 1;

/// etcd of a site that has it.
fn etcd<'a>(site: &'a EdgeSite<'_>) -> Result<&'a EtcdCluster, RunError> {
    site.many.etcd().ok_or_else(|| RunError::Attack("there is no etcd".to_owned()))
}

/// Writes a value, or deletes the key.
fn write(site: &EdgeSite<'_>, key: &str, value: Option<&str>) -> Result<(), RunError> {
    let etcd = etcd(site)?;
    let written = value.map_or_else(|| etcd.delete(key), |value| etcd.put(key, value));
    Ok(written.map_err(ClusterError::from)?)
}

/// The members as each node that answers has them.
fn lists(site: &EdgeSite<'_>) -> Vec<MembershipStatus> {
    site.many.cluster.statuses().into_iter().filter_map(|status| Some(*status.membership?)).collect()
}

/// Waits until every node has such a list. False when one does not in time.
fn all_have(site: &EdgeSite<'_>, is_so: impl Fn(&MembershipStatus) -> bool) -> Result<bool, RunError> {
    let nodes = site.many.topology.nodes.len();
    site.until(|| lists(site).iter().filter(|list| is_so(list)).count() == nodes)
}

/// What the first node reports as refused.
fn refused(site: &EdgeSite<'_>) -> String {
    lists(site).into_iter().find_map(|list| list.refused).unwrap_or_default()
}

/// Settings with the highest version: those of the operator would never count again.
pub(super) fn poisoned_settings(site: &mut EdgeSite<'_>) -> Result<Observed, RunError> {
    let poisoned = format!("version={LAST_VERSION} backups=2");
    write(site, SETTINGS_KEY, Some(&poisoned))?;
    let is_read = all_have(site, |list| list.settings_version == LAST_VERSION)?;
    write(site, SETTINGS_KEY, Some("version=2 backups=1"))?;
    let is_reported = all_have(site, |list| list.refused.as_ref().is_some_and(|why| why.contains("delete them")))?;
    let seen = refused(site);
    // What the report asks for.
    write(site, SETTINGS_KEY, None)?;
    let is_gone = all_have(site, |list| list.refused.is_none())?;
    write(site, SETTINGS_KEY, Some("version=2 backups=1"))?;
    let is_taken_back = all_have(site, |list| list.settings_version == 2 && list.backups == Some(1))?;
    Ok(Observed {
        held: is_read && is_reported && is_taken_back,
        observed: format!(
            "settings of version {LAST_VERSION} were read by all nodes: {is_read}; deleted and written anew, those of version 2 \
             count: {is_taken_back}{}",
            if is_gone { "" } else { "; the refusal stays" }
        ),
        operator_sees: format!("membership refused: {seen}"),
    })
}

/// Records of a node that runs: beyond all versions, of a node that left, and no record at all.
pub(super) fn poisoned_records(site: &mut EdgeSite<'_>) -> Result<Observed, RunError> {
    let key = member_key(VICTIM);
    let right = etcd(site)?.get(&key).map_err(ClusterError::from)?.unwrap_or_default();
    let with = |version: u64, state: &str| {
        let words = right.split_whitespace().map(|word| match word.split_once('=') {
            Some(("version", _)) => format!("version={version}"),
            Some(("state", _)) => format!("state={state}"),
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let poisoned = [
        with(u64::MAX, "active"),
        "version= state=active \u{1b}[2J".to_owned(),
        with(LAST_VERSION / 2, "left"),
        with(LAST_VERSION, "left"),
    ];
    let mut returned = 0;
    let mut seen = String::new();
    for record in &poisoned {
        write(site, &key, Some(record))?;
        // The node writes its own record again.
        let etcd = etcd(site)?;
        let is_replaced = site.until(|| {
            if seen.is_empty() {
                seen = refused(site);
            }
            let now = etcd.get(&key).ok().flatten().unwrap_or_default();
            now != *record && now.contains("state=active")
        })?;
        site.many.cluster.wait_until_ready(site.watch)?;
        site.many.cluster.wait_until_safe(site.watch)?;
        returned += usize::from(is_replaced);
    }
    let changes = lists(site).iter().map(|list| list.changes).max().unwrap_or_default();
    Ok(Observed {
        held: returned == poisoned.len() && !seen.is_empty(),
        observed: format!(
            "after {returned} of {} forged records the node has written its own again, and is a peer of all",
            poisoned.len()
        ),
        operator_sees: format!("membership refused: {seen}; {changes} changes of the list"),
    })
}
