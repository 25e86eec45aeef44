//! Finds the paths of cgroups by their ids.
//!
//! The id of a version 2 cgroup is the inode number of its directory: kernfs takes both from one counter (`fs/kernfs/dir.c`).
//! `bpf_get_current_cgroup_id` returns this id.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{CgroupId, sanitize};

/// Most directories that one walk visits. Machines with many containers have thousands.
const MAX_DIRECTORIES: usize = 100_000;

/// Paths of cgroups by id, from the last walk.
pub type CgroupPaths = FxHashMap<CgroupId, Arc<str>>;

/// Finds the paths of cgroups. Walks the file system once, and again when a new id appears.
#[derive(Default)]
pub struct Cgroups {
    root: Option<PathBuf>,
    paths: Arc<CgroupPaths>,
    /// Ids that the last walk did not find: the cgroup was gone before the walk, or is outside of the mounted hierarchy.
    missed: FxHashSet<CgroupId>,
}

impl Cgroups {
    /// Finds the mount point of the cgroup hierarchy. Without one, no cgroup has a path.
    pub fn new() -> Cgroups {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Cgroups { root: mount_point(&mounts), ..Cgroups::default() }
    }

    /// Returns the known paths of these cgroups. A removed cgroup keeps its path while callers still name it.
    pub fn paths(&mut self, wanted: &[CgroupId]) -> Arc<CgroupPaths> {
        let Some(root) = &self.root else { return Arc::default() };
        if wanted.iter().all(|id| self.paths.contains_key(id) || self.missed.contains(id)) {
            return Arc::clone(&self.paths);
        }
        let wanted: FxHashSet<CgroupId> = wanted.iter().copied().collect();
        let mut found: CgroupPaths = walk(root).filter(|(id, _)| wanted.contains(id)).collect();
        for (id, path) in self.paths.iter().filter(|(id, _)| wanted.contains(id)) {
            found.entry(*id).or_insert_with(|| Arc::clone(path));
        }
        self.missed = wanted.into_iter().filter(|id| !found.contains_key(id)).collect();
        self.paths = Arc::new(found);
        Arc::clone(&self.paths)
    }
}

/// Returns the mount point of the version 2 hierarchy, from `/proc/self/mountinfo`:
/// `36 35 98:0 / /mount options - type source options`.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        (file_system.split(' ').next()? == "cgroup2").then(|| PathBuf::from(unescape(mount.split(' ').nth(4).unwrap_or("/"))))
    })
}

/// Decodes a path of mountinfo, in which blanks, tabs, line ends and backslashes are written as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = text.to_owned();
    for (written, meant) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(written, meant);
    }
    out
}

/// Yields `root` and every directory below it, with paths like `/system.slice/nginx.service`.
fn walk(root: &Path) -> impl Iterator<Item = (CgroupId, Arc<str>)> + '_ {
    let mut waiting = vec![root.to_owned()];
    let next = move || -> Option<(CgroupId, Arc<str>)> {
        loop {
            let directory = waiting.pop()?;
            // The cgroup may be gone by now. That is no failure.
            let Ok(about) = fs::symlink_metadata(&directory) else { continue };
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push(entry.path());
                }
            }
            let below = directory.strip_prefix(root).unwrap_or(&directory).to_string_lossy();
            return Some((CgroupId(about.ino()), sanitize(&format!("/{below}")).into()));
        }
    };
    std::iter::from_fn(next).take(MAX_DIRECTORIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_version_2_is_found_beside_others() {
        let hybrid = "25 20 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      30 25 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
                      31 25 0:28 / /sys/fs/cgroup/uni\\040fied rw shared:10 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(hybrid), Some(PathBuf::from("/sys/fs/cgroup/uni fied")));
        assert_eq!(mount_point("30 25 0:27 / /a rw - cgroup cgroup rw\n"), None);
    }

    #[test]
    fn ids_are_inodes_and_what_is_gone_keeps_its_path_while_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("system.slice/evil\u{1b}[31m.service");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("cgroup.procs"), "").unwrap();
        let id = |path: &Path| CgroupId(fs::metadata(path).unwrap().ino());
        let (inner_id, root_id) = (id(&inner), id(root.path()));
        let mut cgroups = Cgroups { root: Some(root.path().to_owned()), ..Cgroups::default() };
        let found = cgroups.paths(&[inner_id, root_id, CgroupId(1)]);
        assert_eq!((&*found[&root_id], &*found[&inner_id]), ("/", "/system.slice/evil·[31m.service"));
        assert_eq!(found.len(), 2, "what was not asked for is not kept");
        fs::remove_dir(&inner).unwrap();
        let again = cgroups.paths(&[inner_id, CgroupId(1)]);
        assert!(Arc::ptr_eq(&found, &again), "an id that was missed is not looked for every second");
        assert_eq!(cgroups.paths(&[inner_id, CgroupId(2)]).len(), 1);
        assert_eq!(cgroups.paths(&[CgroupId(3)]).len(), 0);
    }

    #[test]
    fn our_own_cgroup_has_the_path_that_proc_tells() {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::")) else { return };
        let Some(root) = mount_point(&fs::read_to_string("/proc/self/mountinfo").unwrap()) else { return };
        let Ok(about) = fs::metadata(root.join(path.trim_start_matches('/'))) else { return };
        let id = CgroupId(about.ino());
        assert_eq!(Cgroups::new().paths(&[id]).get(&id).map(|path| &**path), Some(path));
    }
}
