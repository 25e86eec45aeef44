//! Compares a table with the object's unwind information as gimli reads it.
//!
//! That reader is independent, was written by others, and shares nothing with ours: neither entries nor instructions nor
//! expressions. Rules are compared by their effect. Both readers compute CFA, return address, frame pointer and rbx from the same
//! made-up registers and memory, where every value is another random number. So the spelling of a rule does not matter, and two
//! rules that differ anywhere differ in a number.

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Reader,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow, Vendor,
};

use crate::object::headers::Arch;
use crate::unwind::cfi::entries::Format;
use crate::unwind::convert::Evidence;
use crate::unwind::sections::{Elf, Information};
use crate::unwind::table::packed::Packed;
use crate::unwind::table::paged::Paged;
use crate::unwind::table::rows::{PADDING, Table};
use crate::unwind::table::rule::{Cfa, Fp, Frame, RBX, Ra, Rbx, Reg, Rule};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The result of a comparison. Rows are gimli's; each is checked at its first and last byte and at one between.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Rows that were compared.
    pub rows: u64,
    /// Compared rows that have a rule in our table.
    pub ruled: u64,
    /// Compared rows where our table says why there is no rule.
    pub invalid: u64,
    /// Places between descriptions that were checked.
    pub holes: u64,
    /// Descriptions that gimli cannot read to their end. The unread part is not compared.
    pub beyond: u64,
    /// Comparisons in which our table was wrong. Must be 0.
    pub wrong: u64,
    /// The first few of those.
    pub examples: Vec<String>,
}

impl Verdict {
    fn wrong(&mut self, address: u64, ours: Option<Rule>, expected: &str) {
        self.wrong += 1;
        if self.examples.len() < 8 {
            self.examples.push(format!("{address:#x}: expected {expected}, the table says {ours:?}"));
        }
    }
}

/// Compares a table with gimli's reading of the table's sources.
pub(crate) fn check(evidence: &Evidence, table: &Table, paged: &Paged) -> Verdict {
    let Evidence { elf, sources, blocks, from_code } = evidence;
    let mut verdict = Verdict::default();
    let mut ranges = Vec::new();
    let prepared: Vec<Prepared> = sources.iter().map(|source| Prepared::new(source.clone(), elf)).collect();
    let add_blocks = |wins, ranges: &mut Vec<Covered>| {
        let blocks = blocks.iter().filter(|block| block.wins == wins);
        ranges.extend(blocks.map(|block| Covered { start: block.start, end: block.end, source: usize::MAX, offset: 0 }));
    };
    ranges.extend(from_code.iter().map(|range| Covered { start: range.start, end: range.end, source: usize::MAX, offset: 0 }));
    add_blocks(true, &mut ranges);
    for (number, prepared) in prepared.iter().enumerate() {
        prepared.ranges(number, &mut ranges);
    }
    add_blocks(false, &mut ranges);
    // The order of all lookups: the description that begins first; of two that begin together, the first.
    ranges.sort_by_key(|range| range.start);
    let text = elf.text();
    let mut checker = Checker { table, paged, arch: elf.arch, verdict: &mut verdict };
    let mut context = UnwindContext::new_in();
    let mut end = table.base;
    for range in ranges {
        let Some(segment) = text.iter().find(|segment| segment.contains(&range.start)) else { continue };
        if range.start == 0 || segment.end - table.base > u64::from(u32::MAX) {
            continue;
        }
        let clip = range.start.max(end)..range.end.min(segment.end);
        if clip.start >= clip.end {
            continue;
        }
        checker.hole(end, clip.start);
        end = clip.end;
        if let Some(prepared) = prepared.get(range.source) {
            prepared.check(range.offset, clip, &mut context, &mut checker);
        }
    }
    checker.hole(end, end.saturating_add(2 * PADDING));
    verdict
}

/// A range of code that is described, and the place of its description.
struct Covered {
    start: u64,
    end: u64,
    source: usize,
    offset: usize,
}

/// Storage for remembered states. gimli's own holds 4, which suffices for real files, but our reader takes more.
struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(gimli::Register, RegisterRule<usize>); 192];
    type Stack = Box<[UnwindTableRow<usize, Self>; 32]>;
}

/// A section made ready for gimli.
struct Prepared {
    information: Information,
    bases: BaseAddresses,
    arch: Arch,
    /// CIEs of interrupted frames.
    interrupted: Vec<usize>,
}

impl Prepared {
    fn new(mut information: Information, elf: &Elf) -> Prepared {
        let address = |name| elf.section(name).map_or(0, |section| section.address);
        let bases =
            BaseAddresses::default().set_eh_frame(information.address).set_text(address(".text")).set_got(address(".got"));
        // gimli does not know the augmentations B and G of arm64. Like S, they have no data. So B and G become S for gimli, and
        // entries that really have S are noted before.
        let mut interrupted = Vec::new();
        for (offset, content) in entries(&information) {
            let letters = augmentation(&information, content).unwrap_or_default();
            let Some(letters) = information.bytes.get_mut(letters) else { continue };
            if letters.contains(&b'S') {
                interrupted.push(offset);
            }
            letters.iter_mut().filter(|letter| matches!(letter, b'B' | b'G')).for_each(|letter| *letter = b'S');
        }
        Prepared { information, bases, arch: elf.arch, interrupted }
    }

    fn eh_frame(&self) -> EhFrame<Bytes<'_>> {
        let mut section = EhFrame::new(&self.information.bytes, LittleEndian);
        section.set_address_size(8);
        if self.arch == Arch::Aarch64 {
            section.set_vendor(Vendor::AArch64);
        }
        section
    }

    fn debug_frame(&self) -> DebugFrame<Bytes<'_>> {
        let mut section = DebugFrame::new(&self.information.bytes, LittleEndian);
        section.set_address_size(8);
        if self.arch == Arch::Aarch64 {
            section.set_vendor(Vendor::AArch64);
        }
        section
    }

    fn ranges(&self, number: usize, found: &mut Vec<Covered>) {
        for (offset, _) in entries(&self.information) {
            let range = match self.information.format {
                Format::EhFrame => range(&self.eh_frame(), &self.bases, offset),
                Format::DebugFrame => range(&self.debug_frame(), &self.bases, offset),
            };
            found.extend(range.map(|(start, end)| Covered { start, end, source: number, offset }));
        }
    }

    fn check(
        &self,
        offset: usize,
        clip: std::ops::Range<u64>,
        context: &mut UnwindContext<usize, Storage>,
        checker: &mut Checker<'_>,
    ) {
        let whole = match self.information.format {
            Format::EhFrame => check_fde(&self.eh_frame(), self, offset, clip, context, checker),
            Format::DebugFrame => check_fde(&self.debug_frame(), self, offset, clip, context, checker),
        };
        checker.verdict.beyond += u64::from(whole.is_none());
    }
}

/// Returns where each entry begins, and where its content begins behind the length.
fn entries(information: &Information) -> Vec<(usize, usize)> {
    let bytes = &information.bytes;
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(length) = bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|length| u32::from_le_bytes(*length)) {
        if length == 0 && information.terminated {
            break;
        }
        let wide = bytes.get(at + 4..).and_then(|rest| rest.first_chunk()).map(|length| u64::from_le_bytes(*length));
        let (content, length) = match (length, wide) {
            (u32::MAX, None) => break,
            (u32::MAX, Some(length)) => (at + 12, length),
            (length, _) => (at + 4, u64::from(length)),
        };
        let Some(end) = usize::try_from(length).ok().and_then(|length| content.checked_add(length)) else { break };
        if end > bytes.len() {
            break;
        }
        if length > 0 {
            found.push((at, content));
        }
        at = end;
    }
    found
}

/// Returns the place of a CIE's augmentation; `None` for FDEs.
fn augmentation(information: &Information, content: usize) -> Option<std::ops::Range<usize>> {
    let is_cie: &[u8] = if information.format == Format::EhFrame { &[0; 4] } else { &[0xff; 4] };
    let id = information.bytes.get(content..)?.strip_prefix(is_cie)?;
    let letters = id.get(1..)?;
    let length = memchr::memchr(0, letters).filter(|length| *length < 16)?;
    Some(content + 5..content + 5 + length)
}

fn range<'a, S: UnwindSection<Bytes<'a>>>(section: &S, bases: &BaseAddresses, offset: usize) -> Option<(u64, u64)> {
    let fde = section.fde_from_offset(bases, S::Offset::from(offset), S::cie_from_offset).ok()?;
    Some((fde.initial_address(), fde.initial_address().checked_add(fde.len())?))
}

/// Compares the rows of a description; `None` if gimli failed before the end.
fn check_fde<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    prepared: &Prepared,
    offset: usize,
    clip: std::ops::Range<u64>,
    context: &mut UnwindContext<usize, Storage>,
    checker: &mut Checker<'_>,
) -> Option<()> {
    let fde = section.fde_from_offset(&prepared.bases, S::Offset::from(offset), S::cie_from_offset).ok()?;
    let interrupted = prepared.interrupted.binary_search(&fde.cie().offset()).is_ok();
    let encoding = fde.cie().encoding();
    let mut rows = fde.rows(section, &prepared.bases, context).ok()?;
    let arch = checker.arch;
    while let Some(row) = rows.next_row().ok()? {
        let (from, to) = (row.start_address().max(clip.start), row.end_address().min(clip.end));
        if from < to {
            let expected = |address| Expected { address, interrupted }.compute(section, row, encoding, arch);
            checker.row(from, to, expected);
        }
    }
    Some(())
}

/// Registers and memory where every value is different.
struct World;

impl World {
    fn register(number: u64) -> u64 {
        World::memory(number ^ 0x5bd1_e995_7f4a_7c15)
    }

    /// Returns the contents of memory at an address: SplitMix64 of the address.
    fn memory(address: u64) -> u64 {
        let mut z = address.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// The caller's registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Caller {
    sp: u64,
    ra: u64,
    /// `None` if not known.
    fp: Option<u64>,
    rbx: Option<u64>,
    interrupted: bool,
}

/// The effect of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Root,
    To(Caller),
    /// gimli's row has nothing that could be followed.
    Nowhere,
}

struct Expected {
    address: u64,
    interrupted: bool,
}

impl Expected {
    fn compute<'a, S: UnwindSection<Bytes<'a>>>(
        &self,
        section: &S,
        row: &UnwindTableRow<usize, Storage>,
        encoding: gimli::Encoding,
        arch: Arch,
    ) -> Step {
        let evaluate = |expression: &UnwindExpression<usize>, cfa| {
            let expression = expression.get(section).ok()?;
            run(expression.evaluation(encoding), cfa, self.address)
        };
        let rule = |number: u64| row.register(gimli::Register(number as u16));
        if rule(arch.ra()) == Some(RegisterRule::Undefined) {
            return Step::Root;
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                // CFI may name registers beyond the general ones; their values are unknown here.
                arch.reg(register.0.into()).map(|Reg(number)| World::register(number.into()).wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => evaluate(expression, None),
        };
        let Some(cfa) = cfa else { return Step::Nowhere };
        let value = |number: u64, by_default: Option<u64>| match rule(number) {
            None => by_default,
            Some(RegisterRule::SameValue) => Some(World::register(number)),
            Some(RegisterRule::Offset(offset)) => Some(World::memory(cfa.wrapping_add_signed(offset))),
            Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Register(other)) => Some(World::register(other.0.into())),
            Some(RegisterRule::Expression(expression)) => evaluate(&expression, Some(cfa)).map(World::memory),
            Some(RegisterRule::ValExpression(expression)) => evaluate(&expression, Some(cfa)),
            Some(_) => None,
        };
        // A register that was popped: its place is below the stack pointer.
        let saved = |number: u64| match (rule(number), row.cfa()) {
            (Some(RegisterRule::Offset(offset)), CfaRule::RegisterAndOffset { register, offset: size })
                if u64::from(register.0) == u64::from(arch.sp().0) && size.saturating_add(offset) < 0 =>
            {
                Some(World::register(number))
            }
            _ => value(number, Some(World::register(number))),
        };
        let in_link = (arch == Arch::Aarch64).then(|| World::register(arch.ra()));
        let (Some(ra), Some(sp)) = (value(arch.ra(), in_link), value(arch.sp().0.into(), Some(cfa))) else {
            return Step::Nowhere;
        };
        let rbx = saved(RBX.0.into());
        Step::To(Caller { sp, ra, fp: saved(arch.fp().0.into()), rbx, interrupted: self.interrupted })
    }
}

/// Returns the value of an expression in our world.
fn run<R: Reader<Offset = usize>>(mut evaluation: Evaluation<R>, cfa: Option<u64>, address: u64) -> Option<u64> {
    evaluation.set_max_iterations(1000);
    if let Some(cfa) = cfa {
        evaluation.set_initial_value(cfa);
    }
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                evaluation.resume_with_memory(gimli::Value::Generic(World::memory(address))).ok()?
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                let number = u64::from(register.0);
                let value = if number == 16 { address } else { World::register(number) };
                evaluation.resume_with_register(gimli::Value::Generic(value)).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.result().as_slice() {
        [piece] => match piece.location {
            Location::Address { address } => Some(address),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the effect of our rule in the same world, by its formula; `None` if it has none.
fn step(rule: Rule, address: u64, arch: Arch) -> Option<Step> {
    let register = |Reg(number): Reg| World::register(number.into());
    let at = |base: u64, offset: i32| World::memory(base.wrapping_add_signed(offset.into()));
    let rsp = World::register(7);
    Some(match rule {
        Rule::Gap | Rule::Invalid(_) => return None,
        Rule::Root => Step::Root,
        Rule::Signal => Step::To(Caller {
            sp: at(rsp, 160),
            ra: at(rsp, 168),
            fp: Some(at(rsp, 120)),
            rbx: Some(at(rsp, 128)),
            interrupted: true,
        }),
        Rule::Plt { pushed } => {
            let sp = rsp.wrapping_add(if address & 15 >= pushed.into() { 16 } else { 8 });
            let (fp, rbx) = (Some(World::register(6)), Some(register(RBX)));
            Step::To(Caller { sp, ra: at(sp, -8), fp, rbx, interrupted: false })
        }
        Rule::Frame(frame) => frame_step(frame, arch),
    })
}

/// Returns the goroutine that a thread runs.
fn goroutine(arch: Arch, tls: i32, m: i32, curg: i32) -> u64 {
    let at = |base: u64, offset: i32| World::memory(base.wrapping_add_signed(offset.into()));
    // 58 is DWARF's number of fs.base.
    let g = if arch == Arch::X86_64 { at(World::register(58), tls) } else { World::register(28) };
    at(at(g, m), curg)
}

fn frame_step(frame: Frame, arch: Arch) -> Step {
    let register = |Reg(number): Reg| World::register(number.into());
    let at = |base: u64, offset: i32| World::memory(base.wrapping_add_signed(offset.into()));
    let cfa = match frame.cfa {
        Cfa::Register(base, offset) => register(base).wrapping_add_signed(offset.into()),
        Cfa::Deref(base, inner, outer) => at(register(base), inner).wrapping_add_signed(outer.into()),
        Cfa::DerefTwice { base, inner, middle, outer } => at(at(register(base), inner), middle).wrapping_add_signed(outer.into()),
        Cfa::Indexed { base, index, scale, inner, outer } => {
            let sum = register(base).wrapping_add(register(index).wrapping_mul(scale.into()));
            at(sum, inner).wrapping_add_signed(outer.into())
        }
        Cfa::Goroutine { tls, m, curg, sp, outer } => {
            let saved = goroutine(arch, tls, m, curg).wrapping_add_signed(sp.into());
            World::memory(saved).wrapping_add_signed(outer.into())
        }
        Cfa::BelowTop { object, top, depth, outer } => {
            let sp = register(arch.sp());
            at(at(sp, object), top).wrapping_sub(at(sp, depth)).wrapping_add_signed(outer.into())
        }
        Cfa::Thread { m, sp, outer } => at(at(World::register(28), m), sp).wrapping_add_signed(outer.into()),
    };
    let ra = match frame.ra {
        Ra::AtCfa(offset) => at(cfa, offset),
        Ra::Register(number) => register(number),
        Ra::Saved | Ra::Prologue(_) => match frame.cfa {
            Cfa::Goroutine { tls, m, curg, sp, .. } => at(goroutine(arch, tls, m, curg), sp.saturating_add(8)),
            _ => return Step::Nowhere,
        },
    };
    let fp = match frame.fp {
        Fp::Unchanged => Some(register(arch.fp())),
        Fp::AtCfa(offset) => Some(at(cfa, offset)),
        Fp::AtFp(offset) => Some(at(register(arch.fp()), offset)),
        Fp::AtSp(offset) => Some(at(register(arch.sp()), offset)),
        Fp::Register(number) => Some(register(number)),
        Fp::Undefined => None,
    };
    let rbx = match frame.rbx {
        Rbx::Unknown => None,
        Rbx::NextGoroutine if arch == Arch::X86_64 => None,
        Rbx::Unchanged | Rbx::NextGoroutine => Some(register(if arch == Arch::X86_64 { RBX } else { Reg(28) })),
        Rbx::AtCfa(offset) => Some(at(cfa, offset)),
    };
    Step::To(Caller { sp: cfa, ra, fp, rbx, interrupted: frame.interrupted })
}

struct Checker<'t> {
    table: &'t Table,
    paged: &'t Paged,
    arch: Arch,
    verdict: &'t mut Verdict,
}

impl Checker<'_> {
    /// Returns the rule that the kernel will find.
    fn lookup(&self, address: u64) -> Option<Rule> {
        let rule = self.paged.lookup(address).and_then(|rule| self.table.rules.get(usize::from(rule)));
        rule.unwrap_or(&Packed::GAP).rule(self.arch)
    }

    fn row(&mut self, from: u64, to: u64, expected: impl Fn(u64) -> Step) {
        self.verdict.rows += 1;
        let between = from + World::memory(from) % (to - from);
        let mut ruled = true;
        for (nth, address) in [from, to - 1, between].into_iter().enumerate() {
            if nth > 0 && to - from == 1 {
                break;
            }
            let ours = self.lookup(address);
            let found = match ours {
                Some(Rule::Invalid(_)) => {
                    ruled = false;
                    break;
                }
                // Here we follow the kernel's layout of the frame, not CFI, which says to use x29.
                Some(Rule::Signal) if self.arch == Arch::Aarch64 => break,
                ours => ours.and_then(|rule| step(rule, address, self.arch)),
            };
            let expected = expected(address);
            let same = match (found, expected) {
                (Some(Step::To(ours)), Step::To(theirs)) => {
                    ours == Caller { rbx: ours.rbx.and(theirs.rbx), ..theirs } && (ours.rbx.is_none() || theirs.rbx.is_some())
                }
                (found, expected) => found == Some(expected),
            };
            if !same {
                self.verdict.wrong(address, ours, &format!("{expected:x?} and not {found:x?}"));
                break;
            }
        }
        self.verdict.ruled += u64::from(ruled);
        self.verdict.invalid += u64::from(!ruled);
    }

    /// Checks a hole: no description covers `from..to`.
    fn hole(&mut self, from: u64, to: u64) {
        if from >= to || to - from <= PADDING && from != self.table.base {
            return;
        }
        self.verdict.holes += 1;
        for address in [from, to - 1, from + World::memory(from) % (to - from)] {
            let ours = self.lookup(address);
            if ours != Some(Rule::Gap) {
                self.verdict.wrong(address, ours, "a gap");
                break;
            }
        }
    }
}
