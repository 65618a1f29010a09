//! Requests to the control API, and the filters in them.

use api::{FlowFilterText, Line, Query, Request};
use control::FlowFilter;

/// One line.
pub fn run(data: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(data) {
        let written = serde_json::to_vec(&request).expect("a request can be written");
        let read_back: Request = serde_json::from_slice(&written).expect("what was written can be read");
        assert_eq!(read_back, request);
        if let Query::Flows { filter, .. } = &request.query {
            // An invalid filter is refused with a reason.
            let _ = FlowFilter::parse(filter);
        }
    }
    if let Ok(filter) = serde_json::from_slice::<FlowFilterText>(data) {
        let _ = FlowFilter::parse(&filter);
    }
    // The client reads a server's lines.
    let _ = serde_json::from_slice::<Line>(data);
}
