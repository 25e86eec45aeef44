//! Conversions in steps: when tables are published, what stops conversions, and that pieces give the same rules as the whole.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::LARGEST_WHOLE;
use super::pieces::EVERY_PIECE;
use crate::cpu_time;
use crate::object::headers::Arch;
use crate::unwind::control::{Control, Ended, Unhurried};
use crate::unwind::convert::{convert, convert_by, convert_in_steps};
use crate::unwind::debug_frame_files::Nowhere;
use crate::unwind::table::rows::Table;
use crate::unwind::table::rule::{Cfa, Frame, Reg, Rule};

/// Bytes from one of the functions below to the next.
const EACH: u64 = 64;

/// A library without unwind information that is analysed in pieces: functions with frames that call others far away.
///
/// ```text
/// push rbx; sub rsp, 48; call (another); add rsp, 48; pop rbx; ret
/// ```
fn large_library(functions: u64) -> Vec<u8> {
    let mut code = Vec::new();
    for number in 0..functions {
        let other = (number * 7919 + 31) % functions;
        let distance = (other as i64 - number as i64) * EACH as i64 - 10;
        let mut function = vec![0x53, 0x48, 0x83, 0xec, 48, 0xe8];
        function.extend((distance as i32).to_le_bytes());
        function.extend([0x48, 0x83, 0xc4, 48, 0x5b, 0xc3]);
        function.resize(EACH as usize, 0xcc);
        code.extend(function);
    }
    crate::unwind::tests::elf_with_code(&code)
}

/// The size of the frame behind the `sub` of a function.
fn frame(table: &Table, number: u64) -> Option<i32> {
    let address = table.code.first()?.address + number * EACH + 5;
    match table.lookup(address).rule(Arch::X86_64)? {
        Rule::Frame(Frame { cfa: Cfa::Register(Reg(7), size), .. }) => Some(size),
        _ => None,
    }
}

/// Stops after `left` questions, and has hints.
struct Asked {
    left: Cell<u64>,
    hints: RefCell<Vec<u64>>,
    /// Whether a hint named the code of each piece.
    hinted: RefCell<Vec<bool>>,
}

impl Asked {
    fn new(most: u64, hints: &[u64]) -> Asked {
        Asked { left: Cell::new(most), hints: RefCell::new(hints.to_vec()), hinted: RefCell::default() }
    }
}

impl Control for Asked {
    fn keep_going(&self) -> bool {
        self.left.set(self.left.get().saturating_sub(1));
        self.left.get() > 0
    }

    fn take_hints(&self, hints: &mut Vec<u64>) {
        hints.append(&mut self.hints.borrow_mut());
    }

    fn goes_on_with(&self, is_hinted: bool) {
        self.hinted.borrow_mut().push(is_hinted);
    }
}

const FUNCTIONS: u64 = 2 * LARGEST_WHOLE / EACH;

/// Returns all tables that are published if that is done after each piece, and how the conversion ended.
fn steps(image: &[u8], control: &dyn Control) -> (Vec<(Table, u64)>, Ended) {
    let mut steps = Vec::new();
    let ended = convert_by(image, &Nowhere, control, EVERY_PIECE, &mut |step| steps.push((step.table.clone(), step.left())));
    (steps, ended.unwrap())
}

#[test]
fn pieces_become_the_table_of_the_whole() {
    let image = large_library(FUNCTIONS);
    let table = convert(image.as_slice(), &Nowhere).unwrap();
    let wrong: Vec<u64> = (0..FUNCTIONS).filter(|number| frame(&table, *number) != Some(64)).collect();
    assert_eq!(wrong, Vec::<u64>::new());
    assert!(table.report.covered + 64 >= table.report.text, "{:?}", table.report);
}

#[test]
fn the_first_step_is_unwind_information_and_the_last_is_the_whole_table() {
    let image = large_library(FUNCTIONS);
    let (steps, ended) = steps(&image, &Unhurried);
    assert_eq!(ended, Ended::Whole);
    let lefts: Vec<u64> = steps.iter().map(|(_, left)| *left).collect();
    assert!(lefts.len() > 4 && lefts.is_sorted_by(|one, other| one > other), "{lefts:?}");
    let (first, left) = steps.first().unwrap();
    assert_eq!((first.report.from_code, first.rows.len(), *left), (0, 0, FUNCTIONS * EACH));
    let (last, left) = steps.last().unwrap();
    assert_eq!((last, *left), (&convert(image.as_slice(), &Nowhere).unwrap(), 0));
    // Tables in between have nothing that the last one lacks.
    for (table, _) in &steps {
        for number in (0..FUNCTIONS).step_by(97) {
            assert!(matches!(frame(table, number), None | Some(64)), "{number}");
        }
    }
}

#[test]
fn code_with_hints_is_analysed_first_and_the_last_table_is_the_same() {
    let image = large_library(FUNCTIONS);
    let whole = convert(image.as_slice(), &Nowhere).unwrap();
    let address = |number: u64| whole.base + number * EACH;
    let hinted = [FUNCTIONS - 7, FUNCTIONS / 2];
    let asked = Asked::new(u64::MAX, &hinted.map(address));
    let (steps, _) = steps(&image, &asked);
    assert!(asked.hinted.borrow().starts_with(&[true, true, false, false]));
    let known = |step: usize| [0, hinted[0], hinted[1]].map(|number| frame(&steps[step].0, number).is_some());
    assert_eq!([0, 1, 2, 3].map(known), [[false; 3], [false, true, false], [false, true, true], [true; 3]]);
    assert_eq!(steps.last().unwrap().0, whole);
}

#[test]
fn what_is_stopped_publishes_nothing_that_is_not_in_the_whole_table() {
    let image = large_library(FUNCTIONS);
    let whole = convert(image.as_slice(), &Nowhere).unwrap();
    let mut tables = 0;
    for most in [1, 2, 30, 60, 100, 200] {
        let (steps, ended) = steps(&image, &Asked::new(most, &[]));
        tables = tables.max(steps.len());
        assert!(ended == Ended::Whole || steps.iter().all(|(_, left)| *left > 0), "{most}");
        for (table, _) in &steps {
            for number in 0..FUNCTIONS {
                assert!(frame(table, number).is_none_or(|size| frame(&whole, number) == Some(size)), "{most}: {number}");
            }
        }
    }
    assert!(tables > 2, "{tables}");
    assert_eq!(steps(&image, &Asked::new(1, &[])).1, Ended::Stopped);
}

#[test]
fn the_caller_is_asked_often_and_tables_come_seldom() {
    let image = large_library(FUNCTIONS);
    let (asked, begin) = (Asked::new(u64::MAX, &[]), cpu_time::of_this_thread());
    let mut tables = 0;
    convert_in_steps(image.as_slice(), &Nowhere, &asked, &mut |_| tables += 1).unwrap();
    let (questions, took) = (u64::MAX - asked.left.get(), cpu_time::since(begin));
    assert!(Duration::from_millis(20) * questions as u32 > took, "{questions} in {took:?}");
    assert!(tables as u128 <= 2 + took.as_millis() / 250, "{tables} in {took:?}");
}
