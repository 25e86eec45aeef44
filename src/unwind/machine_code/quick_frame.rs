//! The state of registers and stack at an instruction of x86_64, for the quick way: see [`super::plain`].

/// Numbers of the machine, not of DWARF.
pub(crate) const RAX: usize = 0;
pub(crate) const RDX: usize = 2;
pub(crate) const RBX: usize = 3;
pub(crate) const RSP: usize = 4;
pub(crate) const RBP: usize = 5;

/// Number of words below the CFA that are followed.
pub(crate) const SLOTS: usize = 16;

/// The value of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Unknown,
    /// The value that this register had at the function's begin.
    Entry(u8),
    /// A pointer this far from the CFA.
    Stack(i32),
    Number(u64),
    /// An entry of the jump table at this address; `Target` is the address that such an entry means.
    TableEntry(u64),
    Target(u64),
}

/// The facts at an instruction.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) registers: [Value; 16],
    /// The words below the CFA, from the highest on. Each is the number of the register whose value of the function's begin it
    /// has, or [`NOTHING`] or [`RETURN`].
    pub(crate) slots: [u8; SLOTS],
    /// The number in the last comparison.
    pub(crate) compared: Option<u64>,
    /// A comparison has shown an index to be below this number.
    pub(crate) limit: Option<u64>,
    /// Whether something has changed that the rule depends on.
    pub(crate) is_changed: bool,
    /// Whether the stack pointer is above the return address, or the return address was overwritten.
    pub(crate) is_lost: bool,
}

pub(crate) const NOTHING: u8 = 0xff;
pub(crate) const RETURN: u8 = 0xfe;

impl Frame {
    pub(crate) fn get(&self, register: usize) -> Value {
        self.registers.get(register).copied().unwrap_or(Value::Unknown)
    }

    /// Writes a register; `false` if the write is hard to follow.
    #[inline]
    pub(crate) fn set(&mut self, register: usize, value: Value) -> bool {
        self.is_changed |= matches!(register, RBX | RSP | RBP);
        match (register, value, self.get(RSP)) {
            (RSP, Value::Stack(to), Value::Stack(from)) => {
                if to > from {
                    self.forget_below(to);
                }
                if to > -8 {
                    self.is_lost = true;
                    return false;
                }
            }
            (RSP, ..) => return false,
            // A rule may find the frame pointer in another register that has its value.
            (_, Value::Entry(of), _) if usize::from(of) == RBP && register != RBP => return false,
            _ => {}
        }
        if let Some(place) = self.registers.get_mut(register) {
            *place = value;
        }
        true
    }

    pub(crate) fn forget_below(&mut self, top: i32) {
        for (slot, at) in self.slots.iter_mut().zip(1i32..) {
            if -8 * at < top && *slot != NOTHING {
                *slot = NOTHING;
                self.is_changed = true;
            }
        }
    }

    pub(crate) fn after_call(&mut self) {
        // rax, rcx, rdx, rsi, rdi, r8 to r11
        for register in [0, 1, 2, 6, 7, 8, 9, 10, 11] {
            if let Some(place) = self.registers.get_mut(register) {
                *place = Value::Unknown;
            }
        }
        (self.compared, self.limit) = (None, None);
        if let Value::Stack(top) = self.get(RSP) {
            self.forget_below(top);
        }
    }

    pub(crate) fn load(&self, at: i32) -> Value {
        let place = usize::try_from(-(at / 8) - 1).ok().filter(|_| at % 8 == 0);
        match place.and_then(|place| self.slots.get(place)) {
            Some(&NOTHING) | None => Value::Unknown,
            // A copy of the return address: code that needs one is not plain.
            Some(&RETURN) => Value::Unknown,
            Some(register) => Value::Entry(*register),
        }
    }

    /// Writes `size` bytes of the frame; `false` if the write is hard to follow.
    pub(crate) fn store(&mut self, at: i32, size: i32, value: Value) -> bool {
        if !(-(1 << 22)..0).contains(&at) {
            // Arguments, which are the caller's.
            return at < 1 << 22 && !matches!(value, Value::Entry(_));
        }
        let lowest = -8 * SLOTS as i32;
        if at + size > lowest {
            for (slot, number) in self.slots.iter_mut().zip(1i32..) {
                let place = -8 * number;
                if place < at + size && at < place + 8 && *slot != NOTHING {
                    if *slot == RETURN {
                        self.is_lost = true;
                        return false;
                    }
                    *slot = NOTHING;
                    self.is_changed = true;
                }
            }
        }
        if let Value::Entry(register) = value
            && size == 8
        {
            let place = usize::try_from(-(at / 8) - 1).ok().filter(|_| at % 8 == 0);
            let Some(slot) = place.and_then(|place| self.slots.get_mut(place)) else { return false };
            (*slot, self.is_changed) = (register, true);
        }
        true
    }
}
