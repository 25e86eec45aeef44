//! Costs of a look-up, compared with other ways to the same answer.

use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};

use super::asker::{Asker, Mapping, REQUESTS, u64_at};
use super::common::{Program, alone};
use super::proc_maps::{Random, maps_of};

/// Fills the trie as the OpenTelemetry profiler does: a mapping is a set of prefixes.
fn fill_trie(asker: &Asker, pid: u32, maps: &[(Mapping, String)]) -> usize {
    let trie = asker.map("trie");
    let mut prefixes = 0;
    for (map, _) in maps {
        let mut at = map.start;
        while at < map.end {
            let mut bits = at.trailing_zeros().min(46);
            while at + (1 << bits) > map.end {
                bits -= 1;
            }
            let mut key = (96 - bits).to_ne_bytes().to_vec();
            key.extend(pid.to_be_bytes());
            key.extend(at.to_be_bytes());
            trie.update(&key, &1u64.to_ne_bytes(), MapFlags::ANY).unwrap();
            prefixes += 1;
            at += 1 << bits;
        }
    }
    prefixes
}

/// Prints what a look-up costs; `cargo test --test mappings prices -- --ignored --nocapture`.
#[test]
#[ignore = "measures for half a minute"]
fn prices_of_look_ups() {
    let _alone = alone();
    let program = Program::build("mappings.c");
    println!("nanoseconds     first of a tick   at random   one address   (less what nothing costs)");
    for count in ["2", "180", "2980"] {
        let busy = program.run(&["60", "many", count]);
        let maps = maps_of(busy.pid());
        let forms = ["nothing", "in place", "by copies", "LPM trie", "bpf_find_vma"];
        let names = ["measure_0", "measure_1", "measure_2", "measure_3", "measure_4"];
        let mut asker = Asker::load_with(false, &names);
        let prefixes = fill_trie(&asker, busy.pid(), &maps);
        // Only addresses inside of mappings: a trie's misses are not compared.
        let mut random = Random(7);
        let mut pick = |_| {
            let map = &maps[usize::try_from(random.below(maps.len() as u64)).unwrap()].0;
            map.start + random.below(map.end - map.start)
        };
        asker.ask(busy.pid(), &(0..REQUESTS).map(&mut pick).collect::<Vec<_>>());
        println!("{} mappings, {prefixes} prefixes", maps.len());
        // In turn, so that a disturbance of the machine affects all of them.
        for _ in 0..6 {
            for name in names {
                let links = asker.start_clocks(name, 499);
                std::thread::sleep(Duration::from_millis(400));
                drop(links);
            }
        }
        let price = |form: u32| {
            let bytes = asker.map("prices").lookup(&form.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            let [ticks, first, random, same, failed, second] = [0, 8, 16, 24, 32, 40].map(|at| u64_at(&bytes, at) as f64);
            ([first / ticks, random / ticks / 32.0, same / ticks / 32.0], ticks, failed, second)
        };
        let nothing = price(0).0;
        for (form, name) in forms.iter().enumerate() {
            let (all, ticks, failed, second) = price(u32::try_from(form).unwrap());
            let [first, random, same] = [0, 1, 2].map(|at| if form == 0 { all[at] } else { all[at] - nothing[at] });
            print!("  {name:<14} {first:>12.0}");
            if *name == "bpf_find_vma" {
                println!(
                    "            -             -   {ticks} ticks, {failed} failed; a second call in one tick: {second} failed"
                );
            } else {
                println!(" {random:>12.1} {same:>13.1}   {ticks} ticks, {failed} failed");
            }
        }
    }
}
