//! Namespaces, and code inside them.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use super::*;
use crate::netlink::Netlink;

/// Whether tests that need namespaces can run; prints a message when not.
fn available() -> bool {
    let support = probe();
    if support != NamespaceSupport::Available {
        crate::namespace::skip(format_args!("{support:?}"));
    }
    support == NamespaceSupport::Available
}

#[test]
fn a_new_namespace_has_a_working_loopback() {
    if !available() {
        return;
    }
    let (one, other) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let names = one.run(|| Netlink::open().unwrap().interfaces().unwrap()).unwrap();
    assert_eq!(names.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>(), ["lo"]);
    assert!(names[0].up);

    let listener = one.run(|| TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    one.run(|| TcpStream::connect(address).unwrap()).unwrap();
    let refused = other.run(|| TcpStream::connect(address).unwrap_err()).unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn the_caller_stays_where_it_is() {
    if !available() {
        return;
    }
    let link = || std::fs::read_link(THREAD_NAMESPACE).unwrap();
    let before = link();
    let namespace = Namespace::new().unwrap();
    let inside = namespace.run(link).unwrap();
    assert_ne!(inside, before);
    assert_eq!(link(), before);
}

#[test]
fn a_command_starts_inside() {
    if !available() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let mut command = Command::new("readlink");
    command.arg("/proc/self/ns/net").stdout(Stdio::piped());
    let output = namespace.spawn_command(command).unwrap().wait_with_output().unwrap();
    let inside = namespace.run(|| std::fs::read_link(THREAD_NAMESPACE).unwrap()).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), inside.to_str().unwrap());
}

#[test]
fn a_panic_inside_is_propagated() {
    if !available() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let panic = std::panic::catch_unwind(|| namespace.run(|| panic!("inside"))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"inside"));
}

#[test]
fn a_process_with_threads_gets_an_error() {
    // The test harness runs threads, so this must fail on any machine.
    let error = enter_user_namespace().unwrap_err();
    assert!(matches!(error, IoError::NamespacesForbidden(_)), "{error}");
}

#[test]
fn a_child_opens_a_namespace_that_was_passed_to_it() {
    if !available() {
        return;
    }
    let namespace = Namespace::new().unwrap();
    let mut command = Command::new("readlink");
    let path = namespace.pass_to(&mut command);
    let child = command.arg(&path).stdout(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    // The kernel identifies a namespace by its number.
    let here = std::fs::read_link(&path).unwrap();
    assert!(here.to_string_lossy().starts_with("net:["), "{here:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), here.to_string_lossy());

    namespace.run(|| Netlink::open().unwrap().create_bridge("marker").unwrap()).unwrap();
    let same = Namespace::open(&path).unwrap();
    same.run(|| Netlink::open().unwrap().interface("marker").unwrap()).unwrap();
    let missing = Namespace::open(Path::new("/run/netns/no-such-namespace")).unwrap_err().to_string();
    assert!(missing.contains("/run/netns/no-such-namespace"), "{missing}");
}
