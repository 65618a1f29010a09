//! An ordinary user creates a network, opens packet sockets in it and receives its connection events, through a user
//! namespace.
//!
//! It runs without the test harness, whose threads would prevent entering a user namespace: the program restarts itself
//! as an ordinary user.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use flow::PortId;
use flow::netfilter::{Discriminator, Entry, Tuple};
use packet_io::af_packet::{AfPacketIo, PortConfig};
use packet_io::ctnetlink::{self, Cause, Event, EventOptions, EventSocket, Lack, Request, TableSocket};
use packet_io::namespace::{Namespace, NamespaceSupport, enter_user_namespace, probe};
use packet_io::netlink::Netlink;
use packet_io::{IoError, PacketIo};

/// The argument that marks the second start.
const AS_ORDINARY_USER: &str = "as-ordinary-user";
/// The user and group "nobody" of every distribution.
const NOBODY: u32 = 65_534;
/// The time limit for a frame over a new cable.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

fn as_ordinary_user() {
    if let NamespaceSupport::Forbidden(reason) = probe() {
        packet_io::namespace::skip(format_args!("{reason}"));
        return;
    }
    assert_eq!(probe(), NamespaceSupport::AfterUserNamespace);
    assert!(Namespace::new().unwrap_err().to_string().contains("CAP_SYS_ADMIN"));
    assert!(ctnetlink::support().lacks.contains(&Lack::Permission));
    let refused = EventSocket::open(&EventOptions::default()).unwrap_err();
    assert!(matches!(refused, IoError::NotPermitted { .. }), "{refused}");
    enter_user_namespace().unwrap();
    assert_eq!(probe(), NamespaceSupport::Available);

    let (here, there) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    here.run(receive_an_event).unwrap();
    let bring_up = |name: &'static str| move || Netlink::open().unwrap().set_up(name, true).unwrap();
    here.run(|| Netlink::open().unwrap().create_veth("left", "right", &there).unwrap()).unwrap();
    here.run(bring_up("left")).unwrap();
    there.run(bring_up("right")).unwrap();
    let open = |name: &'static str| move || AfPacketIo::open(&[PortConfig::new(name)]).unwrap();
    let mut left = here.run(open("left")).unwrap();
    let mut right = there.run(open("right")).unwrap();

    let mut sent = [0xff; 60];
    let mut found = false;
    let deadline = Instant::now() + WAIT_LIMIT;
    // The kernel activates a new cable a moment after both ends are up and silently drops earlier frames: so the frame
    // is sent until it arrives.
    while !found && Instant::now() < deadline {
        left.transmit(PortId(0), &flow::Frame::new(&mut sent, 0, 60, PortId(0)).unwrap()).unwrap();
        right
            .poll(&mut |batch| {
                for frame_in in batch {
                    found |= frame_in.bytes() == sent;
                    frame_in.disposition = flow::Disposition::Consumed;
                }
            })
            .unwrap();
        std::thread::yield_now();
    }
    assert!(found, "{:?}", right.counters(PortId(0)));
}

/// Connection tracking belongs to the creator of the namespace.
fn receive_an_event() {
    let mut events = EventSocket::open(&EventOptions::default()).unwrap();
    let discriminator = Discriminator::Ports { source: 1, destination: 53 };
    let (source, destination) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let original = Tuple { source, destination, protocol: 17, discriminator };
    let entry = Entry { timeout_s: Some(100), ..Entry::new(original, original.inverse()) };
    let mut table = TableSocket::open().unwrap();
    table.execute([Request::Create(&entry)], &mut |_, error| panic!("{error}")).unwrap();
    let mut events_received = Vec::new();
    events.receive(10, &mut |cause, event| events_received.push((cause, event))).unwrap();
    assert!(
        matches!(&events_received[..], [(Cause::Program(port), Event::Began(entry))] if *port == table.port() && entry.original == original),
        "{events_received:?}"
    );
    assert!(!ctnetlink::support().lacks.iter().any(Lack::is_fatal));
}

fn main() {
    if std::env::args().any(|argument| argument == AS_ORDINARY_USER) {
        return as_ordinary_user();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(AS_ORDINARY_USER).uid(NOBODY).gid(NOBODY);
    match command.status() {
        Ok(status) => assert!(status.success(), "the ordinary user's part failed: {status}"),
        Err(error) => packet_io::namespace::skip(format_args!("cannot start as another user: {error}")),
    }
}
