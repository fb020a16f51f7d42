//! Bodies that never end.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use slipway_e2e::attack::{Installation, Person};
use slipway_e2e::{Api, poll};

/// A body that says it has 50 MiB, and of which the first bytes come.
fn begun(rest: &Api, team: &str, person: &Person) -> TcpStream {
    let mut stream = TcpStream::connect(rest.address()).unwrap();
    let head = format!(
        "POST /api/v1/skills/import HTTP/1.1\r\nHost: x\r\nX-Team: {team}\r\nAuthorization: Bearer {}\r\nContent-Type: application/zip\r\nContent-Length: 52428800\r\n\r\nPK",
        person.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn zip() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let script = "printf -- '---\\nname: a\\ndescription: d\\n---\\nx' > SKILL.md; zip -q a.zip SKILL.md";
    assert!(Command::new("sh").args(["-c", script]).current_dir(folder.path()).status().unwrap().success());
    fs::read(folder.path().join("a.zip")).unwrap()
}

/// A developer of one team begins as many uploads as may be and ends none; another team wants to import a skill.
#[test]
fn unfinished_uploads_of_one_team_hold_up_no_other() {
    let slipway = Installation::shared();
    let [eve, ada] = ["uploads-eve", "uploads-ada"].map(|team| slipway.member(team, "slipway-developer", &slipway.team(team)));
    let rest = slipway.rest(&[]);
    let archive = zip();
    let import = |team: &str, person: &Person| {
        rest.call("POST", "/skills/import").header("X-Team", team).token(&person.token).body("application/zip", archive.clone())
    };
    let mut held: Vec<TcpStream> = (0..16).map(|_| begun(&rest, "uploads-eve", &eve)).collect();
    // The team itself is told so, at once, as soon as they have come.
    poll(10, || match import("uploads-eve", &eve).send() {
        refused if refused.status == 429 && refused.body.contains("team-uploads-eve") => Ok(()),
        // This import had the place of one of them, which was refused: another takes it now.
        other => {
            held.push(begun(&rest, "uploads-eve", &eve));
            Err(format!("{other:?}"))
        }
    });
    let start = Instant::now();
    import("uploads-ada", &ada).expect(201);
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    let found = slipway.kubectl("get skills -n team-uploads-ada -o name").ok();
    assert_eq!(found.trim(), "skill.agents.slipway.dev/a");
    drop(held);
    poll(10, || match import("uploads-eve", &eve).send().status {
        201 | 409 => Ok(()),
        other => Err(format!("what was hung up on is given back: {other}")),
    });
}
