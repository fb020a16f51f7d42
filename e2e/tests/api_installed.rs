//! REST as Helm installs it: under an account of its own, with the rights that the chart gives it, and no more.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use slipway_e2e::{Api, Team, kubectl, platform, poll};

fn username() -> String {
    format!("system:serviceaccount:{}:{}", platform::NAMESPACE, platform::REST)
}

#[test]
fn its_rights_are_enough_for_the_life_of_an_agent() {
    let Some(api) = Api::installed() else { return };
    let team = Team::new("installed");
    let (developer, admin) = (team.token("developer"), team.token("admin"));
    let with = |method: &str, path: &str| api.call(method, path).token(&developer);

    let made = with("POST", "/agents").json(&json!({"name": "Front Desk", "framework": "custom"})).expect(201);
    let id = made["data"]["id"].as_str().unwrap_or_default().to_owned();
    assert_eq!((&made["data"]["status"], &made["data"]["slug"]), (&json!("created"), &json!("front-desk")));
    with("POST", "/tools").json(&json!({"name": "datetime", "type": "builtin"})).expect(201);
    with("POST", "/skills").json(&json!({"name": "greet", "description": "How to greet.", "instructions": "Say hello."})).expect(201);
    with("PATCH", &format!("/agents/{id}/config")).json(&json!({"tools": ["datetime"], "system_prompt": "Be kind."})).expect(200);
    with("PUT", &format!("/agents/{id}/skills")).json(&json!({"skills": ["greet"]})).expect(200);

    // What is imported is unpacked on disk, of which the container has none but the folder that the chart gives it.
    let folder = std::env::temp_dir().join(format!("api-installed-{}", std::process::id()));
    let script =
        "mkdir -p \"$0/z\" && cd \"$0\" && printf -- '---\\nname: zipped\\ndescription: d\\n---\\nDo.' > z/SKILL.md && zip -qr z.zip z";
    assert!(std::process::Command::new("sh").args(["-c", script]).arg(&folder).status().unwrap().success());
    with("POST", "/skills/import").body("application/zip", std::fs::read(folder.join("z.zip")).unwrap()).expect(201);
    std::fs::remove_dir_all(&folder).unwrap();
    // What comes from Git comes by a process of its own, which the container must be able to run.
    let refused = with("POST", "/skills/import").json(&json!({"source": "https://127.0.0.1/r"})).expect(400);
    assert!(refused["message"].as_str().unwrap().contains("127.0.0.1 is loopback"), "{refused}");

    let mut events = with("GET", &format!("/agents/{id}/events")).stream();
    let deployed = with("POST", &format!("/agents/{id}/deploy")).expect(200);
    assert_eq!(deployed["action"], "deployed");
    poll(90, || {
        let agent = with("GET", &format!("/agents/{id}")).expect(200);
        if agent["data"]["status"] == "deployed" { Ok(()) } else { Err(format!("it should be deployed: {agent}")) }
    });
    assert!(events.event(30).is_some(), "a deployment leaves events");
    let said = with("POST", &format!("/agents/{id}/chat")).json(&json!({"message": "Good morning"})).expect(200);
    assert!(said.to_string().contains("Good morning"), "{said}");
    let mut stream = with("POST", "/agents/front-desk/chat/stream").json(&json!({"message": "And good night"})).stream();
    let mut last = Value::Null;
    while let Some(sent) = stream.event(30) {
        last = serde_json::from_str(&sent.data).unwrap_or_default();
    }
    assert_eq!(last["type"], "done", "{last}");

    with("DELETE", &format!("/agents/{id}")).expect(403);
    api.call("DELETE", &format!("/agents/{id}")).token(&admin).expect(200);
    poll(60, || {
        let status = with("GET", &format!("/agents/{id}")).send().status;
        if status == 404 { Ok(()) } else { Err(format!("it should be gone, not {status}")) }
    });
}

#[test]
fn its_rights_are_enough_for_members_and_teams() {
    let Some(api) = Api::installed() else { return };
    let team = Team::new("installedteam");
    let admin = team.token("admin");
    let members = format!("/teams/{}/members", team.slug);
    let added = api.call("POST", &members).token(&admin).json(&json!({"email": "ada@example.com", "role": "viewer"})).expect(201);
    let ada = format!("{members}/{}", added["data"]["id"].as_str().unwrap_or_default());
    // The API server hears of a binding a moment after it was made.
    let can = |expected: &[&str]| {
        poll(10, || {
            let mut verbs = ["get", "create", "delete"].to_vec();
            verbs.retain(|verb| {
                let line = format!("auth can-i {verb} agents.agents.slipway.dev --as=ada@example.com");
                team.kubectl(line).run().stdout.trim() == "yes"
            });
            if verbs == expected { Ok(()) } else { Err(format!("she can {verbs:?}, not {expected:?}")) }
        });
    };
    can(&["get"]);
    api.call("PATCH", &ada).token(&admin).json(&json!({"role": "developer"})).expect(200);
    can(&["get", "create"]);
    poll(10, || {
        let seen = api.call("GET", &format!("/teams/{}", team.slug)).token(&admin).expect(200);
        if seen["data"]["member_count"] == 1 { Ok(()) } else { Err(format!("there is one member: {seen}")) }
    });
    api.call("DELETE", &ada).token(&admin).expect(200);
    can(&[]);
    api.call("DELETE", &ada).token(&admin).expect(404);
    let refused = api.call("POST", &members).token(&admin).json(&json!({"email": "ada@example.com", "role": "platform_admin"})).expect(403);
    assert!(refused["message"].as_str().is_some_and(|message| message.contains("clusterrolebinding")), "{refused}");
}

#[test]
fn whatever_its_roles_allow_it_stays_within_teams_and_their_roles() {
    let team = Team::new("confinedrest");
    let user = username();
    let can = |what: &str| kubectl(format!("auth can-i {what} --as={user}")).run().stdout.trim() == "yes";
    for what in [
        "list secrets --all-namespaces",
        &format!("list secrets -n {}", team.namespace),
        "list configmaps -n default",
        "create clusterrolebindings",
        "create pods -n default",
        "impersonate users",
        "create deployments.apps --all-namespaces",
        "* *",
    ] {
        assert!(!can(what), "REST should not be able to {what}");
    }
    let binding = |role: &str, more: &str| format!("create rolebinding e2e-stray --clusterrole={role} --user=mallory {more} --as={user}");
    // Not labelled as a membership, not in a team's namespace, and not a role that it may bind (which RBAC itself refuses).
    for (line, says) in [
        (format!("-n {} {}", team.namespace, binding("slipway-admin", "")), "members"),
        (format!("-n default {}", binding("slipway-viewer", "")), "team-"),
        (format!("-n {} {}", team.namespace, binding("cluster-admin", "")), "not currently held"),
    ] {
        let refusal = kubectl(&line).refused();
        assert!(refusal.contains(says), "{line}: {refusal}");
    }
    let agent = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": "stray", "namespace": "default"},
        "spec": {"name": "Stray", "framework": "custom"},
    });
    let refusal = kubectl(format!("create -f - --as={user}")).input(&agent).refused();
    assert!(refusal.contains("team-"), "{refusal}");
}

#[test]
fn nobody_else_says_who_changed_an_object() {
    let team = Team::new("changedby");
    let forged = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent",
        "metadata": {"name": "forged", "annotations": {"agents.slipway.dev/changed-by": "ada@example.com"}},
        "spec": {"name": "Forged", "framework": "custom", "suspend": true},
    });
    team.token("developer");
    let developer = format!("system:serviceaccount:{}:e2e-developer", team.namespace);
    let refusal = team.kubectl(format!("create -f - --as={developer}")).input(&forged).refused();
    assert!(refusal.contains("changed-by"), "{refusal}");
    let agent = team.agent("honest", &json!({"suspend": true}));
    let annotate = format!("annotate agent {} agents.slipway.dev/changed-by=ada@example.com --as={developer}", agent.name);
    let refusal = team.kubectl(annotate).refused();
    assert!(refusal.contains("changed-by"), "{refusal}");
    // Its own changes it makes as before.
    team.kubectl(format!("patch agent honest --type=merge --as={developer} -p")).arg(json!({"spec": {"description": "Mine."}})).ok();
}

/// The processes of the platform's pods, seen from the node.
#[test]
fn nobody_of_its_user_reads_a_process_of_the_platform() {
    let is_ours = |process: &PathBuf| {
        let read = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
        read("comm").starts_with("slipway-manager") && read("cgroup").contains("kubepods")
    };
    let processes: Vec<PathBuf> = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).filter(is_ours).collect();
    assert!(processes.len() >= 3, "the manager, REST and the history: {processes:?}");
    for process in processes {
        let status = fs::read_to_string(process.join("status")).unwrap();
        let user = status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned();
        assert!(!user.contains("\t0"), "{user}");
        // Of a process that is not dumpable these belong to root, no matter which user it runs as.
        for file in ["environ", "mem", "maps", "fd"] {
            assert_eq!(fs::metadata(process.join(file)).unwrap().uid(), 0, "{} {file}", process.display());
        }
    }
}
