//! Profiles of OpenTelemetry: `ProfilesData`, or a request of the same bytes.
//!
//! ```text
//! ProfilesData = resource profiles (1), dictionary (2)       resource: a process · dictionary: tables of names, functions, locations, stacks
//! resource profiles = resource (1), scope profiles (2)       scope profiles = scope (1), profiles (2): one kind of values each
//! Sample = stack (1), attributes (2): thread and CPU, values (4), times since 1970 (5)
//! ```
//!
//! Index 0 of each table is the empty row. A sample with times and no values counts once for each time. Numbers of fields are those of
//! opentelemetry-proto 1.10 and later. Files of 1.9 have other numbers in samples: values (2), attributes (3). They are told apart and read
//! as well. The same in JSON is converted to these messages, and from them. Source: <https://github.com/open-telemetry/opentelemetry-proto> (`profiles/v1development`).

mod json;
mod read;
mod write;

pub(super) use read::{open, open_json, recognizes};
pub(super) use write::OtlpWriter;
pub use write::otlp_of_samples;

use crate::profile::{FrameKind, Language};

/// Fields of `ProfilesData`.
mod data {
    pub(super) const RESOURCES: u64 = 1;
    pub(super) const DICTIONARY: u64 = 2;
}

/// Tables of the dictionary.
mod tables {
    pub(super) const MAPPINGS: u64 = 1;
    pub(super) const LOCATIONS: u64 = 2;
    pub(super) const FUNCTIONS: u64 = 3;
    pub(super) const LINKS: u64 = 4;
    pub(super) const STRINGS: u64 = 5;
    pub(super) const ATTRIBUTES: u64 = 6;
    pub(super) const STACKS: u64 = 7;
}

/// Names of attributes, after the semantic conventions.
mod keys {
    pub(super) const HOST: &str = "host.name";
    pub(super) const CONTAINER: &str = "container.id";
    pub(super) const CONTAINER_NAME: &str = "container.name";
    /// The parts of a name in Kubernetes: NAMESPACE/POD/CONTAINER.
    pub(super) const IN_POD: [&str; 3] = ["k8s.namespace.name", "k8s.pod.name", "k8s.container.name"];
    pub(super) const POD: &str = "k8s.pod.uid";
    /// The conventions have no name for a cgroup.
    pub(super) const CGROUP: &str = "process.linux.cgroup";
    pub(super) const SERVICE: &str = "service.name";
    pub(super) const PROCESS: &str = "process.pid";
    pub(super) const PROGRAM: &str = "process.executable.name";
    pub(super) const THREAD: &str = "thread.id";
    pub(super) const THREAD_NAME: &str = "thread.name";
    pub(super) const CPU: &str = "cpu.logical_number";
    pub(super) const FRAME_TYPE: &str = "profile.frame.type";
    pub(super) const BUILD_ID: &str = "process.executable.build_id.gnu";
}

/// The types of frames, and the kinds that they have here. The first type of a kind is written.
const FRAME_TYPES: [(&str, FrameKind); 16] = [
    ("kernel", FrameKind::Kernel),
    ("native", FrameKind::User),
    ("cpython", FrameKind::Script(Language::Python)),
    ("jit", FrameKind::Jit),
    // An inlined function, in files that do not say into which function.
    ("inlined", FrameKind::Inlined),
    ("go", FrameKind::User),
    ("rust", FrameKind::User),
    ("jvm", FrameKind::Script(Language::Java)),
    ("v8js", FrameKind::Script(Language::JavaScript)),
    ("dotnet", FrameKind::Jit),
    ("php", FrameKind::Jit),
    ("ruby", FrameKind::Jit),
    ("perl", FrameKind::Jit),
    ("beam", FrameKind::Jit),
    ("luajit", FrameKind::Jit),
    ("abort-marker", FrameKind::Unknown),
];
