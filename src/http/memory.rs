//! The memory limit of this process, from its control group, and the part of it that clients may take.

use std::fs;
use std::path::Path;

pub(crate) const KIB: u64 = 1024;
pub const MIB: u64 = 1024 * KIB;

/// The limit if the control group has none.
pub const DEFAULT_LIMIT: u64 = 1024 * MIB;
/// The program itself, its caches, and memory that the allocator does not return.
pub const PROGRAM_BYTES: u64 = 64 * MIB;
/// A limit of cgroup version 1 from this value on means that there is none.
const UNLIMITED: u64 = 1 << 60;

/// The memory that all clients may take together, if children and caches of the process need `others`: the rest of the
/// limit, and at least a quarter of it.
pub fn for_clients(limit: u64, others: u64) -> u64 {
    limit.saturating_sub(PROGRAM_BYTES + others).max(limit / 4)
}

/// The limit of this process, or `DEFAULT_LIMIT`.
pub fn limit() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&groups, Path::new("/sys/fs/cgroup")).unwrap_or(DEFAULT_LIMIT)
}

/// The lowest limit of the groups in `/proc/self/cgroup` and their ancestors. In a container the file system has the
/// container's own group at its root, whatever path `/proc/self/cgroup` has.
fn limit_of(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        match controllers {
            "" => lowest(root, path, "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => lowest(&root.join("memory"), path, "memory.limit_in_bytes"),
            _ => None,
        }
    });
    limits.min()
}

fn lowest(root: &Path, path: &str, file: &str) -> Option<u64> {
    let inside = root.join(path.trim_start_matches('/'));
    let groups = inside.ancestors().take_while(|group| group.starts_with(root));
    let read = |group: &Path| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
    groups.filter_map(read).filter(|limit| *limit > 0 && *limit < UNLIMITED).min()
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;

    use super::*;

    #[test]
    fn the_lowest_limit_of_a_group_and_its_ancestors_applies() {
        let root = temp_dir().join(format!("slipway-cgroup-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        put("pod/memory.max", "1000\n");
        put("pod/one/memory.max", "max\n");
        put("memory/pod/one/memory.limit_in_bytes", "9223372036854771712\n");
        put("memory/pod/two/memory.limit_in_bytes", "500\n");
        for (groups, expected) in [
            ("0::/pod/one\n", Some(1000)),
            ("0::/elsewhere\n", None),
            ("4:memory:/pod/one\n0::/\n", None),
            ("5:cpu:/pod/two\n4:memory:/pod/two\n0::/pod\n", Some(500)),
            ("nonsense\n", None),
        ] {
            assert_eq!(limit_of(groups, &root), expected, "{groups}");
        }
        put("memory.max", "700\n");
        assert_eq!(limit_of("0::/kubepods/pod1/abc\n", &root), Some(700), "a container sees its own group at the root");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn clients_get_what_is_left_and_at_least_a_quarter() {
        assert_eq!(for_clients(256 * MIB, 128 * MIB), 64 * MIB);
        assert_eq!(for_clients(1024 * MIB, 0), 960 * MIB);
        assert_eq!(for_clients(32 * MIB, 0), 8 * MIB);
    }
}
