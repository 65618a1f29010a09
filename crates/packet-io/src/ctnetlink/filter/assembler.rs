//! Classic BPF programs, written with jumps to labels.

/// The maximum length of a program (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// A filter's result that keeps a whole message.
const KEEP_ALL: u32 = u32::MAX;

/// A jump target, whose position is set later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label(usize);

/// A program under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<libc::sock_filter>,
    /// Where each label is.
    places: Vec<Option<usize>>,
    /// Jumps, and the labels that they lead to.
    jumps: Vec<(usize, Label)>,
}

const fn instruction(code: u32, jump_true: u8, jump_false: u8, operand: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jump_true, jf: jump_false, k: operand }
}

impl Assembler {
    fn push(&mut self, code: u32, operand: u32) {
        self.instructions.push(instruction(code, 0, 0, operand));
    }

    /// The number of instructions.
    pub(super) fn len(&self) -> usize {
        self.instructions.len()
    }

    /// A new label.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub(super) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    /// A := operand.
    pub(super) fn load(&mut self, operand: u32) {
        self.push(libc::BPF_LD | libc::BPF_IMM, operand);
    }

    /// A := the byte at an offset.
    pub(super) fn load_byte(&mut self, offset: usize) {
        self.push(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset as u32);
    }

    /// A := the four bytes at an offset, the highest first.
    pub(super) fn load_word(&mut self, offset: usize) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    }

    /// A := the byte at X and an offset.
    pub(super) fn load_byte_behind(&mut self, offset: usize) {
        self.push(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, offset as u32);
    }

    /// A := the two bytes at X and an offset, the higher first.
    pub(super) fn load_half_behind(&mut self, offset: usize) {
        self.push(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, offset as u32);
    }

    /// A := the four bytes at X and an offset, the highest first.
    pub(super) fn load_word_behind(&mut self, offset: usize) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, offset as u32);
    }

    /// A := the offset of the attribute of a kind among those that begin at offset A; 0 if there is none.
    pub(super) fn find_attribute(&mut self, kind: u16) {
        self.push(libc::BPF_LDX | libc::BPF_IMM, u32::from(kind));
        let extension = (libc::SKF_AD_OFF + libc::SKF_AD_NLATTR).cast_unsigned();
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, extension);
    }

    /// A := the offset of the attribute of a kind within the one at offset A; 0 if there is none.
    pub(super) fn find_nested_attribute(&mut self, kind: u16) {
        self.push(libc::BPF_LDX | libc::BPF_IMM, u32::from(kind));
        let extension = (libc::SKF_AD_OFF + libc::SKF_AD_NLATTR_NEST).cast_unsigned();
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, extension);
    }

    /// A := a cell of memory.
    pub(super) fn load_cell(&mut self, cell: u32) {
        self.push(libc::BPF_LD | libc::BPF_MEM, cell);
    }

    /// A cell of memory := A.
    pub(super) fn store(&mut self, cell: u32) {
        self.push(libc::BPF_ST, cell);
    }

    /// X := A.
    pub(super) fn keep_as_index(&mut self) {
        self.push(libc::BPF_MISC | libc::BPF_TAX, 0);
    }

    /// A := A and mask.
    pub(super) fn mask(&mut self, mask: u32) {
        if mask != u32::MAX {
            self.push(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask);
        }
    }

    /// Jumps.
    pub(super) fn jump(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(libc::BPF_JMP | libc::BPF_JA, 0);
    }

    /// Jumps if A is the value. Conditional jumps reach 255 instructions only, hence two.
    pub(super) fn jump_if(&mut self, value: u32, label: Label) {
        self.instructions.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, value));
        self.jump(label);
    }

    /// Jumps if A is not the value.
    pub(super) fn jump_unless(&mut self, value: u32, label: Label) {
        self.instructions.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, value));
        self.jump(label);
    }

    /// The message passes.
    pub(super) fn pass(&mut self) {
        self.push(libc::BPF_RET | libc::BPF_K, KEEP_ALL);
    }

    /// Drops the message.
    pub(super) fn ignore(&mut self) {
        self.push(libc::BPF_RET | libc::BPF_K, 0);
    }

    /// The program with resolved jumps. All labels that are jumped to must have positions.
    pub(super) fn finish(mut self) -> Vec<libc::sock_filter> {
        for (at, label) in self.jumps {
            let to = self.places[label.0].expect("a label that is jumped to is placed");
            self.instructions[at].k = (to - at - 1) as u32;
        }
        self.instructions
    }
}
