//! Markers equal the definitions of the methods.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn marks(method: Method, period: usize, scan: Scan, block: &[u8]) -> Marks {
    let period = Period::new(period).expect("a period that can be");
    let sampling = Sampling { method, period, ..Sampling::default() };
    let mut marks = Marks::default();
    Fingerprinter::new(sampling, 42).with_scan(scan).mark(block, &mut marks);
    marks
}

/// Typical blocks: random, of few different bytes, with runs.
fn blocks() -> impl Strategy<Value = Vec<u8>> {
    let few = prop::collection::vec(prop::sample::select(b"aes \0xyz01".to_vec()), 0..600);
    let runs = prop::collection::vec((any::<u8>(), 1..80_usize), 0..20)
        .prop_map(|runs| runs.into_iter().flat_map(|(byte, length)| vec![byte; length]).collect());
    prop_oneof![prop::collection::vec(any::<u8>(), 0..1600), few, runs]
}

proptest! {
    #[test]
    fn every_instruction_set_finds_the_markers_of_the_bytewise_definition(
        block in blocks(),
        power in 2..11_u32,
        window in 12..65_usize,
        table in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let sampling = Sampling {
            period: Period::new(1 << power).expect("a period that can be"),
            window: Window::new(window).expect("a window that can be"),
            table: SampleTable::of(&table),
            ..Sampling::default()
        };
        let fingerprinter = Fingerprinter::new(sampling, 1);
        let [mut one_by_one, mut vectors] = [Marks::default(), Marks::default()];
        fingerprinter.clone().with_scan(Scan::PORTABLE).mark(&block, &mut one_by_one);
        for scan in Scan::all() {
            fingerprinter.clone().with_scan(scan).mark(&block, &mut vectors);
            prop_assert_eq!(one_by_one.offsets(), vectors.offsets(), "{}", scan.name());
            prop_assert_eq!(one_by_one.fingerprints(), vectors.fingerprints(), "{}", scan.name());
        }
    }

    #[test]
    fn markers_ascend_and_their_windows_lie_within_the_block(block in blocks(), power in 2..11_u32) {
        for method in Method::ALL {
            let marks = marks(method, 1 << power, Scan::detect(), &block);
            prop_assert_eq!(marks.offsets().is_empty(), block.len() < 32);
            prop_assert_eq!(marks.offsets().len(), marks.fingerprints().len());
            prop_assert!(marks.offsets().is_sorted_by(|one, next| one < next));
            prop_assert!(marks.offsets().iter().all(|offset| *offset as usize + 32 <= block.len()));
        }
    }

    #[test]
    fn a_maximum_is_one(block in prop::collection::vec(any::<u8>(), 200..800)) {
        let marks = marks(Method::Maxp, 32, Scan::PORTABLE, &block);
        let candidates = &block[..=block.len() - 32];
        for offset in marks.offsets().iter().map(|offset| *offset as usize) {
            let around = &candidates[offset.saturating_sub(16)..candidates.len().min(offset + 17)];
            prop_assert!(around.iter().all(|byte| *byte <= candidates[offset]), "at {}", offset);
        }
        prop_assert!(marks.offsets().windows(2).all(|pair| pair[1] - pair[0] > 16));
        prop_assert!(!marks.offsets().is_empty());
    }
}

/// Bytes without any pattern.
fn random_bytes(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    core::iter::repeat_with(next).take(length).collect()
}

#[test]
fn about_one_position_in_p_is_a_marker() {
    let block = random_bytes(60_000);
    for (method, least, most) in [
        (Method::Modp, 0.8, 1.2),
        (Method::Maxp, 0.8, 1.2),
        (Method::Fixed, 0.99, 1.01),
        (Method::SampleByte, 0.5, 1.0),
    ] {
        let share = marks(method, 32, Scan::detect(), &block).offsets().len() as f64 * 32.0 / 60_000.0;
        assert!(share >= least && share <= most, "{}: {share}", method.name());
    }
}

#[test]
fn markers_depend_on_content_and_not_on_position_except_for_fixed() {
    let block = random_bytes(4000);
    let mut shifted = vec![0x77; 13];
    shifted.extend_from_slice(&block);
    for method in Method::ALL {
        let [here, there] = [&block, &shifted].map(|block| marks(method, 32, Scan::detect(), block));
        let common = here.fingerprints().iter().filter(|of| there.fingerprints().contains(of)).count();
        let share = common as f64 / here.fingerprints().len() as f64;
        assert_eq!(share > 0.9, method != Method::Fixed, "{}: {share}", method.name());
    }
}

#[test]
fn local_methods_do_not_oversample_a_run_of_one_byte() {
    let zeros = vec![0; 3200];
    for (method, most) in [(Method::Maxp, 190), (Method::SampleByte, 190), (Method::Fixed, 100)] {
        let found = marks(method, 32, Scan::detect(), &zeros).offsets().len();
        assert!(found <= most && found > 50, "{}: {found}", method.name());
    }
}

#[test]
fn invalid_samplings_are_refused() {
    assert_eq!(Period::new(48), Err(SamplingError::Period(48)));
    assert_eq!(Period::new(2048), Err(SamplingError::Period(2048)));
    assert_eq!(Window::new(8), Err(SamplingError::Window(8)));
    assert_eq!(Window::new(64).map(Window::bytes), Ok(64));
}
