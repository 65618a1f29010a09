//! Random loss inside the kernel: a socket filter that drops received datagrams at random.

/// A filter's result that keeps a whole packet: more than any packet's length.
const KEEP_ALL: u32 = u32::MAX;

const fn instruction(code: u32, jump_true: u8, jump_false: u8, operand: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump_true, jf: jump_false, k: operand }
}

/// The classic BPF program that drops the given share: it loads a random number of 32 bits (the ancillary word
/// `SKF_AD_RANDOM`) and keeps the datagram when the number is not below the threshold.
pub(super) fn program(probability: f64) -> Vec<libc::sock_filter> {
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // A float as integer saturates: 1 or more would leave a chance of 2^-32, hence the special case.
    let threshold = (probability * 4_294_967_296.0) as u32;
    if probability >= 1.0 {
        return vec![instruction(RETURN, 0, 0, 0)];
    }
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM).cast_unsigned();
    vec![
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, random),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, threshold),
        instruction(RETURN, 0, 0, KEEP_ALL),
        instruction(RETURN, 0, 0, 0),
    ]
}
