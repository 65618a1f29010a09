//! Measures how long a batch takes: `cargo run --release -p placement --example placement_time`.

use std::time::{Duration, Instant};

use flow::random::mix;
use flow::{NodeId, NodeSet};
use placement::{BATCH_MAX, ExpectedChurn, Item, Placer};
use state_service::prediction::{FailureModel, Prediction, Sampled, Stages};

fn main() {
    println!("nodes failures stages  landings  median ms  longest ms  unsolved  churn max/mean");
    for (count, failures, stages) in
        [(4, 2, Stages::Two), (16, 3, Stages::Two), (64, 3, Stages::Two), (64, 3, Stages::One), (64, 8, Stages::Two)]
    {
        let nodes: NodeSet = (0..count).map(NodeId).collect();
        let items = items(nodes, failures, stages);
        let landings = items.iter().map(|item| item.landings.len()).max().unwrap_or_default();
        let (mut placer, mut times, mut placed) = (Placer::new(NodeId(0), failures), Vec::new(), Vec::new());
        for batch in items.chunks(BATCH_MAX) {
            let began = Instant::now();
            placed.extend(placer.place(batch, nodes));
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let churn = ExpectedChurn::of(&items, &placed);
        println!(
            "{count:>5} {failures:>8} {stages:?}  {landings:>8}  {:>9.2}  {:>10.2}  {:>8}  {:.2}",
            millis(times[times.len() / 2]),
            millis(times[times.len() - 1]),
            placer.unsolved(),
            churn.max_bytes * f64::from(count) / churn.total_bytes,
        );
    }
}

/// Connections of a switch that selects by remainders, owned by all nodes.
fn items(nodes: NodeSet, failures: usize, stages: Stages) -> Vec<Item> {
    let model = FailureModel::uniform(0.01, failures).expect("in range");
    let mut sampled = Sampled::new(nodes, stages, 1);
    let mut item = |hash: u64| {
        for group in 0..=failures as u8 {
            let rank = mix(hash ^ u64::from(group > 0)) % u64::from(nodes.len() as u8 - group);
            sampled.handle_answer(hash, group, rank as u8).expect("a rank of the group");
        }
        let owner = sampled.node(hash, NodeSet::EMPTY).expect("it was asked");
        Item { hash, owner, size_bytes: 256, landings: sampled.landings(hash, &model) }
    };
    (0..64 * BATCH_MAX as u64).map(|number| item(mix(number))).collect()
}
