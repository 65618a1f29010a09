//! Traffic with redundancy in it, the same in every run.

use simulator::random::Random;

/// So far back redundant bytes come from at most: less than the smallest cache measured by default.
const BACK_BYTES_MAX: u64 = 6 << 20;
/// A run of redundant bytes, or of fresh ones.
const RUN_BYTES: [u64; 2] = [150, 4000];

/// Half of the bytes were there before, in runs from a tenth of a packet to several packets; the others are random.
pub(in crate::bench) fn half_redundant(length: usize) -> Vec<u8> {
    let mut random = Random::new(1);
    let mut traffic = Vec::with_capacity(length + RUN_BYTES[1] as usize);
    while traffic.len() < length {
        let run = random.between(RUN_BYTES[0], RUN_BYTES[1]) as usize;
        if traffic.len() > 2 * run && random.chance(500) {
            let back = random.between(run as u64, BACK_BYTES_MAX.min(traffic.len() as u64)) as usize;
            let start = traffic.len() - back;
            traffic.extend_from_within(start..start + run);
        } else {
            let words = core::iter::repeat_with(|| random.next().to_le_bytes()).flatten();
            traffic.extend(words.take(run));
        }
    }
    traffic.truncate(length);
    traffic
}

/// Sentences that pages are made of.
const SENTENCES: u64 = 6000;
/// Words that sentences are made of.
const WORDS: u64 = 4000;

/// Pages of sentences, some sentences often and most seldom, with numbers between them that are always new.
pub(super) fn pages(length: usize) -> Vec<u8> {
    let mut random = Random::new(2);
    let words: Vec<Vec<u8>> = (0..WORDS).map(|_| word(&mut random)).collect();
    let sentences: Vec<Vec<u8>> = (0..SENTENCES).map(|_| sentence(&mut random, &words)).collect();
    let mut traffic = Vec::with_capacity(length + 1000);
    while traffic.len() < length {
        if random.chance(400) {
            // Something that was never said.
            traffic.extend(sentence(&mut random, &words));
        } else {
            // The lower the number the likelier, about as Zipf has it.
            let of = random.between(1, SENTENCES);
            let number = random.next() % of;
            traffic.extend_from_slice(&sentences[number as usize]);
        }
        let number = format!("<{:x}>\n", random.next() >> random.between(0, 40));
        traffic.extend_from_slice(number.as_bytes());
    }
    traffic.truncate(length);
    traffic
}

fn word(random: &mut Random) -> Vec<u8> {
    const CHARACTERS: &[u8] = b"etaoinshrdlucmfwypvbgkjqxz";
    let character = |random: &mut Random| CHARACTERS[(random.next() % 26).min(random.next() % 26) as usize];
    (0..random.between(2, 10)).map(|_| character(random)).collect()
}

fn sentence(random: &mut Random, words: &[Vec<u8>]) -> Vec<u8> {
    let mut sentence = Vec::new();
    for _ in 0..random.between(6, 60) {
        let number = (random.next() % WORDS).min(random.next() % WORDS);
        sentence.extend_from_slice(&words[number as usize]);
        sentence.push(b' ');
    }
    sentence
}
