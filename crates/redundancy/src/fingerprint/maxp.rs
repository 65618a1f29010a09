//! MAXP: local maxima of the bytes themselves.

use super::Marks;

/// Marks the positions of `candidates` whose byte is the greatest of the p bytes around it. Of equal bytes less than
/// half a period apart the first counts. So in a run of one byte markers have the usual distance, and there is at least
/// one.
pub(super) fn mark(candidates: &[u8], period_bytes: usize, marks: &mut Marks) {
    let radius = (period_bytes / 2).min(candidates.len().saturating_sub(1));
    let Marks { offsets, scratch: flags, maxima, .. } = marks;
    if radius == 0 {
        offsets.extend(0..candidates.len() as u32);
        return;
    }
    window_maxima(candidates, radius, maxima);
    flag(candidates, maxima, radius, flags);
    let mut next = 0;
    let (words, _) = flags.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let mut word = u64::from_le_bytes(*word);
        while word != 0 {
            let offset = index * 8 + word.trailing_zeros() as usize / 8;
            word &= word - 1;
            if offset >= next {
                offsets.push(offset as u32);
                next = offset + radius + 1;
            }
        }
    }
}

/// `maxima[i]` becomes the greatest of the `span` bytes from i on, with zeros beyond the end; by doubling.
fn window_maxima(bytes: &[u8], span: usize, maxima: &mut alloc::vec::Vec<u8>) {
    maxima.clear();
    maxima.extend_from_slice(bytes);
    let mut reach = 1;
    while reach < span {
        // The last step may overlap, which does not change a maximum.
        let step = reach.min(span - reach);
        raise(maxima, step);
        reach += step;
    }
}

/// Replaces each byte by the greater of itself and the one `step` further on. It works in place, a stretch at a time,
/// and reads only unchanged bytes.
fn raise(maxima: &mut [u8], step: usize) {
    const STRETCH_BYTES: usize = 64;
    let end = maxima.len().saturating_sub(step);
    let mut at = 0;
    while at + STRETCH_BYTES <= end {
        let later: [u8; STRETCH_BYTES] =
            maxima[at + step..at + step + STRETCH_BYTES].try_into().expect("it is cut to a stretch");
        let own = &mut maxima[at..at + STRETCH_BYTES];
        own.iter_mut().zip(later).for_each(|(own, later)| *own = (*own).max(later));
        at += STRETCH_BYTES;
    }
    for at in at..end {
        maxima[at] = maxima[at].max(maxima[at + step]);
    }
}

/// One for each byte that no byte within `radius` exceeds. Padded to a multiple of eight.
fn flag(bytes: &[u8], maxima: &[u8], radius: usize, flags: &mut alloc::vec::Vec<u8>) {
    let length = bytes.len();
    flags.clear();
    flags.resize(length.next_multiple_of(8), 0);
    // Before: the window that ends with this byte's predecessor begins `radius` before it. After: the next byte's window.
    let mut before = 0;
    for at in 0..radius.min(length) {
        let after = maxima.get(at + 1).copied().unwrap_or(0);
        flags[at] = u8::from(bytes[at] >= before.max(after));
        before = before.max(bytes[at]);
    }
    if length > radius {
        let middle = length - 1;
        let own = &bytes[radius..middle];
        let before = &maxima[..middle - radius];
        let after = &maxima[radius + 1..];
        let flags = &mut flags[radius..middle];
        for (((flag, own), before), after) in flags.iter_mut().zip(own).zip(before).zip(after) {
            *flag = u8::from(*own >= (*before).max(*after));
        }
    }
    if length > radius {
        let last = length - 1;
        flags[last] = u8::from(bytes[last] >= maxima[last - radius]);
    }
}
