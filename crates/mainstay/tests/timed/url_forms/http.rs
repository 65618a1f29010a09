//! Forms of requests for `blocked.example`, and for the path `/ads/top` of `site.example`: those of RFC 9110 and RFC 9112, and what servers let pass beside.

use super::Form;

/// The first request is for another host. The filter reads it alone, as docs/url-filter.md states.
pub(super) const LATER_REQUESTS: [&str; 3] =
    ["a second request", "a second request behind chunks", "a second request behind a body"];
/// Without TLS it is undecided.
pub(super) const HTTP2: &str = "HTTP/2 with prior knowledge";
/// What Python's server takes for a method, and other protocols begin with.
pub(super) const NO_PRINTABLE_METHOD: [&str; 4] =
    ["NUL first", "NUL in the method", "a byte order mark first", "a method with obs-text"];

const HOST: &[u8] = b"Host: blocked.example\r\n";
const OTHER_HOST: &[u8] = b"Host: allowed.example\r\n";
const LINE: &[u8] = b"GET / HTTP/1.1";

/// An ordinary request.
pub(super) fn get(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

fn request(line: &[u8], fields: &[u8]) -> Vec<u8> {
    [line, b"\r\n", fields, b"Connection: close\r\n\r\n"].concat()
}

/// The forms, each in one segment or more.
pub(super) fn forms() -> Vec<Form> {
    let lists = [starts(), lines(), hosts(), fields(), targets(), sequences(), paths()];
    let whole = lists.into_iter().flatten().map(|(name, bytes)| Form { name, segments: vec![bytes] });
    let plain = request(LINE, HOST);
    let parts = [
        Form { name: "segments of one byte", segments: plain.iter().map(|byte| vec![*byte]).collect() },
        Form { name: "segments of seven bytes", segments: plain.chunks(7).map(<[u8]>::to_vec).collect() },
    ];
    whole.chain(parts).collect()
}

type Named = Vec<(&'static str, Vec<u8>)>;

/// What is before the request, and how lines end.
fn starts() -> Named {
    let plain = request(LINE, HOST);
    let behind = |first: &[u8]| [first, &plain].concat();
    let replaced = |end: &str| String::from_utf8_lossy(&plain).replace("\r\n", end).into_bytes();
    vec![
        ("plain", plain.clone()),
        ("an empty line first", behind(b"\r\n")),
        ("empty lines of LF first", behind(b"\n\n\n")),
        ("300 empty lines first", behind(&b"\r\n".repeat(300))),
        ("5000 empty lines first", behind(&b"\r\n".repeat(5000))),
        ("a space first", behind(b" ")),
        ("a tab first", behind(b"\t")),
        ("CR first", behind(b"\r")),
        ("a vertical tab first", behind(b"\x0b")),
        ("NUL first", behind(b"\0")),
        ("a byte order mark first", behind(b"\xef\xbb\xbf")),
        ("lines of LF", replaced("\n")),
        ("lines of CR", replaced("\r")),
        ("lines of CR CR LF", replaced("\r\r\n")),
        ("lines of LF CR", replaced("\n\r")),
        ("a request line of LF", [LINE, b"\n", HOST, b"\r\n"].concat()),
    ]
}

/// The request line.
fn lines() -> Named {
    let long = |first: &[u8], byte: u8, count: usize, last: &[u8]| [first, &vec![byte; count], last].concat();
    let lines: Vec<(&str, Vec<u8>)> = vec![
        ("two spaces", b"GET  / HTTP/1.1".to_vec()),
        ("tabs", b"GET\t/\tHTTP/1.1".to_vec()),
        ("vertical tabs", b"GET\x0b/\x0bHTTP/1.1".to_vec()),
        ("form feeds", b"GET\x0c/\x0cHTTP/1.1".to_vec()),
        ("CR as a space", b"GET\r/ HTTP/1.1".to_vec()),
        ("a space behind the line", b"GET / HTTP/1.1 ".to_vec()),
        ("a tab behind the line", b"GET / HTTP/1.1\t".to_vec()),
        ("a method in lower case", b"get / HTTP/1.1".to_vec()),
        ("a method of 30 letters", long(b"", b'A', 30, b" / HTTP/1.1")),
        ("a method of 500 letters", long(b"", b'A', 500, b" / HTTP/1.1")),
        ("a method of 7000 letters", long(b"", b'A', 7000, b" / HTTP/1.1")),
        ("a method with an underscore", b"GET_IT / HTTP/1.1".to_vec()),
        ("a method of a digit", b"1 / HTTP/1.1".to_vec()),
        ("a method with @", b"G@T / HTTP/1.1".to_vec()),
        ("a method with a parenthesis", b"G(T / HTTP/1.1".to_vec()),
        ("a method with a colon", b"GET: / HTTP/1.1".to_vec()),
        ("a method with a slash", b"GET/x / HTTP/1.1".to_vec()),
        ("a method in quotes", b"\"GET\" / HTTP/1.1".to_vec()),
        ("a method in angle brackets", b"<GET> / HTTP/1.1".to_vec()),
        ("a method with obs-text", b"G\xffT / HTTP/1.1".to_vec()),
        ("NUL in the method", b"G\0T / HTTP/1.1".to_vec()),
        ("PRI", b"PRI / HTTP/1.1".to_vec()),
        ("HTTP/2.0", b"GET / HTTP/2.0".to_vec()),
        ("HTTP/3.0", b"GET / HTTP/3.0".to_vec()),
        ("HTTP/1.9", b"GET / HTTP/1.9".to_vec()),
        ("HTTP/1.0", b"GET / HTTP/1.0".to_vec()),
        ("HTTP/1.01", b"GET / HTTP/1.01".to_vec()),
        ("HTTP/01.1", b"GET / HTTP/01.1".to_vec()),
        ("HTTP/1", b"GET / HTTP/1".to_vec()),
        ("HTTP/", b"GET / HTTP/".to_vec()),
        ("HTTP/1.1x", b"GET / HTTP/1.1x".to_vec()),
        ("a version in lower case", b"GET / http/1.1".to_vec()),
        ("a version in mixed case", b"GET / Http/1.1".to_vec()),
        ("two versions", b"GET / HTTP/1.1 HTTP/1.1".to_vec()),
        ("HTTPS/1.1", b"GET / HTTPS/1.1".to_vec()),
        ("ICAP/1.0", b"GET / ICAP/1.0".to_vec()),
        ("RTSP/1.0", b"GET / RTSP/1.0".to_vec()),
        ("HTTP/0.9", b"GET /".to_vec()),
        ("HTTP/0.9 and a space", b"GET / ".to_vec()),
        ("HTTP/0.9 with a host", b"GET http://blocked.example/".to_vec()),
        ("a target without a slash", b"GET index.html HTTP/1.1".to_vec()),
        ("OPTIONS *", b"OPTIONS * HTTP/1.1".to_vec()),
        ("GET *", b"GET * HTTP/1.1".to_vec()),
        ("a query alone", b"GET ?x HTTP/1.1".to_vec()),
        ("a fragment", b"GET /#x HTTP/1.1".to_vec()),
        ("obs-text in the target", b"GET /\xff HTTP/1.1".to_vec()),
        ("NUL in the target", b"GET /\0 HTTP/1.1".to_vec()),
        ("a space in the target", b"GET /a b HTTP/1.1".to_vec()),
        ("a backslash for a target", b"GET \\ HTTP/1.1".to_vec()),
        ("a quote in the target", b"GET /\" HTTP/1.1".to_vec()),
        ("a target of 8000 letters", long(b"GET /", b'a', 8000, b" HTTP/1.1")),
        ("a target of 9000 letters", long(b"GET /", b'a', 9000, b" HTTP/1.1")),
        ("a target of 15000 letters", long(b"GET /", b'a', 15_000, b" HTTP/1.1")),
        ("3000 spaces", long(b"GET", b' ', 3000, b"/ HTTP/1.1")),
        ("9000 spaces", long(b"GET", b' ', 9000, b"/ HTTP/1.1")),
    ];
    lines.into_iter().map(|(name, line)| (name, request(&line, HOST))).collect()
}

/// The value of `Host`.
fn hosts() -> Named {
    let values: [(&str, &[u8]); 53] = [
        ("folded", b"\r\n blocked.example"),
        ("folded by a tab", b"\r\n\tblocked.example"),
        ("folded by LF", b"\n blocked.example"),
        ("folded over a line of a space", b"\r\n \r\n blocked.example"),
        ("folded inside", b" blocked\r\n .example"),
        ("folded behind another host", b" allowed.example\r\n blocked.example"),
        ("no space", b"blocked.example"),
        ("a tab", b"\tblocked.example"),
        ("a vertical tab", b"\x0bblocked.example"),
        ("a form feed", b"\x0cblocked.example"),
        ("NUL behind", b" blocked.example\0"),
        ("NUL before", b" \0blocked.example"),
        ("NUL and another host", b" blocked.example\0.allowed.example"),
        ("a no-break space", b" blocked.example\xa0"),
        ("a no-break space before", b" \xa0blocked.example"),
        ("a tab behind", b" blocked.example\t"),
        ("spaces behind", b" blocked.example     "),
        ("a vertical tab behind", b" blocked.example\x0b"),
        ("CR behind", b" blocked.example\r"),
        ("a unit separator", b" \x1fblocked.example"),
        ("a next line", b" blocked.example\x85"),
        ("upper case", b" BLOCKED.EXAMPLE"),
        ("a final dot", b" blocked.example."),
        ("two final dots", b" blocked.example.."),
        ("a final dot and a port", b" blocked.example.:80"),
        ("a port", b" blocked.example:80"),
        ("an empty port", b" blocked.example:"),
        ("a port of a letter", b" blocked.example:x"),
        ("a space before the port", b" blocked.example :80"),
        ("a space in the port", b" blocked.example: 80"),
        ("two ports", b" blocked.example:80:81"),
        ("user information", b" u@blocked.example"),
        ("user and password", b" u:p@blocked.example"),
        ("a host as the user", b" allowed.example:80@blocked.example"),
        ("a comma", b" blocked.example,allowed.example"),
        ("a comma and a space", b" blocked.example, allowed.example"),
        ("a comma before", b" allowed.example,blocked.example"),
        ("a semicolon", b" blocked.example;x"),
        ("a slash behind the host", b" blocked.example/"),
        ("a path behind the host", b" blocked.example/x"),
        ("a scheme", b" http://blocked.example"),
        ("quotes", b" \"blocked.example\""),
        ("percent-encoded", b" %62locked.example"),
        ("a percent-encoded dot", b" blocked%2eexample"),
        ("a backslash", b" blocked.example\\x"),
        ("a question mark", b" blocked.example?x"),
        ("a hash", b" blocked.example#x"),
        ("two words", b" blocked.example allowed.example"),
        ("two words, the blocked one behind", b" allowed.example blocked.example"),
        ("brackets", b" [blocked.example]"),
        ("a wide dot", b" blocked\xe3\x80\x82example"),
        ("a leading dot", b" .blocked.example"),
        ("a parenthesis", b" (x)blocked.example"),
    ];
    values.into_iter().map(|(name, value)| (name, request(LINE, &[b"Host:", value, b"\r\n"].concat()))).collect()
}

/// The other fields, and the name of `Host`.
fn fields() -> Named {
    let many = |value: &[u8], count: usize| [b"X: ", value, b"\r\n"].concat().repeat(count);
    let after = |first: &[u8]| [first, HOST].concat();
    let fields: Vec<(&str, Vec<u8>)> = vec![
        ("HOST", b"HOST: blocked.example\r\n".to_vec()),
        ("another field continues", after(b"X: a\r\n b\r\n")),
        ("another field continues like Host", after(b"X: a\r\n Host: allowed.example\r\n")),
        ("a continuation first", after(b" X: y\r\n")),
        ("Host as a continuation", b"X: y\r\n Host: blocked.example\r\n".to_vec()),
        ("two hosts", [OTHER_HOST, HOST].concat()),
        ("two hosts, the blocked one first", [HOST, OTHER_HOST].concat()),
        ("the host twice", [HOST, HOST].concat()),
        ("an empty host first", after(b"Host:\r\n")),
        ("an empty host behind", [HOST, b"Host:\r\n"].concat()),
        ("a host of two words first", after(b"Host: a b\r\n")),
        ("two hosts, far apart", [OTHER_HOST, &many(b"y", 50), HOST].concat()),
        ("another Host with a space before the colon first", after(b"Host : allowed.example\r\n")),
        ("Host with a space before the colon behind another one", [OTHER_HOST, b"Host : blocked.example\r\n"].concat()),
        ("a space before the colon", b"Host : blocked.example\r\n".to_vec()),
        ("a tab before the colon", b"Host\t: blocked.example\r\n".to_vec()),
        ("CR before the colon", b"Host\r: blocked.example\r\n".to_vec()),
        ("a vertical tab before the colon", b"Host\x0b: blocked.example\r\n".to_vec()),
        ("obs-text before the colon", b"Host\xa0: blocked.example\r\n".to_vec()),
        ("NUL before the colon", b"Host\0: blocked.example\r\n".to_vec()),
        ("NUL before Host", b"\0Host: blocked.example\r\n".to_vec()),
        ("CR before Host", b"\rHost: blocked.example\r\n".to_vec()),
        ("a space before Host", b" Host: blocked.example\r\n".to_vec()),
        ("Host in quotes", b"\"Host\": blocked.example\r\n".to_vec()),
        ("Ho_st", b"Ho_st: blocked.example\r\n".to_vec()),
        ("a line without a colon", after(b"garbage\r\n")),
        ("a line that begins with a colon", after(b": x\r\n")),
        ("a line of a colon", after(b":\r\n")),
        ("a line of a space", after(b" \r\n")),
        ("a line of a space behind a field", after(b"X: y\r\n \r\n")),
        ("a CR in a field, then Host", b"X: a\rHost: blocked.example\r\n".to_vec()),
        ("a CR in a field", after(b"X: a\rb\r\n")),
        ("a CR and a space before the line's end", after(b"X: a\r \n")),
        ("NUL in a field", after(b"X: a\0b\r\n")),
        ("obs-text in a field", after(b"X: \xff\r\n")),
        ("a name that is no token", after(b"X@(: y\r\n")),
        ("a name of two words", after(b"X y: z\r\n")),
        ("an empty line before Host", after(b"\r\n")),
        ("X-Forwarded-Host", [OTHER_HOST, b"X-Forwarded-Host: blocked.example\r\n"].concat()),
        (":authority", [OTHER_HOST, b":authority: blocked.example\r\n"].concat()),
        ("a field of 7 kB first", after(&many(&[b'a'; 7000], 1))),
        ("fields of 12 kB first", after(&many(&[b'a'; 4000], 3))),
        ("fields of 28 kB first", after(&many(&[b'a'; 7000], 4))),
        ("90 fields and one of 8 kB first", after(&[many(b"y", 90), many(&[b'a'; 7900], 1)].concat())),
        (
            "Upgrade: h2c",
            after(
                b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
            ),
        ),
        ("Upgrade: websocket", after(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")),
        ("Expect", after(b"Expect: 100-continue\r\n")),
        ("chunks", after(b"Transfer-Encoding: chunked\r\n")),
    ];
    fields.into_iter().map(|(name, fields)| (name, request(LINE, &fields))).collect()
}

/// Targets with a host: of the blocked one beside another `Host`, and the other way round.
fn targets() -> Named {
    let blocked: [(&str, &[u8]); 24] = [
        ("absolute", b"GET http://blocked.example/ HTTP/1.1"),
        ("absolute, HTTP/1.0", b"GET http://blocked.example/ HTTP/1.0"),
        ("absolute, https", b"GET https://blocked.example/ HTTP/1.1"),
        ("absolute, upper case", b"GET HTTP://BLOCKED.EXAMPLE/ HTTP/1.1"),
        ("absolute, a port", b"GET http://blocked.example:80/ HTTP/1.1"),
        ("absolute, a user", b"GET http://u@blocked.example/ HTTP/1.1"),
        ("absolute, a user and password", b"GET http://u:p@blocked.example/ HTTP/1.1"),
        ("absolute, a host as the user", b"GET http://allowed.example@blocked.example/ HTTP/1.1"),
        ("absolute, the blocked host as the user", b"GET http://blocked.example@allowed.example/ HTTP/1.1"),
        ("absolute without a path", b"GET http://blocked.example HTTP/1.1"),
        ("absolute with a query alone", b"GET http://blocked.example?x HTTP/1.1"),
        ("absolute with a fragment alone", b"GET http://blocked.example#x HTTP/1.1"),
        ("absolute, ftp", b"GET ftp://blocked.example/ HTTP/1.1"),
        ("absolute, another scheme", b"GET f1+-.://blocked.example/ HTTP/1.1"),
        ("absolute, a scheme with an underscore", b"GET f_o://blocked.example/ HTTP/1.1"),
        ("absolute, no authority", b"GET http:///blocked.example/ HTTP/1.1"),
        ("absolute, one slash", b"GET http:/blocked.example/ HTTP/1.1"),
        ("absolute, no scheme", b"GET //blocked.example/ HTTP/1.1"),
        ("absolute, a final dot", b"GET http://blocked.example./ HTTP/1.1"),
        ("absolute, percent-encoded", b"GET http://%62locked.example/ HTTP/1.1"),
        ("absolute, a backslash", b"GET http://blocked.example\\x HTTP/1.1"),
        ("absolute, a semicolon", b"GET http://blocked.example;x/ HTTP/1.1"),
        ("OPTIONS of a host", b"OPTIONS http://blocked.example HTTP/1.1"),
        ("CONNECT", b"CONNECT blocked.example:80 HTTP/1.1"),
    ];
    let other: [(&str, &[u8]); 29] = [
        ("Host beside another target", b"GET http://allowed.example/ HTTP/1.1"),
        ("Host beside another target, HTTP/1.0", b"GET http://allowed.example/ HTTP/1.0"),
        ("Host beside another target, HTTP/0.9", b"GET http://allowed.example/"),
        ("Host beside a target with @ in its path", b"GET http://allowed.example/@blocked.example/ HTTP/1.1"),
        ("Host beside a target with a host in its query", b"GET /?u=http://allowed.example/ HTTP/1.1"),
        ("Host beside a target with a host in its path", b"GET /http://allowed.example/ HTTP/1.1"),
        ("Host beside a target with a port", b"GET http://allowed.example:9999999/ HTTP/1.1"),
        ("Host beside a target with an empty port", b"GET http://allowed.example:/ HTTP/1.1"),
        ("Host beside a target with a port of a letter", b"GET http://allowed.example:x/ HTTP/1.1"),
        ("Host beside a target with a user", b"GET http://u@allowed.example/ HTTP/1.1"),
        ("Host beside a target with a comma", b"GET http://allowed.example,blocked.example/ HTTP/1.1"),
        ("Host beside a target with a space", b"GET http://a b/ HTTP/1.1"),
        ("Host beside a target with an address", b"GET http://[::1]/ HTTP/1.1"),
        ("Host beside a target that is no name", b"GET http://a!b/ HTTP/1.1"),
        ("Host beside a target with two dots", b"GET http://a..b/ HTTP/1.1"),
        ("Host beside a target of obs-text", b"GET http://\xff/ HTTP/1.1"),
        ("Host beside a target of h2c", b"GET h2c://allowed.example/ HTTP/1.1"),
        ("Host beside a target of ws", b"GET ws://allowed.example/ HTTP/1.1"),
        ("Host beside a target of file", b"GET file://allowed.example/ HTTP/1.1"),
        ("Host beside a scheme with a digit first", b"GET 1http://allowed.example/ HTTP/1.1"),
        ("Host beside a scheme with a dash first", b"GET -http://allowed.example/ HTTP/1.1"),
        ("Host beside a scheme with an underscore", b"GET h_p://allowed.example/ HTTP/1.1"),
        ("Host beside a target without an authority", b"GET http:/// HTTP/1.1"),
        ("Host beside a target of one slash", b"GET http:/allowed.example/ HTTP/1.1"),
        ("Host beside a target without a scheme", b"GET //allowed.example/ HTTP/1.1"),
        ("Host beside a target behind @", b"GET x@http://allowed.example/ HTTP/1.1"),
        ("Host beside an authority", b"GET allowed.example:80 HTTP/1.1"),
        ("Host beside CONNECT", b"CONNECT allowed.example:80 HTTP/1.1"),
        ("Host beside connect", b"connect allowed.example:80 HTTP/1.1"),
    ];
    let blocked = blocked.into_iter().map(|(name, line)| (name, request(line, OTHER_HOST)));
    let other = other.into_iter().map(|(name, line)| (name, request(line, HOST)));
    let alone = [("absolute without Host", request(b"GET http://blocked.example/ HTTP/1.0", b""))];
    blocked.chain(other).chain(alone).collect()
}

/// Several requests, and HTTP/2.
fn sequences() -> Named {
    let last = request(LINE, HOST);
    let post = |fields: &[u8]| [b"POST / HTTP/1.1\r\n", OTHER_HOST, fields, &last].concat();
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream][..], payload].concat()
    };
    let name = b"blocked.example";
    // GET, http and / are in the static table (RFC 7541 appendix A); :authority comes as a literal.
    let fields = [&[0x82, 0x86, 0x84, 0x41, name.len() as u8][..], name].concat();
    let http2 = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[]), &frame(1, 5, 1, &fields)].concat();
    vec![
        (LATER_REQUESTS[0], [&get("allowed.example")[..], &last].concat()),
        (LATER_REQUESTS[1], post(b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        (LATER_REQUESTS[2], post(b"Content-Length: 5\r\n\r\nhello")),
        (HTTP2, http2.clone()),
        ("HTTP/2 behind an empty line", [b"\r\n", &http2[..]].concat()),
        ("the preface of HTTP/2 with Host", request(b"PRI * HTTP/2.0", HOST)),
        ("the header of a proxy first", [b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", &last[..]].concat()),
    ]
}

/// Spellings of a path, and what is near to it.
fn paths() -> Named {
    let long = [b"/", &[b'x'; 600][..], b"/../ads/top"].concat();
    let deep = format!("/{}{}ads/top", "x/".repeat(400), "../".repeat(400));
    let query = [b"/ads/top?", &[b'a'; 7000][..]].concat();
    let paths: [(&str, &[u8]); 47] = [
        ("path", b"/ads/top"),
        ("path, percent-encoded", b"/%61ds/top"),
        ("path, two slashes", b"//ads/top"),
        ("path, two slashes inside", b"/ads//top"),
        ("path, a dot", b"/./ads/top"),
        ("path, a dot inside", b"/ads/./top"),
        ("path, two dots", b"/x/../ads/top"),
        ("path, two dots inside", b"/ads/y/../top"),
        ("path, above the root", b"/../../ads/top"),
        ("path, encoded dots", b"/x/%2e%2e/ads/top"),
        ("path, an encoded slash", b"/ads%2ftop"),
        ("path, an encoded slash first", b"/%2fads/top"),
        ("path, dots and an encoded slash", b"/x/..%2fads/top"),
        ("path, encoded slashes", b"/x%2f..%2fads%2ftop"),
        ("path, encoded dots and slash first", b"/%2e%2e%2fads/top"),
        ("path, two slashes and dots", b"/x//../ads/top"),
        ("path, a dot and two slashes", b"/.//ads/top"),
        ("path, three dots", b"/x/.../ads/top"),
        ("path, a backslash", b"/ads\\top"),
        ("path, an encoded backslash", b"/ads%5ctop"),
        ("path, a parameter", b"/ads;x/top"),
        ("path, a parameter behind", b"/ads/top;x"),
        ("path, a parameter first", b"/;x/ads/top"),
        ("path, dots with a parameter", b"/ads/..;/ads/top"),
        ("path, a query", b"/ads/top?x"),
        ("path, a long query", &query),
        ("path in a query", b"/x?/../ads/top"),
        ("path, a fragment", b"/ads/top#x"),
        ("path in a fragment", b"/x#/../ads/top"),
        ("path, an encoded question mark", b"/ads/top%3fx"),
        ("path, an encoded hash", b"/ads/top%23x"),
        ("path, an encoded NUL", b"/ads/top%00"),
        ("path, NUL", b"/ads/top\0"),
        ("path, encoded twice", b"/%2561ds/top"),
        ("path, upper case", b"/ADS/TOP"),
        ("path, overlong UTF-8", b"/%c1%a1ds/top"),
        ("path, a letter encoded", b"/ads/%74op"),
        ("path, a wrong encoding", b"/ads/%zz"),
        ("path behind a long segment", &long),
        ("path behind many segments", deep.as_bytes()),
        ("path, a slash behind", b"/ads/top/"),
        ("path, an encoded space", b"/ads/top%20"),
        ("path, a plus", b"/ads/+top"),
        ("path, absolute", b"http://site.example/ads/top"),
        ("path, absolute, two slashes", b"http://site.example//ads/top"),
        ("path, absolute, dots", b"http://site.example/../ads/top"),
        ("path without a slash", b"ads/top"),
    ];
    let line = |path: &[u8]| [b"GET ", path, b" HTTP/1.1"].concat();
    paths.into_iter().map(|(name, path)| (name, request(&line(path), b"Host: site.example\r\n"))).collect()
}
