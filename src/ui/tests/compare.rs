//! Tests a baseline, and differences to it.

use super::*;
use crate::profile::{Baseline, Clock};

#[test]
fn the_baselines_weight_has_its_own_unit() {
    let mut bench = Bench::new();
    bench.keys("d");
    for (unit, words) in [
        (Unit::Nanoseconds, "Δ to 2.50 s"),
        (Unit::Bytes, "Δ to 2500 MB"),
        (Unit::Events, "Δ to 2.5G events"),
        (Unit::Samples, "Δ to 2.5G samples"),
    ] {
        let baseline = Baseline::Samples(2_500_000_000, unit);
        let snapshot = Snapshot { baseline, ..(*bench.app.scene.snapshot).clone() };
        bench.send(Event::Snapshot(Arc::new(snapshot)));
        assert!(bench.app.scene.baseline_words().starts_with(words), "{}", bench.app.scene.baseline_words());
    }
}

#[test]
fn what_follows_is_compared_with_what_was_marked() {
    let mut bench = Bench::new();
    bench.keys("d");
    assert!(bench.screen(80, 24).contains("no samples before the last 10 s; b marks a baseline"));
    bench.keys("b");
    assert!(bench.screen(100, 24).contains("the samples shown are the baseline; d compares later samples with it"));
    bench.keys("d");
    assert_eq!(bench.asked.last().unwrap().query.range, TimeRange::Between(Timestamp(7 * SECOND), Timestamp(u64::MAX)));
    // Nothing was sampled since then. The last of the five seconds has only postgres.
    assert!(bench.screen(120, 24).contains("Δ to 100 samples"));
    bench.keys("m");
    let difference = bench.app.scene.snapshot.difference.clone().unwrap();
    assert_eq!(difference.whole().before, 100);
    bench.keys("c");
    bench.app.scene.span = Span::Between(Timestamp(5 * SECOND), Timestamp(7 * SECOND));
    bench.keys("g");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("+65.0") && screen.contains("-65.0"), "postgres has grown, nginx is gone\n{screen}");
    bench.keys("jl");
    let screen = bench.screen(120, 24);
    assert!(screen.contains("was 1.75 s (35.0 %)") && screen.contains("now 1.05 s (100 %)"), "{screen}");
    bench.keys("2");
    let screen = bench.screen(120, 24);
    let line = |name: &str| screen.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line("parse").contains("-40.0") && line("sort").contains("+18.8"), "{screen}");
    // A click removes the chip and restores the view.
    bench.keys("1");
    let screen = bench.screen(120, 24);
    let column = screen.lines().nth(1).unwrap().chars().collect::<String>().find("Δ to").unwrap();
    bench.click(u16::try_from(screen.lines().nth(1).unwrap()[..column].chars().count()).unwrap(), 1);
    assert!(!bench.app.scene.compare.on && bench.app.scene.snapshot.difference.is_none());
}

#[test]
fn rates_are_compared_where_time_is_known() {
    let mut bench = Bench::new();
    // 20 samples a second from second 1 on: nginx until 4.25, then postgres until 6, then none.
    let clock = Clock { period: SECOND / 20, cpus: 1, since: Timestamp(SECOND), until: None };
    bench.profile.write().unwrap().set_clock(clock);
    bench.keys("bd");
    assert!(bench.screen(120, 24).contains("difference in CPUs: red grew"), "{}", bench.screen(120, 24));
    bench.app.scene.span = Span::Between(Timestamp(5 * SECOND), Timestamp(7 * SECOND));
    bench.keys("g");
    let screen = bench.screen(120, 24);
    // In the six seconds of the baseline, postgres had 35 samples and nginx 65. In the last two, postgres has 21.
    assert!(screen.contains("+0.23") && screen.contains("-0.54"), "{screen}");
    assert!(screen.contains("0.53 CPUs  -0.31"), "{screen}");
    assert!(screen.lines().rev().nth(1).unwrap().contains("now 0.53 CPUs  was 0.83 CPUs  -0.31"), "{screen}");
    bench.keys("2");
    let screen = bench.screen(120, 24);
    let line = |screen: &str, name: &str| screen.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line(&screen, "function   ").contains("CPUs") && line(&screen, "parse").contains("-0.33"), "{screen}");
    bench.keys("%");
    let screen = bench.screen(120, 24);
    assert!(line(&screen, "function   ").contains("points") && line(&screen, "parse").contains("-40.0"), "{screen}");
    assert!(screen.contains("difference in percentage points of all samples"), "{screen}");
    // Processes show the difference, too, and processes that have disappeared are listed.
    bench.keys("%3");
    let screen = bench.screen(120, 24);
    let figures = |name: &str| {
        let line = line(&screen, name).replace('"', "");
        line.split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(figures("nginx"), ["10", "0.00", "0.54", "-0.54"], "{screen}");
    assert_eq!(figures("postgres"), ["20", "0.53", "0.29", "+0.23"], "{screen}");
    assert!(screen.find("nginx  ").unwrap() < screen.find("postgres  ").unwrap(), "the most changed first\n{screen}");
    bench.keys("1");
    // The time after the end of sampling is not idle time.
    bench.app.scene.span = Span::All;
    bench.app.scene.frozen = None;
    bench.profile.write().unwrap().end_clock(Timestamp(6 * SECOND));
    bench.keys("dbd");
    bench.app.scene.span = Span::Between(Timestamp(0), Timestamp(100 * SECOND));
    bench.keys("g");
    assert!(bench.screen(120, 24).contains("now 1.00 CPUs  was 1.00 CPUs"), "{}", bench.screen(120, 24));
    // In a fading past, seconds weigh as their samples do.
    bench.app.scene.span = Span::Fading(3);
    bench.keys("g");
    assert!(bench.screen(120, 24).contains("now 1.0"), "{}", bench.screen(120, 24));
}

#[test]
fn a_marked_process_is_seen_beside_another_one() {
    let mut bench = Bench::new();
    bench.app.aim(vec![Tgid(10)], None);
    bench.keys("b");
    bench.app.aim(vec![Tgid(20)], None);
    bench.keys("d");
    bench.app.scene.span = Span::Between(Timestamp(0), Timestamp(100 * SECOND));
    bench.keys("g");
    let difference = bench.app.scene.snapshot.difference.clone().unwrap();
    assert_eq!((difference.whole().now, difference.whole().before), (35, 65));
    // A choice within the marked samples applies to both sides.
    bench.app.aim(vec![Tgid(10)], Some(Tid(10)));
    bench.keys("g");
    assert_eq!(bench.app.scene.snapshot.difference.as_ref().unwrap().whole().before, 65);
    bench.keys("&parse");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.scene.snapshot.difference.as_ref().unwrap().whole().before, 40);
    bench.keys("x");
    // If a baseline was marked without a target, the target chosen now applies to both sides.
    bench.keys("Xdb");
    bench.app.aim(vec![Tgid(20)], None);
    bench.keys("d");
    let difference = bench.app.scene.snapshot.difference.clone().unwrap();
    assert_eq!((difference.whole().now, difference.whole().before), (35, 35));
    bench.keys("u");
    assert_eq!(bench.app.scene.snapshot.difference.as_ref().unwrap().whole().before, 35, "bottom-up as well");
    bench.keys("w");
    bench.key(KeyCode::Enter);
    let Some(Effect::Save(order)) = bench.others.last() else { panic!("{:?}", bench.others) };
    assert!(order.difference.is_some() && order.title.contains("difference"));
    for _ in 0..3 {
        assert!(bench.app.scene.compare.on, "Esc leaves it after the time and the target");
        bench.key(KeyCode::Esc);
    }
    assert!(!bench.app.scene.compare.on && bench.app.scene.span == Span::All && bench.app.scene.target().is_everything());
}

#[test]
fn beside_a_fading_past_both_sides_are_told_in_samples() {
    let mut bench = Bench::new();
    bench.keys("bd");
    bench.app.scene.span = Span::Fading(10);
    bench.keys("g");
    let difference = bench.app.scene.snapshot.difference.clone().unwrap();
    assert_eq!((difference.whole().before, bench.app.scene.snapshot.one), (100, 1));
    assert!((70..90).contains(&difference.whole().now), "{:?}", difference.whole());
    assert!(bench.screen(120, 24).contains("was 5.00 s (100 %)"), "{}", bench.screen(120, 24));
    bench.keys("d");
    assert!(bench.app.scene.snapshot.difference.is_none() && bench.app.scene.snapshot.one > 1);
    assert!((70..90).contains(&bench.app.scene.snapshot.amount()));
}

#[test]
fn a_baseline_that_was_refused_is_told_and_gone() {
    let mut bench = Bench::new();
    bench.keys("bd");
    let snapshot = Snapshot { baseline: Baseline::TooLarge, ..(*bench.app.scene.snapshot).clone() };
    bench.send(Event::Snapshot(Arc::new(snapshot)));
    assert!(bench.screen(120, 24).contains("more than a quarter of --memory; choose a shorter time or one process"));
    assert!(bench.app.scene.compare.baseline.is_none() && !bench.app.scene.compare.on);
}
