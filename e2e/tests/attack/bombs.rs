//! Archives that are small and become large.

use std::fs;
use std::process::Command;

use slipway_e2e::attack::{Installation, Person};
use slipway_e2e::{Api, Reply};
use slipway_peers::{Cgroup, peak_memory};

/// What the chart gives a container of REST.
const LIMIT: u64 = 256 << 20;
/// What REST takes at rest and for a few callers, with room to spare.
const USUAL: u64 = 96 << 20;

/// The zip archive of a folder that a shell script fills.
fn zip(script: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("set -e; mkdir s; cd s; {script}; zip -9 -q -X -r ../a.zip .");
    let done = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).status().unwrap();
    assert!(done.success());
    fs::read(folder.path().join("a.zip")).unwrap()
}

/// The zip archive of a SKILL.md with this front matter.
fn skill(front: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("---\n{front}\n---\nx")).unwrap();
    zip(&format!("cp {} SKILL.md; touch -d 2026-01-01 SKILL.md", file.path().display()))
}

fn upload(rest: &Api, person: &Person, archive: &[u8]) -> Reply {
    rest.call("POST", "/skills/import").header("X-Team", "bombs").token(&person.token).body("application/zip", archive).send()
}

/// A developer sends a zip of some hundred bytes, in whose front matter a list of 12,000 is named 9,000 times; and others
/// that hold as much as the limits of an archive allow.
#[test]
fn a_small_zip_does_not_become_large_in_rest() {
    let slipway = Installation::shared();
    let namespace = slipway.team("bombs");
    let developer = slipway.member("bombs-developer", "slipway-developer", &namespace);
    let group = Cgroup::with_memory(LIMIT);
    let rest = slipway.rest_within(&group, &[]);
    let (list, names) = ("x,".repeat(12_000), "*a,".repeat(9_000));
    let bomb = skill(&format!("name: a\ndescription: d\nmetadata:\n  a: &a [{list}]\n  b: [{names}]"));
    assert!(bomb.len() < 500, "{} bytes", bomb.len());
    for _ in 0..3 {
        let refused = upload(&rest, &developer, &bomb);
        assert!(refused.status == 400 && refused.body.contains("an anchor or alias at line 5"), "{refused:?}");
    }
    // Values without end or beginning, files without end, and names.
    let values = [format!("[{}]", "1,".repeat(32_000)), "[".repeat(16_000), format!("{{{}}}", "? ,".repeat(20_000))];
    let described = values.map(|value| skill(&format!("name: a\ndescription: {value}")));
    let zeros = zip("printf -- '---\\nname: a\\ndescription: d\\n---\\nx' > SKILL.md; head -c 200000000 /dev/zero > zeros");
    let files = zip("printf x > SKILL.md; for at in $(seq 9990); do echo > $at-$(printf %0200d 1); done");
    for archive in described.iter().chain([&zeros, &files]) {
        let refused = upload(&rest, &developer, archive);
        assert!(matches!(refused.status, 400 | 413), "{refused:?}");
    }
    assert_eq!(upload(&rest, &developer, &skill("name: plain\ndescription: d")).status, 201);
    let peak = peak_memory(rest.id());
    assert!(peak < USUAL, "REST has taken {} MiB", peak >> 20);
    let found = slipway.kubectl(format!("get skills -n {namespace} -o name")).ok();
    assert_eq!(found.trim(), "skill.agents.slipway.dev/plain");
}
