//! A rule in 8 bytes: the form that tables hold and `apply_rule` of bpf/walk/walk.h reads.

use super::rule::{Cfa, Fp, Frame, Invalid, REASONS, Ra, Rbx, Reg, Rule};
use crate::object::headers::Arch;

/// A rule in 8 bytes.
///
/// ```text
///  bit  0      3          8         11    13        14            15      16         32         40           64
///       │ kind │ register │ fp kind │ rbx │ ra kind │ interrupted │ skips │ slot i16 │ extra i8 │ offset i24 │
///
/// kind      0 INVALID   register = reason
///           1 GAP       register = 3: a finished table has no rule there either (FINAL_GAP)
///           2 ROOT
///           3 SIGNAL
///           4 SPECIAL   register = form; rbx as below
///               0 PLT         extra = first byte of the stub that has pushed; rbx unchanged
///               1 GOROUTINE   slot = tls in bytes (x86_64); offset = m/8 (bits 40–47) | curg/8 (48–55) | sp/8 (56–63); + 8·extra
///               2 BELOW_TOP   offset = object/8 (bits 40–47) | depth/8 (48–55) | top/8 (56–63); + 8·extra
///               4 TWICE       CFA = *(*(register + inner) + middle) + 8·extra;
///                             offset = inner/8 (bits 40–47) | middle/8 (48–55) | register (56–60)
///               3 THREAD      (arm64) offset = m/8 (bits 40–47) | sp/8 (48–55); + 8·extra
///           5 REGISTER  CFA = register + offset
///           6 DEREF     CFA = *(register + offset) + 8·extra
///           7 INDEXED   CFA = *(register + (index << shift) + inner) + 8·extra
///                       offset = inner i16 (bits 40–55) | index (56–60) | shift (61–63)
/// fp kind   0 unchanged   1 *(CFA + 8·slot)   2 *(FP + 8·slot)   3 *(SP + 8·slot)   4 register number slot   5 undefined
///           6 (arm64) *(RA's place + 8·extra)       7 (arm64) *(RA's place − 8), where extra serves the CFA
/// rbx       0 unknown     1 unchanged         2 *(CFA + 8·extra), kind REGISTER only
///           3 the thread has its next goroutine; on arm64 as 1
/// ra kind   0 in memory: *(CFA − 8) on x86_64, *(CFA + 8·slot) on arm64
///           1 in a register: its number is extra, kind REGISTER without rbx in memory only; with GOROUTINE: behind the saved
///             stack pointer; on arm64 x30 is 8·slot behind it, too
/// ```
///
/// An offset of 24 bits is a frame of up to 8 MiB, the default limit of a whole stack. On arm64 the frame pointer is nearly
/// always saved right below the return address, at the lower end of the frame. So its place is relative to the return address's
/// place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Packed(pub u64);

const _: () = assert!(size_of::<Packed>() == 8);

const INVALID: u64 = 0;
const GAP: u64 = 1;
const ROOT: u64 = 2;
const SIGNAL: u64 = 3;
const SPECIAL: u64 = 4;
const REGISTER: u64 = 5;
const DEREF: u64 = 6;
const INDEXED: u64 = 7;

/// Forms of SPECIAL.
const PLT: u8 = 0;
const GOROUTINE: u8 = 1;
const BELOW_TOP: u8 = 2;
const THREAD: u8 = 3;
const TWICE: u8 = 4;

/// The fields of a packed rule, each in its own variable.
#[derive(Default)]
struct Fields {
    kind: u64,
    register: u8,
    fp_kind: u64,
    rbx: u64,
    ra_in_register: bool,
    interrupted: bool,
    skips: bool,
    slot: i16,
    extra: i8,
    offset: i32,
}

impl Fields {
    fn join(&self) -> Option<Packed> {
        if !(-(1 << 23)..1 << 23).contains(&self.offset) {
            return None;
        }
        Some(Packed(
            self.kind
                | u64::from(self.register & 31) << 3
                | self.fp_kind << 8
                | self.rbx << 11
                | u64::from(self.ra_in_register) << 13
                | u64::from(self.interrupted) << 14
                | u64::from(self.skips) << 15
                | u64::from(self.slot.cast_unsigned()) << 16
                | u64::from(self.extra.cast_unsigned()) << 32
                | u64::from(self.offset.cast_unsigned()) << 40,
        ))
    }

    fn split(Packed(bits): Packed) -> Fields {
        Fields {
            kind: bits & 7,
            register: (bits >> 3) as u8 & 31,
            fp_kind: bits >> 8 & 7,
            rbx: bits >> 11 & 3,
            ra_in_register: bits >> 13 & 1 != 0,
            interrupted: bits >> 14 & 1 != 0,
            skips: bits >> 15 & 1 != 0,
            slot: (bits >> 16) as i16,
            extra: (bits >> 32) as i8,
            // The sign is bit 63.
            offset: (bits.cast_signed() >> 40) as i32,
        }
    }
}

/// `offset` in words, if it is a multiple of 8 and there is room.
fn words<T: TryFrom<i32>>(offset: i32) -> Option<T> {
    if offset % 8 == 0 { T::try_from(offset / 8).ok() } else { None }
}

/// Three offsets in words, a byte each.
fn three(offsets: [i32; 3]) -> Option<i32> {
    let [a, b, c] = offsets.map(words::<u8>);
    // The highest bit becomes the sign.
    Some((i32::from(a?) | i32::from(b?) << 8 | i32::from(c?) << 16) << 8 >> 8)
}

fn three_again(offset: i32) -> [i32; 3] {
    [0, 8, 16].map(|shift| (offset >> shift & 0xff) * 8)
}

impl Packed {
    /// Returns the packed form, or `None` where there is no room for it.
    pub fn new(rule: Rule, arch: Arch) -> Option<Packed> {
        let mut fields = Fields::default();
        match rule {
            Rule::Gap => fields.kind = GAP,
            Rule::Root => fields.kind = ROOT,
            Rule::Signal => fields.kind = SIGNAL,
            Rule::Invalid(reason) => (fields.kind, fields.register) = (INVALID, reason as u8),
            Rule::Plt { pushed } => {
                (fields.kind, fields.register, fields.extra) = (SPECIAL, PLT, i8::try_from(pushed).ok()?);
                // A stub changes no register.
                fields.rbx = 1;
            }
            Rule::Frame(frame) => pack_frame(frame, arch, &mut fields)?,
        }
        fields.join()
    }

    /// Returns the packed form of an invalid rule, which always fits.
    pub fn invalid(reason: Invalid) -> Packed {
        Packed(INVALID | (reason as u64) << 3)
    }

    /// [`Rule::Gap`].
    pub const GAP: Packed = Packed(GAP);

    /// [`Rule::Gap`] in a table that is not finished: the finished table has no rule there either.
    pub const FINAL_GAP: Packed = Packed(GAP | 3 << 3);

    /// Returns the rule; `None` for bits that [`Packed::new`] does not make.
    pub fn rule(self, arch: Arch) -> Option<Rule> {
        let fields = Fields::split(self);
        Some(match fields.kind {
            GAP => Rule::Gap,
            ROOT => Rule::Root,
            SIGNAL => Rule::Signal,
            INVALID => Rule::Invalid(*REASONS.get(usize::from(fields.register))?),
            SPECIAL if fields.register == PLT => Rule::Plt { pushed: u8::try_from(fields.extra).ok()? },
            _ => Rule::Frame(unpack_frame(&fields, arch)?),
        })
    }
}

fn pack_frame(frame: Frame, arch: Arch, fields: &mut Fields) -> Option<()> {
    fields.interrupted = frame.interrupted;
    fields.skips = frame.skips;
    // `extra` and `slot` serve one purpose at a time.
    let (mut extra, mut slot) = (None, None);
    match frame.cfa {
        Cfa::Register(Reg(register), offset) => {
            (fields.kind, fields.register, fields.offset) = (REGISTER, register, offset);
        }
        Cfa::Deref(Reg(register), inner, outer) => {
            (fields.kind, fields.register, fields.offset) = (DEREF, register, inner);
            extra = Some(words::<i8>(outer)?);
        }
        Cfa::DerefTwice { base, inner, middle, outer } => {
            let register = i32::from(base.0) * 8;
            (fields.kind, fields.register, fields.offset) = (SPECIAL, TWICE, three([inner, middle, register])?);
            extra = Some(words::<i8>(outer)?);
        }
        Cfa::Indexed { base, index, scale, inner, outer } => {
            (fields.kind, fields.register) = (INDEXED, base.0);
            extra = Some(words::<i8>(outer)?);
            let shift = if scale.is_power_of_two() && scale <= 8 { scale.trailing_zeros().cast_signed() } else { return None };
            let inner = i32::from(i16::try_from(inner).ok()?.cast_unsigned());
            // The upper bits wrap into the sign; that is intended.
            fields.offset = (inner | i32::from(index.0) << 16 | shift << 21) << 8 >> 8;
        }
        Cfa::Goroutine { tls, m, curg, sp, outer } => {
            (fields.kind, fields.register, fields.offset) = (SPECIAL, GOROUTINE, three([m, curg, sp])?);
            extra = Some(words::<i8>(outer)?);
            match arch {
                Arch::X86_64 => slot = Some(i16::try_from(tls).ok()?),
                Arch::Aarch64 if tls != 0 => return None,
                Arch::Aarch64 => {}
            }
        }
        Cfa::BelowTop { object, top, depth, outer } => {
            (fields.kind, fields.register, fields.offset) = (SPECIAL, BELOW_TOP, three([object, depth, top])?);
            extra = Some(words::<i8>(outer)?);
        }
        Cfa::Thread { m, sp, outer } if arch == Arch::Aarch64 => {
            (fields.kind, fields.register, fields.offset) = (SPECIAL, THREAD, three([m, sp, 0])?);
            extra = Some(words::<i8>(outer)?);
        }
        Cfa::Thread { .. } => return None,
    }
    match (frame.ra, arch) {
        (Ra::AtCfa(-8), Arch::X86_64) => {}
        (Ra::AtCfa(_), Arch::X86_64) => return None,
        (Ra::AtCfa(offset), Arch::Aarch64) => slot = Some(words::<i16>(offset)?),
        (Ra::Register(register), _) => {
            if extra.replace(register.0.cast_signed()).is_some() {
                return None;
            }
            fields.ra_in_register = true;
        }
        (Ra::Saved, Arch::X86_64) if matches!(frame.cfa, Cfa::Goroutine { .. }) => fields.ra_in_register = true,
        (Ra::Prologue(offset), Arch::Aarch64) if matches!(frame.cfa, Cfa::Goroutine { .. }) => {
            fields.ra_in_register = true;
            slot = Some(words::<i16>(offset)?);
        }
        (Ra::Saved | Ra::Prologue(_), _) => return None,
    }
    let place = match (frame.fp, frame.ra) {
        (Fp::Unchanged, _) => None,
        (Fp::Undefined, _) => {
            fields.fp_kind = 5;
            None
        }
        (Fp::AtCfa(offset), Ra::AtCfa(ra)) if arch == Arch::Aarch64 => {
            let below = offset.checked_sub(ra)?;
            if extra.is_none() {
                (fields.fp_kind, extra) = (6, Some(words::<i8>(below)?));
            } else if below == -8 {
                fields.fp_kind = 7;
            } else {
                return None;
            }
            None
        }
        (Fp::AtCfa(offset), _) => Some((1, words::<i16>(offset)?)),
        (Fp::AtFp(offset), _) => Some((2, words::<i16>(offset)?)),
        (Fp::AtSp(offset), _) => Some((3, words::<i16>(offset)?)),
        (Fp::Register(register), _) => Some((4, i16::from(register.0))),
    };
    if let Some((kind, place)) = place {
        fields.fp_kind = kind;
        if slot.replace(place).is_some() {
            return None;
        }
    }
    match frame.rbx {
        Rbx::Unknown => {}
        Rbx::Unchanged => fields.rbx = 1,
        Rbx::NextGoroutine => fields.rbx = 3,
        Rbx::AtCfa(offset) => {
            fields.rbx = 2;
            if extra.replace(words::<i8>(offset)?).is_some() {
                return None;
            }
        }
    }
    fields.slot = slot.unwrap_or(0);
    fields.extra = extra.unwrap_or(0);
    Some(())
}

fn unpack_frame(fields: &Fields, arch: Arch) -> Option<Frame> {
    let register = Reg(fields.register);
    let slot = i32::from(fields.slot) * 8;
    let extra = i32::from(fields.extra) * 8;
    let ra = match arch {
        Arch::X86_64 if fields.ra_in_register && fields.kind == SPECIAL => Ra::Saved,
        Arch::Aarch64 if fields.ra_in_register && fields.kind == SPECIAL => Ra::Prologue(slot),
        _ if fields.ra_in_register => Ra::Register(Reg(u8::try_from(fields.extra).ok()?)),
        Arch::X86_64 => Ra::AtCfa(-8),
        Arch::Aarch64 => Ra::AtCfa(slot),
    };
    let cfa = match fields.kind {
        REGISTER => Cfa::Register(register, fields.offset),
        DEREF => Cfa::Deref(register, fields.offset, extra),
        SPECIAL => {
            let [a, b, c] = three_again(fields.offset);
            match (fields.register, arch) {
                (GOROUTINE, _) => {
                    let tls = if arch == Arch::X86_64 { fields.slot.into() } else { 0 };
                    Cfa::Goroutine { tls, m: a, curg: b, sp: c, outer: extra }
                }
                (BELOW_TOP, _) => Cfa::BelowTop { object: a, depth: b, top: c, outer: extra },
                (TWICE, _) => Cfa::DerefTwice { base: Reg(u8::try_from(c / 8).ok()?), inner: a, middle: b, outer: extra },
                (THREAD, Arch::Aarch64) => Cfa::Thread { m: a, sp: b, outer: extra },
                _ => return None,
            }
        }
        _ => Cfa::Indexed {
            base: register,
            index: Reg((fields.offset >> 16) as u8 & 31),
            scale: 1u8.checked_shl((fields.offset >> 21).cast_unsigned() & 7)?,
            inner: i32::from(fields.offset as i16),
            outer: extra,
        },
    };
    let fp = match fields.fp_kind {
        0 => Fp::Unchanged,
        1 => Fp::AtCfa(slot),
        2 => Fp::AtFp(slot),
        3 => Fp::AtSp(slot),
        4 => Fp::Register(Reg(u8::try_from(fields.slot).ok()?)),
        5 => Fp::Undefined,
        6 => Fp::AtCfa(slot + extra),
        7 if arch == Arch::Aarch64 => Fp::AtCfa(slot - 8),
        _ => return None,
    };
    let rbx = match fields.rbx {
        0 => Rbx::Unknown,
        1 => Rbx::Unchanged,
        2 => Rbx::AtCfa(extra),
        _ => Rbx::NextGoroutine,
    };
    Some(Frame { cfa, ra, fp, rbx, interrupted: fields.interrupted, skips: fields.skips })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offset() -> impl Strategy<Value = i32> {
        prop_oneof![-9_000_000..9_000_000, -70_000i32..70_000, (-200i32..200).prop_map(|words| words * 8), Just(-8)]
    }

    fn register() -> impl Strategy<Value = Reg> {
        (0u8..32).prop_map(Reg)
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let cfa =
            prop_oneof![
                (register(), offset()).prop_map(|(register, offset)| Cfa::Register(register, offset)),
                (register(), offset(), offset()).prop_map(|(register, a, b)| Cfa::Deref(register, a, b)),
                (register(), register(), 0u8..12, offset(), offset())
                    .prop_map(|(base, index, scale, inner, outer)| Cfa::Indexed { base, index, scale, inner, outer }),
                (offset(), offset(), offset(), offset(), offset()).prop_map(|(tls, m, curg, sp, outer)| Cfa::Goroutine {
                    tls,
                    m,
                    curg,
                    sp,
                    outer
                }),
                (offset(), offset(), offset()).prop_map(|(m, sp, outer)| Cfa::Thread { m, sp, outer }),
                (register(), offset(), offset(), offset()).prop_map(|(base, inner, middle, outer)| Cfa::DerefTwice {
                    base,
                    inner,
                    middle,
                    outer
                }),
                (offset(), offset(), offset(), offset()).prop_map(|(object, top, depth, outer)| Cfa::BelowTop {
                    object,
                    top,
                    depth,
                    outer
                }),
            ];
        let ra = prop_oneof![
            Just(Ra::AtCfa(-8)),
            offset().prop_map(Ra::AtCfa),
            register().prop_map(Ra::Register),
            Just(Ra::Saved),
            offset().prop_map(Ra::Prologue)
        ];
        let fp = prop_oneof![
            Just(Fp::Unchanged),
            Just(Fp::Undefined),
            offset().prop_map(Fp::AtCfa),
            offset().prop_map(Fp::AtFp),
            offset().prop_map(Fp::AtSp),
            register().prop_map(Fp::Register),
        ];
        let rbx = prop_oneof![Just(Rbx::Unknown), Just(Rbx::Unchanged), Just(Rbx::NextGoroutine), offset().prop_map(Rbx::AtCfa)];
        (cfa, ra, fp, rbx, any::<[bool; 2]>()).prop_map(|(cfa, ra, fp, rbx, [interrupted, skips])| Frame {
            cfa,
            ra,
            fp,
            rbx,
            interrupted,
            skips,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn what_was_packed_is_unpacked_the_same(frame in frame(), arm in any::<bool>()) {
            let arch = if arm { Arch::Aarch64 } else { Arch::X86_64 };
            if let Some(packed) = Packed::new(Rule::Frame(frame), arch) {
                prop_assert_eq!(packed.rule(arch), Some(Rule::Frame(frame)));
            }
        }

        #[test]
        fn any_bits_unpack_without_harm(bits in any::<u64>()) {
            for arch in [Arch::X86_64, Arch::Aarch64] {
                if let Some(rule) = Packed(bits).rule(arch) {
                    // Two packed forms of one rule may differ in bits without a meaning.
                    if let Some(again) = Packed::new(rule, arch) {
                        prop_assert_eq!(again.rule(arch), Some(rule));
                    }
                }
            }
        }
    }

    #[test]
    fn the_walk_knows_one_reason_by_its_number() {
        // RULE_INVALID_STACK_POINTER of bpf/lookup/tables.h.
        assert_eq!(Packed::invalid(Invalid::StackPointer), Packed(8 << 3));
    }

    #[test]
    fn the_common_rules_fit() {
        let x86 = |cfa, fp, rbx| {
            let frame = Frame { cfa, ra: Ra::AtCfa(-8), fp, rbx, interrupted: false, skips: false };
            Packed::new(Rule::Frame(frame), Arch::X86_64).and_then(|packed| packed.rule(Arch::X86_64)) == Some(Rule::Frame(frame))
        };
        assert!(x86(Cfa::Register(Reg(7), 8), Fp::Unchanged, Rbx::Unknown));
        assert!(x86(Cfa::Register(Reg(7), 1_000_000), Fp::AtCfa(-56), Rbx::AtCfa(-64)));
        assert!(x86(Cfa::Deref(Reg(6), -8, 0), Fp::AtFp(0), Rbx::Unchanged));
        assert!(x86(Cfa::Goroutine { tls: -8, m: 0x30, curg: 0xc0, sp: 0x7f8, outer: 8 }, Fp::Unchanged, Rbx::Unknown));
        assert!(x86(Cfa::BelowTop { object: 0x30, top: 8, depth: 0x28, outer: 8 }, Fp::Unchanged, Rbx::Unknown));
        assert!(x86(Cfa::DerefTwice { base: Reg(7), inner: 56, middle: 0, outer: 8 }, Fp::Unchanged, Rbx::Unknown));
        assert!(x86(Cfa::Indexed { base: Reg(7), index: Reg(9), scale: 8, inner: -16, outer: 8 }, Fp::AtCfa(-16), Rbx::Unknown));
        let arm = |ra, fp| {
            let frame = Frame { cfa: Cfa::Register(Reg(31), 4096), ra, fp, rbx: Rbx::Unknown, interrupted: true, skips: false };
            Packed::new(Rule::Frame(frame), Arch::Aarch64).and_then(|packed| packed.rule(Arch::Aarch64))
                == Some(Rule::Frame(frame))
        };
        assert!(arm(Ra::AtCfa(-4088), Fp::AtCfa(-4096)));
        assert!(arm(Ra::AtCfa(-4088), Fp::Unchanged));
        assert!(arm(Ra::Register(Reg(30)), Fp::AtCfa(-4096)));
        // As OCaml's calls of C have it.
        let cfa = Cfa::Deref(Reg(31), 8, 16);
        let saved = |fp| Frame { cfa, ra: Ra::AtCfa(-8), fp: Fp::AtCfa(fp), rbx: Rbx::Unknown, interrupted: true, skips: false };
        let rule = Rule::Frame(saved(-16));
        assert_eq!(Packed::new(rule, Arch::Aarch64).and_then(|packed| packed.rule(Arch::Aarch64)), Some(rule));
        assert_eq!(Packed::new(Rule::Frame(saved(-24)), Arch::Aarch64), None);
        for reason in REASONS {
            let rule = Rule::Invalid(reason);
            assert_eq!(Packed::new(rule, Arch::X86_64), Some(Packed::invalid(reason)));
            assert_eq!(Packed::invalid(reason).rule(Arch::Aarch64), Some(rule));
        }
        assert_eq!(Packed::new(Rule::Gap, Arch::X86_64), Some(Packed::GAP));
        assert_eq!(
            Packed::new(Rule::Plt { pushed: 11 }, Arch::X86_64).unwrap().rule(Arch::X86_64),
            Some(Rule::Plt { pushed: 11 })
        );
    }
}
