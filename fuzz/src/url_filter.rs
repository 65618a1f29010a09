//! Lists of the URL filter, and what a categorisation server sends: no parser panics, and what a list names is found. Paths keep their normal form.

use network_functions::url_filter::lists::{self, ListFormat};
use network_functions::url_filter::path::NormalPath;
use network_functions::url_filter::server::protocol;
use network_functions::url_filter::server::sharing::Message;
use network_functions::url_filter::store::Store;

/// The first byte chooses the format; the rest is the text of a list.
pub fn run(data: &[u8]) {
    let Some((format, text)) = data.split_first() else { return };
    let format = ListFormat::ALL[usize::from(*format) % ListFormat::ALL.len()].1;
    let (mut store, mut entries) = (Store::new([1, 2]), Vec::new());
    let summary = lists::read(format, text, |entry| {
        entries.push(entry.clone());
        store.add(0, &entry)
    });
    store.finish();
    if let Ok(summary) = summary {
        assert_eq!((summary.entries, store.entries()), (entries.len(), entries.len()));
    }
    let has_exempt = entries.iter().any(|entry| entry.is_exempt);
    for entry in entries.iter().filter(|entry| entry.scope != lists::Scope::Below && !has_exempt) {
        let found = store.find(&entry.name, entry.path.as_ref());
        assert_eq!(found.lists, 1, "{entry:?}");
        assert!(found.has_paths || entry.path.is_none());
    }
    if let Ok(Some(response)) = protocol::response(text) {
        assert!(response.body.len() < text.len());
    }
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + usize::from(!text.ends_with(b"\n"));
    assert!(protocol::answers(text, lines + 1).is_err());
    let _ = protocol::answers(text, lines);
    let _ = protocol::read_request(text);
    if let Ok(message) = Message::decode(text) {
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        assert_eq!(encoded, text);
    }
    let path = NormalPath::new(text);
    assert_eq!(NormalPath::new(path.as_bytes()), path);
    assert!(path.prefixes().all(|prefix| path.as_bytes().starts_with(prefix)));
}
