//! Requests and answers of etcd's JSON gateway. Keys and values are in base64, 64-bit numbers are strings.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flow::NodeId;
use membership::{Member, RecordError, Settings};
use serde_json::{Value, json};

/// Something else than etcd answers.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedAnswer {
    /// It is not JSON.
    #[error("the answer is not JSON")]
    NotJson,
    /// A field is missing, or is of another type.
    #[error("the answer lacks {0}")]
    Lacks(&'static str),
}

/// All records.
#[derive(PartialEq, Debug)]
pub(crate) struct Answer {
    pub(crate) revision: i64,
    pub(crate) members: Vec<(NodeId, Result<Member, RecordError>)>,
    pub(crate) settings: Option<Result<Settings, RecordError>>,
}

/// What a line of a watch shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WatchEvent {
    /// It has begun, or nothing has changed.
    Created,
    /// Something has changed, or it cannot be shown what.
    Changed,
}

fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The keys that begin with `<prefix>/`: up to the first that does not.
fn keys(prefix: &str) -> (String, String) {
    // `0` follows `/`.
    (encoded(format!("{prefix}/").as_bytes()), encoded(format!("{prefix}0").as_bytes()))
}

pub(super) fn grant(ttl: Duration) -> String {
    json!({ "TTL": ttl.as_secs().max(1).to_string() }).to_string()
}

pub(super) fn keep_alive(lease: i64) -> String {
    json!({ "ID": lease.to_string() }).to_string()
}

pub(super) fn put(prefix: &str, own: &Member, lease: i64) -> String {
    let key = encoded(format!("{prefix}/members/{}", own.id.0).as_bytes());
    json!({ "key": key, "value": encoded(own.to_string().as_bytes()), "lease": lease.to_string() }).to_string()
}

pub(super) fn range(prefix: &str) -> String {
    let (key, range_end) = keys(prefix);
    json!({ "key": key, "range_end": range_end, "limit": "256" }).to_string()
}

pub(super) fn watch(prefix: &str, from: i64) -> String {
    let (key, range_end) = keys(prefix);
    json!({ "create_request": { "key": key, "range_end": range_end, "start_revision": from.to_string() } }).to_string()
}

fn read(text: &str) -> Result<Value, MalformedAnswer> {
    serde_json::from_str(text).map_err(|_| MalformedAnswer::NotJson)
}

fn number(value: &Value, what: &'static str) -> Result<i64, MalformedAnswer> {
    let read = value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_i64());
    read.ok_or(MalformedAnswer::Lacks(what))
}

/// What etcd gives as the reason of a refusal.
pub(super) fn error_of(text: &str) -> Option<String> {
    let value = read(text).ok()?;
    let message = value.get("message").or_else(|| value.get("error"))?.as_str()?;
    Some(message.chars().take(200).collect())
}

/// The number of a lease that was granted.
pub(super) fn lease_of(text: &str) -> Result<i64, MalformedAnswer> {
    number(&read(text)?["ID"], "ID")
}

/// Whether a lease lives that was to be kept alive: its time to live is left out when it does not.
pub(super) fn lives(text: &str) -> Result<bool, MalformedAnswer> {
    let answer = read(text)?;
    let result = answer.get("result").ok_or(MalformedAnswer::Lacks("result"))?;
    Ok(number(&result["TTL"], "TTL").is_ok_and(|ttl| ttl > 0))
}

/// The records of an answer. What lies beside them under the prefix is ignored.
pub(super) fn records_of(prefix: &str, text: &str) -> Result<Answer, MalformedAnswer> {
    let value = read(text)?;
    let revision = number(&value["header"]["revision"], "revision")?;
    let mut answer = Answer { revision, members: Vec::new(), settings: None };
    let decoded = |value: &Value| STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    for record in value["kvs"].as_array().into_iter().flatten() {
        let (key, bytes) = (decoded(&record["key"]), decoded(&record["value"]));
        let Some(name) = std::str::from_utf8(&key).ok().and_then(|key| key.strip_prefix(prefix)) else { continue };
        if name == "/settings" {
            answer.settings = Some(Settings::parse_bytes(&bytes));
        } else if let Some(id) = name.strip_prefix("/members/").and_then(|id| id.parse().ok()).map(NodeId) {
            answer.members.push((id, Member::parse_bytes(id, &bytes)));
        }
    }
    Ok(answer)
}

/// What a line of a watch shows.
pub(super) fn watch_event(line: &str) -> Result<WatchEvent, MalformedAnswer> {
    let value = read(line)?;
    // An error in the stream, and the end of a watch whose revision was compacted: the list shows what there is.
    let Some(result) = value.get("result") else { return Ok(WatchEvent::Changed) };
    let has_events = result["events"].as_array().is_some_and(|events| !events.is_empty());
    let is_canceled = result["canceled"].as_bool() == Some(true);
    Ok(if has_events || is_canceled { WatchEvent::Changed } else { WatchEvent::Created })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "name=b replication=192.0.2.2:3781 detection=192.0.2.2:3784 state=active version=7";

    fn record(key: &str, value: &str) -> Value {
        json!({ "key": encoded(key.as_bytes()), "value": encoded(value.as_bytes()), "mod_revision": "5" })
    }

    #[test]
    fn records_are_read_and_other_keys_are_ignored() {
        let kvs = [
            record("/m/members/1", RECORD),
            record("/m/members/2", "gibberish"),
            record("/m/members/x", RECORD),
            record("/m/settings", "backups=2 version=3"),
            record("/m/else", "?"),
        ];
        let text = json!({ "header": { "revision": "12" }, "kvs": kvs, "count": "5" }).to_string();
        let answer = records_of("/m", &text).expect("an answer");
        let member = Member::parse(NodeId(1), RECORD).expect("a record");
        assert_eq!(answer.members, [(NodeId(1), Ok(member)), (NodeId(2), Err(RecordError::NotAPair))]);
        assert_eq!(
            answer.settings,
            Some(Ok(Settings { version: 3, backups: Some(2), edge_nodes: None, configuration: 0 }))
        );
        assert_eq!(answer.revision, 12);
        let empty = records_of("/m", r#"{"header":{"revision":"3"}}"#).expect("an answer");
        assert_eq!((empty.members.len(), empty.settings), (0, None));
    }

    #[test]
    fn what_is_not_etcds_is_named() {
        assert_eq!(records_of("/m", "<html>"), Err(MalformedAnswer::NotJson));
        assert_eq!(records_of("/m", "{}"), Err(MalformedAnswer::Lacks("revision")));
        assert_eq!(lease_of("{}"), Err(MalformedAnswer::Lacks("ID")));
        assert_eq!(
            error_of(r#"{"error":"etcdserver: no leader","code":14}"#).as_deref(),
            Some("etcdserver: no leader")
        );
        assert_eq!(error_of("404 page not found"), None);
    }

    #[test]
    fn leases_are_granted_kept_and_lost() {
        assert_eq!(lease_of(r#"{"header":{},"ID":"7587862094158078729","TTL":"10"}"#), Ok(7_587_862_094_158_078_729));
        assert_eq!(lives(r#"{"result":{"header":{},"ID":"1","TTL":"10"}}"#), Ok(true));
        assert_eq!(lives(r#"{"result":{"header":{},"ID":"1"}}"#), Ok(false));
        assert_eq!(lives("{}"), Err(MalformedAnswer::Lacks("result")));
    }

    #[test]
    fn a_watch_shows_that_something_has_changed() {
        assert_eq!(watch_event(r#"{"result":{"header":{},"created":true}}"#), Ok(WatchEvent::Created));
        assert_eq!(watch_event(r#"{"result":{"events":[{"type":"DELETE"}]}}"#), Ok(WatchEvent::Changed));
        assert_eq!(watch_event(r#"{"result":{"canceled":true,"compact_revision":"9"}}"#), Ok(WatchEvent::Changed));
        assert_eq!(watch_event(r#"{"error":{"grpc_code":14}}"#), Ok(WatchEvent::Changed));
    }

    #[test]
    fn requests_have_numbers_as_text_and_the_range_of_the_prefix() {
        assert_eq!(grant(Duration::from_secs(10)), r#"{"TTL":"10"}"#);
        let request: Value = serde_json::from_str(&watch("/m", 5)).expect("it is JSON");
        assert_eq!(request["create_request"]["start_revision"], "5");
        assert_eq!(request["create_request"]["range_end"], encoded(b"/m0"));
    }
}
