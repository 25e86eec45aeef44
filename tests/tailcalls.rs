//! A BPF program with a tail call gets the same kernel stack at a function's entry as one without, by the kernel's walk and by hand.
//!
//! Both programs are attached to one function, which this test then calls. Their stacks must be equal, frame for frame, and begin
//! with the function and its caller. `tests/vm/events` compares stacks without tail calls with ftrace's.
//!
//! Needs root. Where the kernel offers no fentry (as on our build machines) the test says so; kernels in the guests of `tests/vm`
//! offer it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "common/mod.rs"]
mod common;

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};

use common::root_or_fail;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};

/// `MAX_KERNEL_FRAMES` of bpf/record.h.
const MOST: usize = 127;
const PROGRAMS: [&str; 3] = ["is_called", "goes_on", "is_gone_on_to"];

/// Functions of the kernel, and how many arguments they have; all are called by [`call_all`].
const FUNCTIONS: [(&str, u32); 6] =
    [("__do_sys_getppid", 0), ("ksys_sync", 0), ("fput", 1), ("vfs_read", 4), ("tcp_sendmsg", 3), ("__sys_sendto", 6)];

/// A stack of `struct seen`.
#[derive(PartialEq, Debug)]
struct Found {
    cut: bool,
    frames: Vec<u64>,
}

struct Seen {
    times: u64,
    function: u64,
    by_kernel: Found,
    by_hand: Found,
}

fn seen(object: &Object, number: u32) -> Seen {
    let map = object.maps().find(|map| map.name() == "seen").expect("it is there");
    let value = map.lookup(&number.to_ne_bytes(), MapFlags::ANY).unwrap().expect("an array has all elements");
    let word = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().unwrap());
    let found = |at: usize| {
        let half = |at: usize| u32::from_ne_bytes(value[at..at + 4].try_into().unwrap());
        let frames = (0..half(at) as usize).map(|number| word(at + 8 + 8 * number)).collect();
        Found { cut: half(at + 4) != 0, frames }
    };
    Seen { times: word(0), function: word(8), by_kernel: found(16), by_hand: found(16 + 8 + 8 * MOST) }
}

/// Loads the programs for a function and attaches them. The error is the reason why the kernel refuses.
fn attach(function: &str) -> Result<(Object, Vec<Link>), String> {
    let words = |error: libbpf_rs::Error| format!("{error:#}");
    let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/tailcalls.bpf.o"));
    let mut open = ObjectBuilder::default().open_memory(bytes).expect("our own object");
    let cpus = u32::try_from(libbpf_rs::num_possible_cpus().expect("the kernel tells")).unwrap();
    for mut map in open.maps_mut() {
        if map.name() == "cpu_states" {
            map.set_max_entries(cpus).expect("not loaded yet");
        }
    }
    for mut program in open.progs_mut() {
        let is_ours = PROGRAMS.iter().any(|name| program.name() == *name);
        program.set_autoload(is_ours);
        if is_ours {
            program.set_attach_target(0, Some(function.to_owned())).map_err(words)?;
        }
    }
    let object = open.load().map_err(words)?;
    let map = |name: &str| object.maps().find(|map| map.name() == name).expect("it is there");
    let program = |name: &str| object.progs_mut().find(|program| program.name() == name).expect("it is there");
    let zero = 0u32.to_ne_bytes();
    let next = program("is_gone_on_to").as_fd().as_raw_fd();
    map("next").update(&zero, &next.to_ne_bytes(), MapFlags::ANY).map_err(words)?;
    let links = [program("is_called").attach_trace(), program("goes_on").attach_trace()];
    let links = links.into_iter().collect::<Result<_, _>>().map_err(words)?;
    // Set after both are attached, so that both see the same call.
    map("wanted").update(&zero, &std::process::id().to_ne_bytes(), MapFlags::ANY).expect("an array");
    Ok((object, links))
}

/// Calls each of [`FUNCTIONS`].
fn call_all() {
    assert_ne!(std::os::unix::process::parent_id(), std::process::id());
    rustix::fs::sync();
    assert!(!std::fs::read("/proc/self/stat").expect("it is there").is_empty());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.send_to(b"x", socket.local_addr().unwrap()).expect("to ourselves");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).expect("to ourselves");
    std::io::Write::write_all(&mut stream, b"x").expect("to ourselves");
}

#[test]
fn a_program_with_a_tail_call_sees_the_same_stack() {
    root_or_fail();
    let (mut compared, mut refusals) = (0, Vec::new());
    for (function, arguments) in FUNCTIONS {
        let (object, links) = match attach(function) {
            Ok(attached) => attached,
            Err(why) => {
                refusals.push(format!("{function}: {why}"));
                continue;
            }
        };
        call_all();
        drop(links);
        let (plain, behind) = (seen(&object, 0), seen(&object, 1));
        assert!(plain.times > 0 && behind.times > 0, "{function} was not called");
        println!(
            "{function}, {arguments} arguments: {} frames, by hand {}",
            behind.by_kernel.frames.len(),
            behind.by_hand.frames.len()
        );
        for (which, seen) in [("without", &plain), ("with", &behind)] {
            let (kernel, hand) = (&seen.by_kernel.frames, &seen.by_hand.frames);
            assert_eq!(kernel[0], seen.function, "{function} {which} a tail call does not begin with the function");
            assert!(!seen.by_kernel.cut && kernel.len() >= 3, "{function} {which}: {kernel:x?}");
            // Kernels of x86_64 keep no frame pointers: only the function and its caller are known.
            let known = if cfg!(target_arch = "aarch64") { kernel.len() } else { 2 };
            assert_eq!(hand[..], kernel[..known], "{function} {which} a tail call, by hand");
        }
        assert_eq!(plain.by_kernel, behind.by_kernel, "{function} from a program with a tail call");
        compared += 1;
    }
    if compared == 0 {
        return println!("NOT TESTED: this kernel offers no fentry ({}); make test-vm asks others", refusals.join("; "));
    }
    println!("{compared} functions compared");
    assert!(compared >= 4, "only {compared} functions could be looked at: {}", refusals.join("; "));
}
