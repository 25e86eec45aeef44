//! The mappings that the kernel prints for a process: reads them, asks about them, and compares the answers.

use super::asker::{ANONYMOUS, Answer, Asker, FOUND, Mapping, NONE, NOT_EXECUTABLE, VDSO};

/// `/proc/PID/maps`.
pub(crate) fn maps_of(pid: u32) -> Vec<(Mapping, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next().unwrap().split_once('-').unwrap();
        let executable = words.next().unwrap().as_bytes()[2] == b'x';
        let page_offset = hex(words.next().unwrap()) / rustix::param::page_size() as u64;
        let (major, minor) = words.next().unwrap().split_once(':').unwrap();
        let device = (u32::try_from(hex(major)).unwrap(), u32::try_from(hex(minor)).unwrap());
        let inode = words.next().unwrap().parse().unwrap();
        let name = words.collect::<Vec<_>>().join(" ");
        (Mapping { start: hex(start), end: hex(end), page_offset, device, inode, executable }, name)
    };
    // The vsyscall page is in no tree: the kernel adds it to what it prints.
    text.lines().map(line).filter(|(_, name)| name != "[vsyscall]").collect()
}

/// Devices of overlay file systems, as a process sees them: a container's root is one. Each of its files has two inodes. 6.8 and
/// later print the overlay's. The file system beneath has another: that one is mapped, and we report it.
pub(crate) fn overlays_of(pid: u32) -> Vec<(u32, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let device = |line: &str| {
        let (major, minor) = line.split_ascii_whitespace().nth(2)?.split_once(':')?;
        line.contains(" - overlay ").then_some((major.parse().ok()?, minor.parse().ok()?))
    };
    text.lines().filter_map(device).collect()
}

/// xorshift: the same questions in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Addresses around the borders of mappings, inside of them, and anywhere.
fn questions(maps: &[(Mapping, String)], count: usize) -> Vec<u64> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let ask = |at: usize| {
        let map = &maps[usize::try_from(random.below(maps.len() as u64)).unwrap()].0;
        match at % 6 {
            0 => map.start,
            1 => map.end - 1,
            2 => map.end,
            3 => map.start - 1,
            4 => map.start + random.below(map.end - map.start),
            _ => random.below(1 << 47),
        }
    };
    (0..count).map(ask).collect()
}

/// Describes how an answer differs from the list; `None` if it is right.
pub(crate) fn differs(answer: &Answer, maps: &[(Mapping, String)], overlays: &[(u32, u32)]) -> Option<String> {
    let at = maps.partition_point(|(map, _)| map.end <= answer.address);
    let truth = maps.get(at).filter(|(map, _)| map.start <= answer.address);
    let right = match truth {
        None => answer.result == NONE,
        Some((map, name)) => {
            let of_file = map.inode != 0 || map.device != (0, 0);
            let result = match (map.executable, of_file, name.as_str()) {
                (false, ..) => NOT_EXECUTABLE,
                (true, _, "[vdso]") => VDSO,
                (true, true, _) => FOUND,
                (true, false, _) => ANONYMOUS,
            };
            let mut said = answer.mapping;
            if !of_file {
                // The mapping has an offset in the kernel, which `/proc/PID/maps` does not print.
                said.page_offset = map.page_offset;
            }
            if overlays.contains(&map.device) {
                (said.device, said.inode) = (map.device, map.inode);
            }
            answer.result == result && said == *map
        }
    };
    (!right).then(|| format!("{:#x}: {} {:x?}, and the kernel says {truth:x?}", answer.address, answer.result(), answer.mapping))
}

/// Asks up to a few times, until the process holds still during the questions.
pub(crate) fn compare(asker: &mut Asker, pid: u32, ask: impl Fn(&mut Asker, &[u64]) -> Vec<Answer>) -> Option<usize> {
    for _ in 0..5 {
        let before = maps_of(pid);
        if before.is_empty() {
            return None;
        }
        let answers = ask(asker, &questions(&before, 240));
        if maps_of(pid) != before {
            continue;
        }
        let overlays = overlays_of(pid);
        let wrong: Vec<_> = answers.iter().filter_map(|answer| differs(answer, &before, &overlays)).collect();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        assert!(wrong.is_empty(), "{} of {} wrong in {} ({pid}):\n{}", wrong.len(), answers.len(), name.trim(), wrong.join("\n"));
        assert!(answers.iter().all(|answer| answer.stable || !has_generation()), "no answer of a quiet process is unstable");
        return Some(answers.len());
    }
    None
}

/// Whether this kernel counts changes of mappings: up to 6.0, and from 6.4 on.
pub(crate) fn has_generation() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    !((6, 1)..(6, 4)).contains(&version)
}
