//! Skills over REST: made, listed, replaced, deleted, and taken from Git repositories and zip archives.

mod pack;

use std::process::Command;

use serde_json::{Value, json};
use slipway_e2e::{Api, Team};
use slipway_peers::Git;

fn forms() -> Value {
    json!({"name": "fill-forms", "description": "Fills forms.", "instructions": "Read a.md.", "files": {"references/a_b.md": "x"}, "tools": ["Read"]})
}

#[test]
fn skills_are_made_listed_replaced_and_deleted() {
    let team = Team::new("api-skills");
    let api = Api::of(&team);
    let made = api.call("POST", "/skills").json(&forms()).expect(201)["data"].clone();
    assert_eq!((made["id"].as_str(), made["slug"].as_str()), (Some("sk_fill_forms"), Some("fill-forms")), "{made}");
    assert_eq!((made["category"].as_str(), made["files"]["references/a_b.md"].as_str()), (Some("general"), Some("x")));
    let present = team.get("skill/fill-forms");
    assert_eq!(present["spec"]["instructions"], "Read a.md.", "kubectl sees the same");
    assert_eq!(present["metadata"]["annotations"]["agents.slipway.dev/changed-by"], "anonymous");
    for path in ["/skills/sk_fill_forms", "/skills/fill-forms"] {
        assert_eq!(api.call("GET", path).expect(200)["data"]["name"], "fill-forms", "{path}");
    }

    // What kubectl makes is listed too, without what is large in it.
    team.skill("brief", &json!({}));
    let version = team.get("skill/brief")["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let listed = api.call("GET", "/skills").header("X-Resource-Version", version).expect(200)["data"].clone();
    let ids: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|skill| skill["id"].as_str()).collect();
    assert!(ids.contains(&"sk_brief") && ids.contains(&"sk_fill_forms"), "{ids:?}");
    assert!(listed[0].get("files").is_none() && listed[0].get("instructions").is_none(), "{listed}");
    assert_eq!(api.call("GET", "/skills?search=fills%20forms").expect(200)["data"].as_array().map(Vec::len), Some(1));

    let other = json!({"name": "fill-forms", "description": "Other.", "instructions": "Do."});
    let replaced = api.call("PUT", "/skills/sk_fill_forms").json(&other).expect(200)["data"].clone();
    assert_eq!(
        (replaced["files"].clone(), replaced["tools"].clone(), replaced["description"].as_str()),
        (json!({}), json!([]), Some("Other."))
    );

    for (method, path, body, status, says) in [
        ("POST", "/skills", json!({"name": "fill-forms", "description": "d", "instructions": "i"}), 409, "already a skill fill-forms"),
        ("POST", "/skills", json!({"name": "Fill Forms", "description": "d", "instructions": "i"}), 400, "name:"),
        ("POST", "/skills", json!({"description": "d", "instructions": "i"}), 400, "name"),
        ("POST", "/skills", json!({"name": "a", "description": "d", "instructions": "i", "colour": "red"}), 400, "colour"),
        ("POST", "/skills", json!({"name": "a", "description": "d", "instructions": "i", "files": {"../x": ""}}), 400, "files:"),
        ("PUT", "/skills/none", other.clone(), 404, "no skill none"),
        ("GET", "/skills/..%2fx", json!(null), 404, "no skill"),
    ] {
        let reply = api.call(method, path).json(&body).send();
        assert!(reply.status == status && reply.json()["message"].as_str().unwrap().contains(says), "{method} {path} {body}: {reply:?}");
    }
    assert_eq!(api.call("DELETE", "/skills/sk_fill_forms").expect(200)["data"], json!({"id": "sk_fill_forms", "deleted": true}));
    api.call("GET", "/skills/sk_fill_forms").expect(404);
    api.call("DELETE", "/skills/sk_fill_forms").expect(404);
    assert_eq!(team.kubectl("get skill/fill-forms --ignore-not-found -o name").ok(), "", "it is gone from the cluster");
}

#[test]
fn a_skill_is_taken_out_of_a_git_repository() {
    let team = Team::new("api-import");
    let git = Git::start();
    git.repository(
        "r",
        "mkdir -p s/a s/b; for n in a b; do printf -- \"---\\nname: $n\\ndescription: d\\nmetadata:\\n  version: 1\\n---\\nFirst.\" > s/$n/SKILL.md; done; commit 1; git tag v1; printf -- '---\\nname: a\\ndescription: d\\n---\\nSecond.' > s/a/SKILL.md; commit 2; printf -- '---\\nname: a\\ndescription: x: y\\n---\\n' > s/b/SKILL.md; commit 3; git branch broken",
    );
    let namespace =
        [("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", team.namespace.as_str()), ("SLIPWAY_IMPORT_ALLOW", "127.0.0.0/8")];
    let api = Api::start(&namespace);
    let import = |query: &str, body: Value| api.call("POST", &format!("/skills/import{query}")).json(&body);
    let source = format!("{}//s/a?ref=v1", git.url("r"));
    let made = import("", json!({"source": source})).expect(201)["data"].clone();
    assert_eq!(
        (made["id"].as_str(), made["instructions"].as_str(), made["source"].as_str()),
        (Some("sk_a"), Some("First."), Some(source.as_str()))
    );

    let again = json!({"source": git.url("r"), "path": "s/a"});
    let refused = import("", again.clone()).expect(409);
    assert!(refused["message"].as_str().unwrap().contains("?replace=true"), "{refused}");
    let replaced = import("?replace=true", again).expect(200)["data"].clone();
    assert_eq!((replaced["instructions"].as_str(), replaced["version"].clone()), (Some("Second."), Value::Null));
    assert_eq!(import("", json!({"source": git.url("r"), "path": "s/a", "name": "third"})).expect(201)["data"]["id"], "sk_third");

    for (body, status, says) in [
        (json!({"source": git.url("r"), "ref": "v1"}), 400, "there are 2 skills in it; say which by `path`: s/a, s/b"),
        (json!({"source": git.url("r"), "path": "s/b", "ref": "broken"}), 400, "line 3"),
        (json!({"source": git.url("r"), "path": "s/c"}), 400, "no folder s/c"),
        (json!({"source": "ssh://git@host/r"}), 400, "https://"),
        (json!({"source": "https://169.254.169.254/r"}), 400, "SLIPWAY_IMPORT_ALLOW"),
        (json!({"source": git.url("r"), "branch": "x"}), 400, "branch"),
        (json!({}), 400, "source"),
    ] {
        let reply = import("", body.clone()).send();
        assert!(reply.status == status && reply.json()["message"].as_str().unwrap().contains(says), "{body}: {reply:?}");
    }
    // Nobody's leave was asked for loopback here.
    let closed = Api::of(&team);
    let reply = closed.call("POST", "/skills/import").json(&json!({"source": git.url("r"), "path": "s/a", "name": "fourth"})).send();
    assert!(reply.status == 400 && reply.json()["message"].as_str().unwrap().contains("https://"), "{reply:?}");
}

#[test]
fn a_repository_that_takes_much_memory_harms_nobody() {
    let team = Team::new("api-import-deep");
    let git = Git::start();
    let pack = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(pack.path(), pack::deep()).unwrap();
    let skill = "printf -- '---\\nname: a\\ndescription: d\\n---\\nDo.' > SKILL.md";
    git.repository("plain", &format!("{skill}; commit 1"));
    // A file's name is its place in the pack: Git sends files in the order of their names.
    git.repository(
        "deep",
        &format!(
            "{skill}; git index-pack --stdin < {}; for pack in .git/objects/pack/*.idx; do git show-index < $pack; done |
             while read -r at blob sum; do git update-index --add --cacheinfo 100644,$blob,d/$(printf %08d $at); done; git add SKILL.md; git commit -qm 1",
            pack.path().display()
        ),
    );
    let namespace =
        [("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", team.namespace.as_str()), ("SLIPWAY_IMPORT_ALLOW", "127.0.0.0/8")];
    let api = Api::start(&namespace);
    let import = |name: &str| api.call("POST", "/skills/import").json(&json!({"source": git.url(name)})).send();
    // One after the other: a team's second import waits for its first.
    for _ in 0..2 {
        let refused = import("deep");
        assert!(refused.status == 413 && refused.json()["message"].as_str().unwrap().contains("more than 64 MiB of memory"), "{refused:?}");
    }
    assert_eq!(import("plain").status, 201);
}

#[test]
fn a_skill_is_taken_out_of_a_zip_archive() {
    let team = Team::new("api-zip");
    let api = Api::of(&team);
    let folder = std::env::temp_dir().join(format!("api-zip-{}", std::process::id()));
    let script = "set -e; mkdir -p \"$0/z/notes\"; cd \"$0\"; printf -- '---\\nname: zipped\\ndescription: d\\n---\\nDo.' > z/SKILL.md; echo n > z/notes/n.md; zip -qr z.zip z; ln -s /etc/passwd z/link; zip -qry link.zip z";
    assert!(Command::new("sh").args(["-c", script]).arg(&folder).status().unwrap().success());
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let made = api.call("POST", "/skills/import").body("application/zip", read("z.zip")).expect(201)["data"].clone();
    assert_eq!((made["id"].as_str(), made["files"]["notes/n.md"].as_str()), (Some("sk_zipped"), Some("n\n")));

    // curl makes the form, as people would.
    let upload = format!("file=@{}", folder.join("z.zip").display());
    let url = format!("{}/api/v1/skills/import?name=by-form", api.url());
    let done = Command::new("curl").args(["-s", "-F", &upload, &url]).output().unwrap();
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(answer["data"]["id"], "sk_by_form", "{answer}");

    for (media, body, status, says) in [
        ("application/zip", read("link.zip"), 400, "symbolic link"),
        ("application/zip", b"PK".to_vec(), 400, "too short"),
        ("text/plain", b"x".to_vec(), 415, "application/zip"),
        ("multipart/form-data; boundary=b", b"--b--".to_vec(), 400, "one part"),
    ] {
        let reply = api.call("POST", "/skills/import").body(media, body).send();
        assert!(reply.status == status && reply.json()["message"].as_str().unwrap().contains(says), "{media}: {reply:?}");
    }
    let _ = std::fs::remove_dir_all(folder);
}
