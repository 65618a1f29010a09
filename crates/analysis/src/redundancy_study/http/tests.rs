//! Responses in order, out of order and with gaps.

use super::object::{Found, Objects};
use super::stream::Stream;

/// What was found, in words: bodies, and how they end.
fn found_objects(feed: impl FnOnce(&mut dyn FnMut(Found<'_>))) -> Vec<String> {
    let mut found_objects = Vec::new();
    let mut body = Vec::new();
    feed(&mut |found| match found {
        Found::Piece(piece) => body.extend_from_slice(piece),
        Found::End { bytes, is_compressed } => {
            assert_eq!(bytes, body.len() as u64);
            let compressed = if is_compressed { " compressed" } else { "" };
            found_objects.push(format!("{}{compressed}", String::from_utf8_lossy(&body)));
            body.clear();
        }
        Found::Lost => {
            found_objects.push("lost".into());
            body.clear();
        }
    });
    found_objects
}

const RESPONSES: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst\
    HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n\
    HTTP/1.1 200 OK\r\ncontent-length: 77\r\n\r\n\
    HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\nContent-Encoding: gzip\r\n\r\n3;a=b\r\nsec\r\n3\r\nond\r\n0\r\nDigest: x\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\
    HTTP/1.0 200 OK\r\nServer: old\r\n\r\nuntil the end";

#[test]
fn objects_are_found_in_segments_of_any_size() {
    for step in [1, 2, 3, 7, 50, 10_000] {
        let found = found_objects(|mut take| {
            let mut objects = Objects::default();
            for bytes in RESPONSES.as_bytes().chunks(step) {
                objects.handle(bytes, &mut take);
            }
            objects.close(&mut take);
        });
        // A header alone, to HEAD, differs from a body only by what follows it in the same segment.
        if step == 10_000 {
            assert_eq!(found, ["first", "second compressed", "", "until the end"]);
        } else {
            assert_eq!(found[0], "first", "cut by {step}");
            assert!(found.len() >= 2, "cut by {step}: {found:?}");
        }
    }
}

#[test]
fn segments_out_of_order_and_repeated_are_put_in_order() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\nabcdefghijklmnopqrstuvwxyz";
    let base = u32::MAX - 20;
    let found = found_objects(|mut take| {
        let mut stream = Stream::new(base);
        for range in [0..30, 40..50, 35..45, 30..35, 0..35, 50..text.len()] {
            stream.handle(base.wrapping_add(range.start as u32), &text[range], &mut take);
        }
        assert!(!stream.is_within_object());
        stream.close(&mut take);
    });
    assert_eq!(found, ["abcdefghijklmnopqrstuvwxyz"]);
}

#[test]
fn what_breaks_off_is_lost_and_the_next_is_found() {
    let first = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
    let second = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyz";
    let found = found_objects(|mut take| {
        let mut stream = Stream::new(0);
        stream.handle(0, first, &mut take);
        assert!(stream.is_within_object());
        // A gap that nothing ever fills, until the connection is closed.
        stream.handle(5000, second, &mut take);
        stream.close(&mut take);
    });
    assert_eq!(found, ["lost", "xyz"]);
}

#[test]
fn what_is_no_http_is_passed_over() {
    let found = found_objects(|mut take| {
        let mut objects = Objects::default();
        objects.handle(&[0xff; 100_000], &mut take);
        objects.handle(b"HTTHTTP/1.", &mut take);
        objects.handle(&[b'x'; 100_000], &mut take);
        objects.handle(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n", &mut take);
        objects.close(&mut take);
    });
    assert_eq!(found, ["lost"]);
}
