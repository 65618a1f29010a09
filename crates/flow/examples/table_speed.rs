//! The speed of the connection table, beside a `hashbrown` map.
//!
//! ```text
//! cargo run --release -p flow --example table_speed -- [connections]
//! GLIBC_TUNABLES=glibc.malloc.hugetlb=1 cargo run --release -p flow --example table_speed    # with huge pages
//! ```
//!
//! Every lookup is for another connection, in random order; hashes are computed beforehand, as at parsing. Each figure
//! is the least and the median of several passes over all connections.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use flow::conntrack::ProtocolState;
use flow::table::{Slot, Table};
use flow::{BATCH_FRAMES_MAX, Connection, Direction, HashKey, Instant, NodeId, Tuple};

const PASSES: usize = 7;

fn main() {
    let connections =
        env::args().nth(1).map_or(1_000_000, |argument| argument.parse().expect("a number of connections"));
    println!("{connections} connections, {} bytes a record", size_of::<Connection>());
    for nat in [false, true] {
        println!("\n{}", if nat { "each translated (two index entries)" } else { "none translated (one index entry)" });
        measure(connections, nat);
    }
    println!("\nhashbrown, tuple -> slot beside an array of records, both directions entered");
    measure_hashbrown(connections);
}

fn key() -> HashKey {
    HashKey([RandomState::new().build_hasher().finish(), RandomState::new().build_hasher().finish()])
}

/// A small generator (xorshift64*), good enough for a random order.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) * u64::from(bound)) >> 32) as u32
    }
}

fn ipv4(address: u32) -> [u8; 16] {
    (0xffff_0000_0000 | u128::from(address)).to_be_bytes()
}

fn connection(number: u32, nat: bool) -> Connection {
    let original = Tuple {
        source: ipv4(0x0a00_0000 + number / 50_000),
        destination: ipv4(0xc000_0200 + number % 7),
        source_port: (number % 50_000) as u16,
        destination_port: 443,
        protocol: 6,
        version: 4,
        discriminator: 0,
    };
    let expires_at = Instant::from_millis(1 + u64::from(number) % 400_000);
    let mut connection = Connection::new(original, NodeId(0), ProtocolState::default(), expires_at);
    if nat {
        connection.reply.destination = ipv4(0xcb00_7100 + number / 50_000);
    }
    connection
}

/// Prints the least and the median duration of one of the `operations` of `pass`.
fn report(what: &str, operations: u32, mut pass: impl FnMut() -> Duration) {
    let mut nanos: Vec<_> = (0..PASSES).map(|_| pass().as_nanos() as f64 / f64::from(operations)).collect();
    nanos.sort_by(f64::total_cmp);
    println!("  {what:<44} {:>7.1} {:>7.1} ns", nanos[0], nanos[PASSES / 2]);
}

fn measure(connections: u32, nat: bool) {
    let mut table = Table::new(connections, key());
    println!("  memory {:.1} bytes a connection", table.memory_bytes() as f64 / f64::from(connections));
    for number in 0..connections {
        table.insert(connection(number, nat), Instant::ZERO).expect("room");
    }
    let mut random = Random(88_172_645_463_325_252);
    for (what, batch) in [("batch of 32", 32), ("batch of 64", BATCH_FRAMES_MAX)] {
        report(&format!("lookup, {what}"), connections, || {
            lookups(&mut table, connections, nat, batch, &mut random, |_, _| {})
        });
    }
    report("lookup, batch of 32, all four lines written", connections, || {
        lookups(&mut table, connections, nat, 32, &mut random, |table, slot| {
            let connection = table.get_mut(slot).expect("found");
            connection.packets[0] += 1;
            connection.bytes[0] += 100;
            connection.protocol.last_sequence += 1;
            connection.functions[0] += 1;
        })
    });
    report("lookup, one at a time", connections, || lookups(&mut table, connections, nat, 1, &mut random, |_, _| {}));
    report("lookup of what is not there, batch of 32", connections, || absent(&table, connections, &mut random));
    report("remove and insert", connections, || churn(&mut table, connections, nat, &mut random));
    report("hash", connections, || {
        let tuple = connection(1, nat).original;
        let start = Clock::now();
        for port in 0..connections {
            black_box(table.hash(black_box(&Tuple { source_port: port as u16, ..tuple })));
        }
        start.elapsed()
    });
}

/// The time to look up as many connections as the table holds, `batch` at a time; `then` is timed with it.
fn lookups(
    table: &mut Table,
    connections: u32,
    nat: bool,
    batch: usize,
    random: &mut Random,
    then: impl Fn(&mut Table, Slot),
) -> Duration {
    let mut total = Duration::ZERO;
    let mut found = [None; BATCH_FRAMES_MAX];
    let mut wanted = Vec::with_capacity(BATCH_FRAMES_MAX);
    // Batches of one are timed 32 together, so that the clock has no greater weight.
    let group = batch.max(32);
    for _ in 0..connections as usize / group {
        wanted.clear();
        wanted.extend((0..group).map(|_| {
            let connection = connection(random.below(connections), nat);
            let tuple = if random.below(2) == 0 { connection.original } else { connection.reply };
            (table.hash(&tuple), tuple)
        }));
        let start = Clock::now();
        if batch > 1 {
            prefetch(table, &wanted);
        }
        for ((hash, tuple), found) in wanted.iter().zip(&mut found) {
            *found = table.lookup(*hash, tuple);
        }
        for found in &found[..group] {
            let (slot, _) = found.expect("every connection is there");
            then(table, slot);
        }
        total += start.elapsed();
        black_box(&found);
    }
    total
}

/// Prefetches all that a batch of lookups needs.
fn prefetch(table: &Table, wanted: &[(u64, Tuple)]) {
    wanted.iter().for_each(|(hash, _)| table.prefetch_index(*hash));
    for (hash, _) in wanted {
        black_box(table.prefetch_record(*hash));
    }
}

/// As [`lookups`], of tuples without a connection.
fn absent(table: &Table, connections: u32, random: &mut Random) -> Duration {
    let mut total = Duration::ZERO;
    let mut found: [Option<(Slot, Direction)>; 32] = [None; 32];
    for _ in 0..connections / 32 {
        let wanted: [_; 32] = std::array::from_fn(|_| {
            let tuple = Tuple { protocol: 17, ..connection(random.below(connections), false).original };
            (table.hash(&tuple), tuple)
        });
        let start = Clock::now();
        prefetch(table, &wanted);
        for ((hash, tuple), found) in wanted.iter().zip(&mut found) {
            *found = table.lookup(*hash, tuple);
        }
        total += start.elapsed();
        assert_eq!(found, [None; 32]);
    }
    total
}

/// The time to remove and insert as many connections as the table holds.
fn churn(table: &mut Table, connections: u32, nat: bool, random: &mut Random) -> Duration {
    let start = Clock::now();
    for _ in 0..connections {
        let connection = connection(random.below(connections), nat);
        let (slot, _) = table.lookup(table.hash(&connection.original), &connection.original).expect("there");
        table.remove(slot).expect("found");
        table.insert(connection, Instant::ZERO).expect("room");
    }
    start.elapsed()
}

fn measure_hashbrown(connections: u32) {
    let mut map: hashbrown::HashMap<Tuple, u32> = hashbrown::HashMap::with_capacity(2 * connections as usize);
    let mut records = Vec::with_capacity(connections as usize);
    for number in 0..connections {
        let connection = connection(number, false);
        map.insert(connection.original, number);
        map.insert(connection.reply, number);
        records.push(connection);
    }
    let mut random = Random(88_172_645_463_325_252);
    report("lookup, one at a time, record read", connections, || {
        let mut total = Duration::ZERO;
        for _ in 0..connections / 32 {
            let wanted: [_; 32] = std::array::from_fn(|_| connection(random.below(connections), false).original);
            let start = Clock::now();
            for tuple in &wanted {
                black_box(records[map[tuple] as usize].packets);
            }
            total += start.elapsed();
        }
        total
    });
    report("remove and insert, both directions", connections, || {
        let start = Clock::now();
        for _ in 0..connections {
            let connection = connection(random.below(connections), false);
            let slot = map.remove(&connection.original).expect("there");
            map.remove(&connection.reply).expect("there");
            map.insert(connection.original, slot);
            map.insert(connection.reply, slot);
            records[slot as usize] = connection;
        }
        start.elapsed()
    });
}
