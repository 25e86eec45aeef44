//! The names of containers, as their runtimes keep them. Only root writes these files.
//!
//! ```text
//! Docker       /var/lib/docker/containers/ID/config.v2.json                            Name: "/web"
//! Podman       /var/lib/containers/storage/overlay-containers/containers.json          [{id, names: ["web"]}]
//! containerd   /run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json     annotations of Kubernetes
//! CRI-O        /run/containers/storage/overlay-containers/ID/userdata/config.json      the same, by other names
//! ```

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Deserialize;

use crate::profile::{CgroupId, Place, sanitize};

/// Bytes of a file that are read.
const LONGEST: u64 = 4 << 20;
/// Most containers whose files are read at one time, and most that are remembered.
const AT_ONCE: usize = 32;
const MOST: usize = 4096;
/// Most readings for a container without a name: its file is there when it starts.
const TRIES: u8 = 3;
/// Users make cgroups below it. Names of root's containers are not for them.
const OF_USERS: &str = "/user.slice/";

/// Containers whose files were read.
pub(super) struct Containers {
    root: PathBuf,
    known: FxHashMap<String, Known>,
}

#[derive(Default)]
struct Known {
    name: Option<Arc<str>>,
    tries: u8,
}

/// The content of such a file.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Config {
    #[serde(rename = "Name")]
    name: String,
    annotations: FxHashMap<String, String>,
}

#[derive(Deserialize)]
struct Stored {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

/// Keys of annotations: the pod's namespace, the pod, the container in it.
const ANNOTATIONS: [[&str; 3]; 2] = [
    ["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name"],
    ["io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name"],
];

impl Containers {
    pub(super) fn new() -> Containers {
        Containers::below(Path::new("/"))
    }

    fn below(root: &Path) -> Containers {
        Containers { root: root.to_owned(), known: FxHashMap::default() }
    }

    /// Returns the names of the containers that cgroups belong to. The others have only a number.
    pub(super) fn names(&mut self, paths: &FxHashMap<CgroupId, Arc<str>>) -> Arc<FxHashMap<CgroupId, Arc<str>>> {
        let of_root = || paths.iter().filter(|(_, path)| !path.starts_with(OF_USERS));
        let ids = || of_root().filter_map(|(cgroup, path)| Some((*cgroup, Place::of(path).container?)));
        let is_new = |id: &&str| self.known.get(*id).is_none_or(|known| known.name.is_none() && known.tries < TRIES);
        let new: Vec<&str> = ids().map(|(_, id)| id).filter(is_new).take(AT_ONCE).collect();
        if self.known.len() + new.len() > MOST {
            self.known.clear();
        }
        let stored = if new.is_empty() { FxHashMap::default() } else { self.stored() };
        for id in new {
            let found = self.name_of(id).or_else(|| stored.get(id).cloned()).filter(|name| !name.is_empty());
            let known = self.known.entry(id.to_owned()).or_default();
            known.tries += 1;
            known.name = found.map(|name| sanitize(&name).into());
        }
        Arc::new(ids().filter_map(|(cgroup, id)| Some((cgroup, self.known.get(id)?.name.clone()?))).collect())
    }

    /// Finds the name of a container in the file that its runtime keeps for it.
    fn name_of(&self, id: &str) -> Option<String> {
        let places = [
            format!("var/lib/docker/containers/{id}/config.v2.json"),
            format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json"),
            format!("run/containers/storage/overlay-containers/{id}/userdata/config.json"),
        ];
        places.iter().find_map(|place| {
            let Config { name, annotations } = serde_json::from_slice(&self.read(place)?).ok()?;
            let of_pod = ANNOTATIONS.iter().find_map(|keys| {
                let words: Vec<&str> = keys.iter().filter_map(|key| Some(annotations.get(*key)?.as_str())).collect();
                (words.len() == keys.len()).then(|| words.join("/"))
            });
            of_pod.or_else(|| Some(name.trim_start_matches('/').to_owned()).filter(|name| !name.is_empty()))
        })
    }

    /// Reads Podman's list.
    fn stored(&self) -> FxHashMap<String, String> {
        let list = self.read("var/lib/containers/storage/overlay-containers/containers.json");
        let list: Vec<Stored> = list.and_then(|list| serde_json::from_slice(&list).ok()).unwrap_or_default();
        list.into_iter().filter_map(|Stored { id, names }| Some((id, names.into_iter().next()?))).collect()
    }

    fn read(&self, place: &str) -> Option<Vec<u8>> {
        let file = File::open(self.root.join(place)).ok()?;
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_runtimes_have_names() {
        let root = tempfile::tempdir().unwrap();
        let id = |digit: &str| digit.repeat(64);
        let file = |path: String, content: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        file(
            format!("var/lib/docker/containers/{}/config.v2.json", id("a")),
            r#"{"ID":"aa","Name":"/web","Config":{"Labels":{}}}"#,
        );
        let annotations = |keys: [&str; 3]| {
            format!(
                r#"{{"ociVersion":"1","annotations":{{"{}":"shop","{}":"api-7f","{}":"server"}}}}"#,
                keys[0], keys[1], keys[2]
            )
        };
        file(
            format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json", id("b")),
            &annotations(ANNOTATIONS[0]),
        );
        file(format!("run/containers/storage/overlay-containers/{}/userdata/config.json", id("c")), &annotations(ANNOTATIONS[1]));
        let list = format!(r#"[{{"id":"{}","names":["db\u001b"],"layer":"x"}},{{"id":"{}"}}]"#, id("d"), id("e"));
        file("var/lib/containers/storage/overlay-containers/containers.json".to_owned(), &list);
        file(format!("var/lib/docker/containers/{}/config.v2.json", id("f")), "not JSON");
        let paths = ["a", "b", "c", "d", "e", "f"]
            .iter()
            .zip(1..)
            .map(|(digit, number)| (CgroupId(number), Arc::from(format!("/system.slice/docker-{}.scope", id(digit)))));
        // A user calls a cgroup like a container of root's.
        let false_one = format!("/user.slice/user-1000.slice/user@1000.service/docker-{}.scope", id("a"));
        let others = [(CgroupId(8), Arc::from(false_one)), (CgroupId(9), Arc::from("/system.slice/ssh.service"))];
        let paths = paths.chain(others).collect();
        let mut containers = Containers::below(root.path());
        let names = containers.names(&paths);
        let name = |number: u64| names.get(&CgroupId(number)).map(|name| &**name);
        assert_eq!(
            (1..=9).map(name).collect::<Vec<_>>()[..4],
            [Some("web"), Some("shop/api-7f/server"), Some("shop/api-7f/server"), Some("db·")]
        );
        assert!((5..=9).all(|number| name(number).is_none()));
        // A name that comes later is found.
        file(format!("var/lib/docker/containers/{}/config.v2.json", id("f")), r#"{"Name":"/late"}"#);
        assert_eq!(containers.names(&paths).get(&CgroupId(6)).map(|name| &**name), Some("late"));
        // Those without a name keep no other one from being found.
        let many = (100..200).map(|number| (CgroupId(number), Arc::from(format!("/docker/{number:064x}"))));
        let many: FxHashMap<CgroupId, Arc<str>> = many.collect();
        file(format!("var/lib/docker/containers/{:064x}/config.v2.json", 177), r#"{"Name":"/one"}"#);
        let found = (0..20).map(|_| containers.names(&many)).find(|names| !names.is_empty()).unwrap();
        assert_eq!(found.get(&CgroupId(177)).map(|name| &**name), Some("one"));
    }
}
