//! flametop's own cost: always on screen, and printed at the end of a recording.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::allocator;
use crate::cpu_time;
use crate::profile::{EventSource, EventStatus};
use crate::ui::Heap;

/// flametop's own cost.
pub(super) struct Cost {
    cpu: Duration,
    at: Instant,
}

impl Cost {
    pub(super) fn new() -> Cost {
        Cost { cpu: cpu_time::of_this_process(), at: Instant::now() }
    }

    /// Returns the CPU time since the last call, in per cent of one CPU.
    pub(super) fn measure(&mut self) -> f64 {
        let (cpu, at) = (cpu_time::of_this_process(), Instant::now());
        let wall = at.duration_since(self.at).as_secs_f64().max(0.001);
        let share = (cpu.saturating_sub(self.cpu)).as_secs_f64() * 100.0 / wall;
        (self.cpu, self.at) = (cpu, at);
        share
    }
}

/// Measures the CPU time that programs lose to sources of events.
#[derive(Default)]
pub(super) struct CostOfProbes {
    /// Nanoseconds at the last call.
    so_far: FxHashMap<EventSource, u64>,
    at: Option<Instant>,
}

impl CostOfProbes {
    /// Returns the CPU time that programs lost since the last call, in per cent of one CPU.
    pub(super) fn measure(&mut self, events: &[EventStatus]) -> f64 {
        let at = Instant::now();
        let before = std::mem::replace(&mut self.so_far, events.iter().map(|event| (event.source, event.cost)).collect());
        let lost: u64 =
            events.iter().map(|event| event.cost.saturating_sub(before.get(&event.source).copied().unwrap_or(0))).sum();
        let wall = self.at.replace(at).map_or(1.0, |before| at.duration_since(before).as_secs_f64().max(0.001));
        lost as f64 / 1e7 / wall
    }
}

/// Returns the resident bytes, and how many of them are files and buffers of the kernel: the second and third number of /proc/self/statm,
/// which are in pages.
pub(super) fn own_memory() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|pages| pages.parse().unwrap_or(0) * rustix::param::page_size());
    let (resident, mapped) = (numbers.nth(1), numbers.next());
    (resident.unwrap_or(0), mapped.unwrap_or(0))
}

/// Returns the memory that the allocator manages. `None` if that is not known.
///
/// The kernel looks at each page of the mappings that are read. The heap is one of the first, so few are read.
pub(super) fn own_heap() -> Option<Heap> {
    let resident = resident_heap(BufReader::new(File::open("/proc/self/smaps").ok()?))?;
    Some(Heap { resident: resident + allocator::mapped_pieces(), in_use: allocator::in_use() })
}

/// Returns the resident bytes of the heap, from `/proc/PID/smaps`.
fn resident_heap(smaps: impl BufRead) -> Option<usize> {
    let lines = smaps.lines().map_while(Result::ok);
    let mut of_heap = lines.skip_while(|line| line.split_whitespace().nth(5) != Some("[heap]"));
    let resident = of_heap.find(|line| line.starts_with("Rss:"))?;
    resident.split_whitespace().nth(1)?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::Meter;
    use crate::profile::names::objects::OF_AN_OBJECT;
    use crate::profile::{FileOffset, Frame, FrameKind, Names, Object, ObjectKind};

    #[test]
    fn the_heap_is_found_among_mappings() {
        let mapping = |path: &str, kilobytes: u32| {
            format!("7f00-7f10 rw-p 00000000 00:00 0    {path}\nSize: 999 kB\nRss:      {kilobytes} kB\nPss: 1 kB\n")
        };
        let smaps = [mapping("/tmp/a [heap]", 1), mapping("", 2), mapping("[heap]", 300), mapping("[stack]", 4)].concat();
        assert_eq!(resident_heap(smaps.as_bytes()), Some(300 << 10));
        assert_eq!(resident_heap(mapping("[stack]", 4).as_bytes()), None);
        assert!(own_heap().is_some_and(|heap| heap.in_use > 10_000 && heap.resident > 10_000));
    }

    #[test]
    fn the_bytes_that_are_counted_are_those_that_names_take() {
        for programs in [100, 400, 700, 1000, 1300, 1600, 2000] {
            let meter = Meter::default();
            let names = meter.measure(|| {
                let names = Names::default();
                for program in 0..programs {
                    let path = format!("/tmp/programs/p{program}");
                    let file = Some((program, program));
                    let object =
                        names.objects.intern(Object { kind: ObjectKind::Elf, path: path.into(), file, ..Object::default() });
                    for address in 0..10 {
                        let offset = FileOffset(address * 100);
                        let (frame, _) = names.intern_frame(Frame::File { object, offset, is_return: true });
                        let label = |name: &str| names.labels.intern(name, &format!("p{program}"), FrameKind::User);
                        let labels = [label(&format!("function_{address}")), label("inlined")];
                        names.name_frame(frame, labels.get(..1 + usize::from(address == 0)).unwrap());
                    }
                }
                names
            });
            let (counted, taken) = (names.memory() - programs as usize * OF_AN_OBJECT, meter.bytes());
            assert!(counted * 10 > taken * 9 && counted * 9 < taken * 10, "{programs}: {counted} counted of {taken}");
        }
    }
}
