//! Translates the CFI rules at one address to a [`Rule`].

use super::expression::{Sum, Value, evaluate};
use super::machine::{CfaState, CfiRow, Column};
use crate::object::headers::Arch;
use crate::unwind::table::packed::Packed;
use crate::unwind::table::rule::{Cfa, Fp, Frame, Invalid, RBX, Ra, Rbx, Reg, Rule};

/// The parameters of a translation besides the state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Translation {
    pub(crate) arch: Arch,
    /// Augmentation `S`: the caller was interrupted.
    pub(crate) interrupted: bool,
    /// Whether rbx is followed in this object, also where it is saved.
    pub(crate) rbx: bool,
}

impl Translation {
    /// Returns the packed rule. A place of rbx that does not fit is left out; anything else that does not fit is
    /// [`Invalid::DoesNotFit`].
    pub(crate) fn packed(self, state: &CfiRow<'_>) -> Packed {
        let rule = self.rule(state).unwrap_or_else(Rule::Invalid);
        let without_rbx = || match rule {
            Rule::Frame(frame) => Packed::new(Rule::Frame(Frame { rbx: Rbx::Unknown, ..frame }), self.arch),
            _ => None,
        };
        Packed::new(rule, self.arch).or_else(without_rbx).unwrap_or(Packed::invalid(Invalid::DoesNotFit))
    }

    fn rule(self, state: &CfiRow<'_>) -> Result<Rule, Invalid> {
        if state.ra == Column::Undefined {
            return Ok(Rule::Root);
        }
        // Where CFI says nothing, the ABI decides: the caller's stack pointer is the CFA.
        if !matches!(state.sp, Column::Default | Column::ValOffset(0)) {
            return Err(Invalid::StackPointer);
        }
        let cfa = match self.cfa(state.cfa)? {
            Some(cfa) => cfa,
            None => return self.plt(state),
        };
        let ra = self.ra(state.ra, cfa)?;
        let fp = self.fp(state.fp, cfa)?;
        let rbx = match self.arch {
            Arch::X86_64 if self.rbx => self.rbx(state.rbx, cfa),
            Arch::X86_64 => self.rbx(state.rbx, cfa).unless_saved(),
            Arch::Aarch64 => Rbx::Unknown,
        };
        Ok(Rule::Frame(Frame { cfa, ra, fp, rbx, interrupted: self.interrupted, skips: false }))
    }

    /// `None` for a stub of the linkage table.
    fn cfa(self, cfa: CfaState<'_>) -> Result<Option<Cfa>, Invalid> {
        let register = |number| self.arch.reg(number).ok_or(Invalid::CfaRegister);
        let small = |offset| i32::try_from(offset).map_err(|_| Invalid::DoesNotFit);
        match cfa {
            CfaState::None => Err(Invalid::NoCfa),
            CfaState::Register(number, offset) => Ok(Some(Cfa::Register(register(number)?, small(offset)?))),
            CfaState::Expression(code) => match evaluate(code) {
                Some(Value::Plt { .. }) if self.arch == Arch::X86_64 => Ok(None),
                Some(Value::Sum(Sum { base: Some(base), index: None, offset })) => {
                    Ok(Some(Cfa::Register(register(base)?, small(offset)?)))
                }
                Some(Value::Loaded(Sum { base: Some(base), index: None, offset }, outer)) => {
                    Ok(Some(Cfa::Deref(register(base)?, small(offset)?, small(outer)?)))
                }
                Some(Value::LoadedTwice { sum: Sum { base: Some(base), index: None, offset }, middle, offset: outer }) => {
                    let (base, middle) = (register(base)?, small(middle)?);
                    Ok(Some(Cfa::DerefTwice { base, inner: small(offset)?, middle, outer: small(outer)? }))
                }
                Some(Value::Loaded(Sum { base: Some(base), index: Some((index, scale)), offset }, outer)) => {
                    let scale = u8::try_from(scale).map_err(|_| Invalid::CfaExpression)?;
                    let (base, index) = (register(base)?, register(index)?);
                    Ok(Some(Cfa::Indexed { base, index, scale, inner: small(offset)?, outer: small(outer)? }))
                }
                _ => Err(Invalid::CfaExpression),
            },
        }
    }

    fn plt(self, state: &CfiRow<'_>) -> Result<Rule, Invalid> {
        let CfaState::Expression(code) = state.cfa else { return Err(Invalid::CfaExpression) };
        let Some(Value::Plt { pushed }) = evaluate(code) else { return Err(Invalid::CfaExpression) };
        if state.ra != Column::Offset(-8) {
            return Err(Invalid::ReturnAddress);
        }
        if !matches!(state.fp, Column::Default | Column::SameValue) {
            return Err(Invalid::FramePointer);
        }
        if self.interrupted { Err(Invalid::DoesNotFit) } else { Ok(Rule::Plt { pushed }) }
    }

    fn ra(self, ra: Column<'_>, cfa: Cfa) -> Result<Ra, Invalid> {
        let bad = Invalid::ReturnAddress;
        match (ra, self.arch) {
            (Column::Offset(-8), Arch::X86_64) => Ok(Ra::AtCfa(-8)),
            (Column::Offset(offset), Arch::Aarch64) => i32::try_from(offset).map(Ra::AtCfa).map_err(|_| Invalid::DoesNotFit),
            // A leaf: the link register still has it.
            (Column::Default | Column::SameValue, Arch::Aarch64) => Ok(Ra::Register(Reg(30))),
            (Column::Register(number), _) => Ok(Ra::Register(self.arch.reg(number).ok_or(bad)?)),
            (Column::Expression(code), _) => match (at_cfa(code, cfa).ok_or(bad)?, self.arch) {
                (offset, Arch::Aarch64) | (offset @ -8, Arch::X86_64) => Ok(Ra::AtCfa(offset)),
                _ => Err(bad),
            },
            _ => Err(bad),
        }
    }

    fn fp(self, fp: Column<'_>, cfa: Cfa) -> Result<Fp, Invalid> {
        let bad = Invalid::FramePointer;
        let small = |offset| i32::try_from(offset).map_err(|_| Invalid::DoesNotFit);
        match fp {
            Column::Default | Column::SameValue => Ok(Fp::Unchanged),
            Column::Undefined => Ok(Fp::Undefined),
            Column::Offset(offset) if self.popped(offset, cfa) => Ok(Fp::Unchanged),
            Column::Offset(offset) => Ok(Fp::AtCfa(small(offset)?)),
            Column::Register(number) if number == u64::from(self.arch.fp().0) => Ok(Fp::Unchanged),
            Column::Register(number) => Ok(Fp::Register(self.arch.reg(number).ok_or(bad)?)),
            Column::Expression(code) => {
                if let Some(offset) = at_cfa(code, cfa) {
                    return Ok(if self.popped(offset.into(), cfa) { Fp::Unchanged } else { Fp::AtCfa(offset) });
                }
                match evaluate(code) {
                    Some(Value::Sum(Sum { base: Some(base), index: None, offset })) if base == u64::from(self.arch.fp().0) => {
                        Ok(Fp::AtFp(small(offset)?))
                    }
                    Some(Value::Sum(Sum { base: Some(base), index: None, offset })) if base == u64::from(self.arch.sp().0) => {
                        Ok(Fp::AtSp(small(offset)?))
                    }
                    _ => Err(bad),
                }
            }
            Column::ValOffset(_) | Column::ValExpression => Err(bad),
        }
    }

    fn rbx(self, rbx: Column<'_>, cfa: Cfa) -> Rbx {
        match rbx {
            Column::Default | Column::SameValue => Rbx::Unchanged,
            Column::Register(number) if number == u64::from(RBX.0) => Rbx::Unchanged,
            Column::Offset(offset) if self.popped(offset, cfa) => Rbx::Unchanged,
            Column::Offset(offset) => i32::try_from(offset).map_or(Rbx::Unknown, Rbx::AtCfa),
            _ => Rbx::Unknown,
        }
    }

    /// Returns whether an epilogue has popped a register. Compilers do not say so. The register's place is below the stack
    /// pointer then, and the register has its caller's value again.
    fn popped(self, offset: i64, cfa: Cfa) -> bool {
        matches!(cfa, Cfa::Register(register, size) if register == self.arch.sp() && i64::from(size).saturating_add(offset) < 0)
    }
}

/// Returns the offset of an expression's address from the CFA, if both count from one register.
fn at_cfa(code: &[u8], cfa: Cfa) -> Option<i32> {
    match (evaluate(code)?, cfa) {
        (Value::Sum(Sum { base: Some(base), index: None, offset }), Cfa::Register(register, size))
            if base == u64::from(register.0) =>
        {
            i32::try_from(offset.checked_sub(size.into())?).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: Translation = Translation { arch: Arch::X86_64, interrupted: false, rbx: false };
    const ARM: Translation = Translation { arch: Arch::Aarch64, interrupted: false, rbx: false };

    fn state(register: u64, offset: i64) -> CfiRow<'static> {
        CfiRow { cfa: CfaState::Register(register, offset), ra: Column::Offset(-8), ..CfiRow::default() }
    }

    fn frame(cfa: Cfa, ra: Ra, fp: Fp, rbx: Rbx) -> Rule {
        Rule::Frame(Frame { cfa, ra, fp, rbx, interrupted: false, skips: false })
    }

    fn rule(translation: Translation, state: CfiRow<'_>) -> Rule {
        translation.packed(&state).rule(translation.arch).unwrap()
    }

    #[test]
    fn a_popped_frame_pointer_is_kept() {
        // push rbp … pop rbp: the slot at CFA − 16 is at rsp − 8 by now.
        let popped = CfiRow { fp: Column::Offset(-16), ..state(7, 8) };
        let cfa = Cfa::Register(Reg(7), 8);
        assert_eq!(rule(X86, popped), frame(cfa, Ra::AtCfa(-8), Fp::Unchanged, Rbx::Unchanged));
        let pushed = CfiRow { fp: Column::Offset(-16), ..state(7, 16) };
        let cfa = Cfa::Register(Reg(7), 16);
        assert_eq!(rule(X86, pushed), frame(cfa, Ra::AtCfa(-8), Fp::AtCfa(-16), Rbx::Unchanged));
        // rbp tells nothing about rsp.
        let by_fp = CfiRow { fp: Column::Offset(-16), ..state(6, 8) };
        let cfa = Cfa::Register(Reg(6), 8);
        assert_eq!(rule(X86, by_fp), frame(cfa, Ra::AtCfa(-8), Fp::AtCfa(-16), Rbx::Unchanged));
    }

    #[test]
    fn an_undefined_return_address_is_a_root_whatever_else_is_said() {
        let start = CfiRow { ra: Column::Undefined, cfa: CfaState::None, ..CfiRow::default() };
        assert_eq!(rule(X86, start), Rule::Root);
        assert_eq!(rule(ARM, start), Rule::Root);
    }

    #[test]
    fn rbx_is_followed_where_asked_for_and_left_out_where_there_is_no_room() {
        let saved = CfiRow { rbx: Column::Offset(-56), ..state(3, 56) };
        let cfa = Cfa::Register(RBX, 56);
        let with = Translation { rbx: true, ..X86 };
        assert_eq!(rule(with, saved), frame(cfa, Ra::AtCfa(-8), Fp::Unchanged, Rbx::AtCfa(-56)));
        assert_eq!(rule(X86, saved), frame(cfa, Ra::AtCfa(-8), Fp::Unchanged, Rbx::Unknown));
        let far = CfiRow { rbx: Column::Offset(-4096), ..state(6, 16) };
        let cfa = Cfa::Register(Reg(6), 16);
        assert_eq!(rule(with, far), frame(cfa, Ra::AtCfa(-8), Fp::Unchanged, Rbx::Unknown));
    }

    #[test]
    fn a_realigned_frame_loads_its_cfa_and_its_frame_pointer() {
        // breg6 -8; deref and breg6 0, as GCC writes them for -mstackrealign.
        let body = CfiRow {
            cfa: CfaState::Expression(&[0x76, 0x78, 0x06]),
            fp: Column::Expression(&[0x76, 0x00]),
            ra: Column::Offset(-8),
            ..CfiRow::default()
        };
        assert_eq!(rule(X86, body), frame(Cfa::Deref(Reg(6), -8, 0), Ra::AtCfa(-8), Fp::AtFp(0), Rbx::Unchanged));
        // In the prologue: CFA = r10, rbp at *rbp.
        let prologue = CfiRow { fp: Column::Expression(&[0x76, 0x00]), ..state(10, 0) };
        assert_eq!(rule(X86, prologue), frame(Cfa::Register(Reg(10), 0), Ra::AtCfa(-8), Fp::AtFp(0), Rbx::Unchanged));
    }

    #[test]
    fn on_arm64_the_link_register_has_it_until_it_is_saved() {
        let leaf = CfiRow { cfa: CfaState::Register(31, 0), ..CfiRow::default() };
        let (cfa, x30) = (Cfa::Register(Reg(31), 0), Ra::Register(Reg(30)));
        assert_eq!(rule(ARM, leaf), frame(cfa, x30, Fp::Unchanged, Rbx::Unknown));
        let saved =
            CfiRow { cfa: CfaState::Register(31, 96), ra: Column::Offset(-88), fp: Column::Offset(-96), ..CfiRow::default() };
        let cfa = Cfa::Register(Reg(31), 96);
        assert_eq!(rule(ARM, saved), frame(cfa, Ra::AtCfa(-88), Fp::AtCfa(-96), Rbx::Unknown));
    }

    #[test]
    fn what_no_rule_says_has_its_reason() {
        let reason = |state| match rule(X86, state) {
            Rule::Invalid(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(CfiRow { cfa: CfaState::None, ..state(7, 8) }), Invalid::NoCfa);
        assert_eq!(reason(state(17, 8)), Invalid::CfaRegister);
        assert_eq!(reason(CfiRow { cfa: CfaState::Expression(&[0xe0]), ..state(7, 8) }), Invalid::CfaExpression);
        assert_eq!(reason(CfiRow { ra: Column::Offset(-16), ..state(7, 8) }), Invalid::ReturnAddress);
        assert_eq!(reason(CfiRow { ra: Column::Default, ..state(7, 8) }), Invalid::ReturnAddress);
        assert_eq!(reason(CfiRow { fp: Column::ValExpression, ..state(7, 8) }), Invalid::FramePointer);
        assert_eq!(reason(CfiRow { sp: Column::Offset(-24), ..state(7, 8) }), Invalid::StackPointer);
        assert_eq!(reason(state(7, 1 << 23)), Invalid::DoesNotFit);
        assert_eq!(reason(state(7, 1 << 40)), Invalid::DoesNotFit);
    }
}
