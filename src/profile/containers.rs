//! Containers and services, by the paths of their cgroups.
//!
//! ```text
//! /system.slice/docker-ID.scope                                                   Docker, by systemd
//! /docker/ID                                                                      Docker
//! /machine.slice/libpod-ID.scope/container                                        Podman
//! /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope    Kubernetes, by systemd: UID with _ for -
//! /kubepods/burstable/podUID/ID                                                   Kubernetes
//! /system.slice/nginx.service                                                     a service of systemd
//! ```
//!
//! ID has 64 hexadecimal digits.

/// What a cgroup is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place<'a> {
    /// The number of a container.
    pub container: Option<&'a str>,
    /// The number of a pod, with `_` for `-` if systemd has made the cgroup.
    pub pod: Option<&'a str>,
    /// A unit of systemd: `nginx.service`.
    pub unit: Option<&'a str>,
}

impl<'a> Place<'a> {
    /// Returns what a path of cgroup v2 tells.
    #[must_use]
    pub fn of(path: &'a str) -> Place<'a> {
        let mut place = Place::default();
        for part in path.split('/') {
            let name = part.strip_suffix(".scope").unwrap_or(part);
            // The innermost container counts: one may be inside another.
            let id = name.rsplit('-').next().unwrap_or(name);
            if id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && !name.contains("conmon") {
                place.container = Some(id);
            }
            let pod = part.strip_suffix(".slice").unwrap_or(part);
            let uid = pod.rsplit_once("pod").filter(|(before, _)| before.is_empty() || before.ends_with('-')).map(|(_, uid)| uid);
            if let Some(uid) = uid
                .filter(|uid| uid.len() == 36 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_')))
            {
                place.pod = Some(uid);
            }
            // `user@1000.service` is the manager of a user's own units.
            if part.ends_with(".service") && !part.starts_with("user@") {
                place.unit = Some(part);
            }
        }
        place
    }
}

/// Returns a short name of a cgroup: its service of systemd, or the end of its path, which says more than the beginning.
#[must_use]
pub fn cgroup_name(path: &str) -> &str {
    let last = || path.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or("/");
    Place::of(path).unit.unwrap_or_else(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f4a0b1c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccdde";

    #[test]
    fn containers_are_found_in_all_forms() {
        for path in [
            "/system.slice/docker-ID.scope",
            "/docker/ID",
            "/machine.slice/libpod-ID.scope/container",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope",
            "/kubepods.slice/kubepods-pod0123_.slice/crio-ID.scope",
            "/system.slice/containerd.service/kubepods-besteffort.slice:cri-containerd-ID",
            "/docker/0000000000000000000000000000000000000000000000000000000000000000/docker/ID/init.scope",
        ] {
            assert_eq!(Place::of(&path.replace("ID", ID)).container, Some(ID), "{path}");
        }
        for path in ["/", "", "/system.slice/docker.service", "/machine.slice/libpod-conmon-ID.scope", "/docker/ID0"] {
            assert_eq!(Place::of(&path.replace("ID", ID)).container, None, "{path}");
        }
    }

    #[test]
    fn pods_and_units_are_found() {
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        let path = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{ID}.scope",
            uid.replace('-', "_")
        );
        assert_eq!(Place::of(&path), Place { container: Some(ID), pod: Some(&uid.replace('-', "_")), unit: None });
        assert_eq!(Place::of(&format!("/kubepods/burstable/pod{uid}/{ID}")).pod, Some(uid));
        assert_eq!(Place::of("/system.slice/nginx.service").unit, Some("nginx.service"));
        assert_eq!(Place::of("/user.slice/user-0.slice/user@0.service/app.slice/a.service").unit, Some("a.service"));
        assert_eq!(Place::of("/user.slice/user-0.slice/user@0.service/init.scope").unit, None);
        assert_eq!(Place::of("/tripod/x").pod, None);
    }
}
