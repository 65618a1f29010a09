//! Forms of a ClientHello of TLS 1.2, whose answer has the certificate of the host in the clear.

use network_functions::inspect::tls::in_records;

use super::Form;

const BLOCKED: &str = "blocked.example";
const SERVER_NAME: u16 = 0;
const PADDING: u16 = 21;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const GREASE: u16 = 0x0a0a;
const RECORD_BYTES_MAX: usize = 1 << 14;

/// An extension that has a list of server names, each with its type.
fn names(names: &[(&[u8], u8)]) -> (u16, Vec<u8>) {
    let entry = |(name, kind): &(&[u8], u8)| [&[*kind][..], &(name.len() as u16).to_be_bytes(), name].concat();
    let list: Vec<u8> = names.iter().flat_map(entry).collect();
    (SERVER_NAME, [&(list.len() as u16).to_be_bytes()[..], &list].concat())
}

fn name(text: &str) -> (u16, Vec<u8>) {
    names(&[(text.as_bytes(), 0)])
}

/// A ClientHello message with what a server needs for an answer, and these extensions in front.
fn message(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let ours =
        [(10, vec![0, 4, 0, 29, 0, 23]), (11, vec![1, 0]), (13, vec![0, 8, 4, 3, 5, 3, 8, 4, 4, 1]), (0xff01, vec![0])];
    let list: Vec<u8> = extensions
        .iter()
        .chain(&ours)
        .flat_map(|(kind, value)| [&kind.to_be_bytes()[..], &(value.len() as u16).to_be_bytes(), value].concat())
        .collect();
    let suites = [0x0a0a_u16, 0xc02b, 0xc02c, 0xcca9, 0xc02f].map(u16::to_be_bytes).concat();
    let body = [
        &[3, 3][..],
        &[0x5a; 32],
        &[0],
        &(suites.len() as u16).to_be_bytes(),
        &suites,
        &[1, 0],
        &(list.len() as u16).to_be_bytes(),
        &list,
    ]
    .concat();
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&[1][..], &length, &body].concat()
}

/// A ClientHello in one record with these names, each with its type.
pub(super) fn hello(list: &[(&str, u8)]) -> Vec<u8> {
    let list: Vec<(&[u8], u8)> = list.iter().map(|(name, kind)| (name.as_bytes(), *kind)).collect();
    in_records(&message(&[names(&list)]), RECORD_BYTES_MAX)
}

/// The forms, each in segments.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    let mut add = |name, segments: Vec<Vec<u8>>| forms.push(Form { name, segments });
    let plain = message(&[name(BLOCKED)]);
    let record = in_records(&plain, RECORD_BYTES_MAX);
    let with = |extensions: &[(u16, Vec<u8>)]| vec![in_records(&message(extensions), RECORD_BYTES_MAX)];
    add("plain", vec![record.clone()]);
    for (what, text) in [
        ("upper case", "BLOCKED.EXAMPLE"),
        ("mixed case", "BlOcKeD.example"),
        ("a final dot", "blocked.example."),
        ("two final dots", "blocked.example.."),
        ("a port", "blocked.example:443"),
        ("an empty port", "blocked.example:"),
        ("a port and a final dot", "blocked.example.:443"),
        ("user information", "u@blocked.example"),
        ("a space behind", "blocked.example "),
        ("a space before", " blocked.example"),
        ("a slash", "blocked.example/"),
        ("a NUL", "blocked.example\0"),
        ("a NUL and another name", "blocked.example\0.allowed.example"),
        ("a leading dot", ".blocked.example"),
        ("brackets", "[blocked.example]"),
        ("a line end", "blocked.example\r\n"),
    ] {
        add(what, with(&[name(text)]));
    }
    add("another kind of name first", vec![hello(&[("x", 1), (BLOCKED, 0)])]);
    add("two names", vec![hello(&[("allowed.example", 0), (BLOCKED, 0)])]);
    add("two names, the blocked one first", vec![hello(&[(BLOCKED, 0), ("allowed.example", 0)])]);
    add("two extensions", with(&[name("allowed.example"), name(BLOCKED)]));
    add("two extensions, the blocked one first", with(&[name(BLOCKED), name("allowed.example")]));
    add("an empty extension first", with(&[(SERVER_NAME, Vec::new()), name(BLOCKED)]));
    let mut longer = name(BLOCKED);
    longer.1.extend([0; 3]);
    add("bytes behind the list", with(&[longer]));
    add("records of one byte", vec![in_records(&plain, 1)]);
    add("records of seven bytes", vec![in_records(&plain, 7)]);
    add("two records, the name in both", vec![in_records(&plain, 65)]);
    add("segments of one byte", record.iter().map(|byte| vec![*byte]).collect());
    add("two segments", record.chunks(70).map(<[u8]>::to_vec).collect());
    add("records and segments", in_records(&plain, 20).chunks(9).map(<[u8]>::to_vec).collect());
    add("GREASE", with(&[(GREASE, vec![0]), (0x1a1a, Vec::new()), name(BLOCKED)]));
    let outer = [&[0, 0, 1, 0, 1, 7, 0, 32][..], &[9; 32], &[0, 64], &[8; 64]].concat();
    add("an encrypted ClientHello", with(&[(ENCRYPTED_CLIENT_HELLO, outer), name(BLOCKED)]));
    for (what, bytes) in
        [("padding", 500), ("7 kB of padding", 7000), ("9 kB of padding", 9000), ("15 kB of padding", 15_000)]
    {
        add(what, with(&[(PADDING, vec![0; bytes]), name(BLOCKED)]));
    }
    let unknown: Vec<_> = (0..200).map(|number| (0x5000 + number, Vec::new())).chain([name(BLOCKED)]).collect();
    add("200 extensions", with(&unknown));
    let padded = message(&[(PADDING, vec![0; 20_000]), name(BLOCKED)]);
    add("20 kB of padding in records", vec![in_records(&padded, 4000)]);
    let (first, second) = plain.split_at(40);
    let [first, second] = [first, second].map(|part| in_records(part, RECORD_BYTES_MAX));
    let (warning, empty, change) = ([21, 3, 1, 0, 2, 1, 90], [22, 3, 1, 0, 0], [20, 3, 3, 0, 1, 1]);
    add("an alert first", vec![[&warning[..], &record].concat()]);
    add("an alert inside", vec![[&first[..], &warning, &second].concat()]);
    add("an empty record first", vec![[&empty[..], &record].concat()]);
    add("an empty record inside", vec![[&first[..], &empty, &second].concat()]);
    add("a change of ciphers first", vec![[&change[..], &record].concat()]);
    add("a change of ciphers inside", vec![[&first[..], &change, &second].concat()]);
    add("an empty record of data first", vec![[&[23, 3, 3, 0, 0][..], &record].concat()]);
    add("a line end first", vec![[b"\r\n", &record[..]].concat()]);
    for (what, version) in [("version 3.0", 0), ("version 3.3", 3), ("version 3.4", 4), ("version 3.9", 9)] {
        let mut bytes = record.clone();
        bytes[2] = version;
        add(what, vec![bytes]);
    }
    let mut bytes = record.clone();
    bytes[1] = 2;
    add("version 2", vec![bytes]);
    let request = [&[0, 0, 0, 0][..], &plain].concat();
    add("a HelloRequest first", vec![in_records(&request, RECORD_BYTES_MAX)]);
    forms
}
