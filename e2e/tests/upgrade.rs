//! The platform changes under agents that run: it comes from an earlier version, goes back to it, is taken away and comes
//! again. Agents serve all the while.
//!
//! The installed release is changed, so each of these has the cluster for itself, and puts back what it found.

pub(crate) mod callers;
mod earlier;
mod helm;

use std::collections::BTreeSet;

use callers::{Caller, CallerReport};
use earlier::Earlier;
use helm::Installed;
use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Team, alone, fresh, http, kubectl, platform, poll, until};

/// What an agent is made of and leaves behind, in its namespace.
const OBJECTS: &str = "agents,agentreleases,tools,skills,knowledgebases,ingestions,integrations,datasets,evaluationruns,guardrailpolicies,deployments,replicasets,pods,services,configmaps,\
    secrets,serviceaccounts,rolebindings,networkpolicies,resourcequotas,persistentvolumeclaims";
const SAYS: &str = "Are you still there?";

#[test]
fn agents_serve_on_while_the_platform_is_upgraded_and_rolled_back() {
    let team = Team::within(alone("upgrades the installed platform"), "upgrade", &json!({}));
    let Some(rest) = Api::installed() else { return };
    let mut release = Installed::kept();
    let Some(earlier) = Earlier::found() else { return };
    release.upgrade(&earlier.chart, &earlier.values(&release.values));
    poll(20, || if knows_environments(&team) { Err("the definitions should be the earlier ones".to_owned()) } else { Ok(()) });
    let before = Installed::revision();

    let agents = agents(&team);
    let kept = kept(&team);
    let token = team.token("developer");
    let ask = |path: &str| Caller::of(rest.call("POST", path).token(&token).json(&json!({"message": SAYS})), SAYS);
    let by_rest = format!("/agents/{}/chat", agents[0].name);
    let direct: Vec<Caller> = agents.iter().map(|agent| Caller::of(agent.chat_call(SAYS), SAYS)).collect();

    let asking = ask(&by_rest);
    release.restore();
    // The earlier chart's pods close their door before the Service knows that they go; a second knock finds another.
    assert_served("REST, while it is upgraded", &asking.told());
    assert!(knows_environments(&team), "the upgrade should bring the present definitions");
    works(&team, "after-upgrade");
    assert_released_for_its_image_alone(&agents[0]);
    replaced(&agents);
    assert_eq!(self::kept(&team), kept, "after the upgrade");
    let more = team.beside("upgrade-canary");
    let (canary, talking) = with_canary(&more, &rest);

    let asking = ask(&by_rest);
    release.roll_back(before);
    let told = asking.told();
    assert_served("REST, while it is rolled back", &told);
    assert_eq!(told.knocked_twice, 0, "pods of the present chart serve until nobody is sent to them: {told:?}");
    assert!(knows_environments(&team), "a rollback leaves the definitions, for what they hold would be lost");
    works(&team, "after-rollback");
    assert_eq!(canary.get()["spec"]["canary"]["weight"], 50, "what it asks for is kept by those who do not know it");
    replaced(&agents);
    assert_eq!(self::kept(&team), kept, "after the rollback");

    release.restore();
    works(&team, "after-return");
    replaced(&agents);
    assert_eq!(self::kept(&team), kept, "after the second upgrade");
    assert_released_for_its_image_alone(&agents[0]);
    serves_by_its_canary(&canary);
    assert_served("an agent with a canary, all the time", &talking.told());
    for caller in direct {
        let told = caller.told();
        assert_served("an agent, all the time", &told);
        assert_eq!(told.knocked_twice, 0, "{told:?}");
    }
}

#[test]
fn agents_outlive_the_platform_and_the_next_one_takes_them_over_as_they_are() {
    let team = Team::within(alone("uninstalls the platform"), "uninstall", &json!({}));
    if Api::installed().is_none() {
        return;
    }
    let agents = agents(&team);
    let goes = team.agent(&fresh("goes"), &json!({}));
    goes.ready();
    let said = agents[0].post("/chat", &json!({"message": "Remember me."})).json();
    let conversation = said["conversation_id"].as_str().unwrap_or_else(|| panic!("a conversation has an id: {said}"));
    for agent in agents.iter().chain([&goes]) {
        releases(agent, 1);
    }
    let (untouched, objects) = (but_goes(standing(&team)), objects(&team));
    let callers: Vec<Caller> = agents.iter().map(|agent| Caller::of(agent.chat_call(SAYS), SAYS)).collect();

    let nothing_is_ending = |seconds| {
        poll(seconds, || {
            let ending = ending();
            if ending.is_empty() { Ok(()) } else { Err(format!("nothing should be left ending: {ending:#?}")) }
        });
    };
    // What earlier tests left goes while there is somebody who lets it go.
    nothing_is_ending(120);
    let mut release = Installed::kept();
    release.uninstall();
    nothing_is_ending(60);
    assert_eq!(self::objects(&team), objects, "what agents are made of stays");
    // Nobody's leave is needed to delete an Agent, and what it owned goes after it.
    goes.kubectl("delete").arg("--timeout=30s").ok();
    team.kubectl(format!("wait --for=delete deployment/{} --timeout=60s", goes.name)).ok();
    assert_eq!(but_goes(standing(&team)), untouched);

    release.restore();
    works(&team, "next");
    assert_eq!(but_goes(standing(&team)), untouched);
    let now = self::objects(&team);
    let missing: Vec<_> = objects.difference(&now).collect();
    assert!(missing.is_empty(), "what was there is taken over, not made anew: {missing:#?}");
    assert!(remembered(&agents[0], conversation).contains("Remember me."), "what was said is kept");
    for caller in callers {
        let told = caller.told();
        assert_served("an agent, all the time", &told);
        assert_eq!(told.knocked_twice, 0, "{told:?}");
    }
    agents[0].patch(&json!({"systemPrompt": "Changed."}));
    assert_eq!(releases(&agents[0], 2), [1, 2], "the history goes on where it was");
}

/// Two agents that use what agents can use, ready.
#[track_caller]
fn agents(team: &Team) -> [Agent<'_>; 2] {
    team.secret("agent-env", &json!({"GREETING": "hello"}));
    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    team.skill("greet", &json!({}));
    let plain = team.agent(&fresh("plain"), &json!({}));
    let full = team
        .agent(&fresh("full"), &json!({"tools": ["clock"], "skills": ["greet"], "replicas": 2, "resources": {"requests": {"cpu": "10m"}}}));
    plain.ready();
    full.ready();
    [plain, full]
}

/// An agent whose canary has half of its conversations, and somebody who goes on talking to it through REST.
#[track_caller]
fn with_canary<'a>(team: &'a Team, rest: &Api) -> (Agent<'a>, Caller) {
    let agent = team.agent(&fresh("canary"), &json!({"storage": "memory", "systemPrompt": "one"}));
    agent.ready();
    agent.patch(&json!({"canary": {"enabled": true, "weight": 50, "systemPrompt": "two"}}));
    serves_by_its_canary(&agent);
    let chat = rest.call("POST", &format!("/agents/{}/chat", agent.name)).token(&team.token("developer"));
    (agent, Caller::of(chat.json(&json!({"message": SAYS})), SAYS))
}

/// Waits until the canary has its half, by pods of its own.
#[track_caller]
fn serves_by_its_canary(agent: &Agent) {
    agent.until("served by its canary as well", 120, |found| {
        let canary = &found["status"]["canary"];
        canary["phase"] == "Serving" && canary["weight"] == 50
    });
    let deployment = agent.team.get(&format!("deployment/{}-canary", agent.name));
    assert!(deployment["status"]["availableReplicas"].as_u64() >= Some(1), "{deployment:#}");
}

#[track_caller]
fn assert_served(what: &str, told: &CallerReport) {
    assert!(
        told.faults.is_empty(),
        "{what}: {} of {} calls failed: {:#?}",
        told.faults.len(),
        told.answered + told.faults.len(),
        told.faults
    );
    assert!(told.answered >= 20, "{what}: it should have been asked all the time: {told:?}");
}

/// What must be the same before and after: which pods run, how often they began, and what they were made from.
#[track_caller]
fn standing(team: &Team) -> Vec<String> {
    let list = team.kubectl("get pods,deployments").json();
    let line = |object: &Value| {
        let metadata = &object["metadata"];
        let restarts = &object["status"]["containerStatuses"][0]["restartCount"];
        let whole = json!([object["kind"], metadata["name"], metadata["uid"], metadata["generation"], metadata["deletionTimestamp"]]);
        format!("{whole} restarts {restarts} {}", object["spec"]["template"])
    };
    // Agents that are only made to see whether somebody works have no pods.
    let lasting = |object: &&Value| object["spec"]["replicas"] != 0;
    list["items"].as_array().into_iter().flatten().filter(lasting).map(line).collect()
}

/// Versions write pods in other ways, and so replace them; these stay: the Deployments, and in each pod the container that it
/// began with.
#[track_caller]
fn kept(team: &Team) -> Vec<String> {
    let list = team.kubectl("get pods,deployments").json();
    let lasting = |object: &&Value| object["spec"]["replicas"] != 0;
    let line = |object: &Value| {
        let (kind, metadata) = (&object["kind"], &object["metadata"]);
        let restarts = object["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
        match kind.as_str() {
            Some("Pod") => (restarts > 0).then(|| format!("{} began anew {restarts} times", metadata["name"])),
            _ => Some(json!([kind, metadata["name"], metadata["uid"]]).to_string()),
        }
    };
    list["items"].as_array().into_iter().flatten().filter(lasting).filter_map(line).collect()
}

/// Waits until each agent has the pods that its manager wants, and no others.
#[track_caller]
fn replaced(agents: &[Agent]) {
    for agent in agents {
        agent.deployment_until("the pods that are wanted, and no others", 120, |deployment| {
            let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|count| &status[count] == wanted)
        });
    }
}

/// Without the agent that is deleted in between.
fn but_goes(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().filter(|line| !line.contains("goes")).collect()
}

/// Everything in the team's namespace but that agent's, and what is on its way out marked so.
#[track_caller]
fn objects(team: &Team) -> BTreeSet<String> {
    let list = team.kubectl(format!("get {OBJECTS}")).json();
    let line = |object: &Value| {
        let metadata = &object["metadata"];
        json!([object["kind"], metadata["name"], metadata["uid"], metadata["deletionTimestamp"]]).to_string()
    };
    but_goes(list["items"].as_array().into_iter().flatten().map(line).collect()).into_iter().collect()
}

/// What is on its way out, of our kinds and of the cluster's, in all namespaces that are ours.
#[track_caller]
fn ending() -> Vec<String> {
    let of_teams = kubectl("get namespaces,persistentvolumes,customresourcedefinitions,teams.agents.slipway.dev").json();
    let within = kubectl(format!("get {OBJECTS} --all-namespaces")).json();
    let ours = |object: &&Value| {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        namespace.is_empty() || namespace.starts_with("team-") || namespace == platform::NAMESPACE
    };
    let all = [of_teams, within].into_iter().flat_map(|list| list["items"].as_array().cloned().unwrap_or_default());
    let ending: Vec<Value> = all.filter(|object| !object["metadata"]["deletionTimestamp"].is_null()).collect();
    ending
        .iter()
        .filter(ours)
        .map(|object| json!([object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]]).to_string())
        .collect()
}

/// Whether the API server takes a field of Agents that the earlier definitions do not have.
#[track_caller]
fn knows_environments(team: &Team) -> bool {
    let agent = Agent { team, name: "asked".to_owned() };
    let outcome =
        team.kubectl("create --dry-run=server --validate=strict -f -").input(agent.manifest(&json!({"environment": "staging"}))).run();
    assert!(outcome.code == Some(0) || outcome.stderr.contains("spec.environment"), "refused for another reason: {outcome:?}");
    outcome.code == Some(0)
}

/// Waits until a manager has read everything: it sees to an agent that is new.
#[track_caller]
fn works(team: &Team, name: &str) {
    team.agent(name, &json!({"suspend": true})).until("seen to", 60, |agent| agent["status"]["phase"] == "Terminated");
}

/// A release history has come and finds what runs. Of an agent that nobody edits the platform's own image alone changes.
#[track_caller]
fn assert_released_for_its_image_alone(agent: &Agent) {
    let releases = poll(90, || {
        let list = agent.team.kubectl("get agentreleases").json();
        let all = list["items"].as_array().into_iter().flatten();
        let of_it: Vec<Value> = all.filter(|release| release["spec"]["agent"] == agent.name.as_str()).cloned().collect();
        let has_versions = !of_it.is_empty() && of_it.iter().all(|release| release["status"]["version"].is_i64());
        if has_versions { Ok(of_it) } else { Err(format!("{} should have releases, each with its version: {of_it:?}", agent.name)) }
    });
    for release in releases.iter().filter(|release| release["status"]["version"] != 1) {
        assert_eq!(release["spec"]["changelog"], "the image of this name is another one", "{release}");
    }
}

/// The versions that an agent has, once there is this number of them.
#[track_caller]
fn releases(agent: &Agent, count: usize) -> Vec<i64> {
    until(&format!("agentreleases -n {}", agent.team.namespace), 90, |releases| {
        let of_it = releases.iter().filter(|release| release["spec"]["agent"] == agent.name.as_str());
        let versions: BTreeSet<i64> = of_it.filter_map(|release| release["status"]["version"].as_i64()).collect();
        if versions.len() == count {
            Ok(versions.into_iter().collect())
        } else {
            Err(format!("{} has the versions {versions:?}", agent.name))
        }
    })
}

#[track_caller]
fn remembered(agent: &Agent, conversation: &str) -> String {
    let path = format!("/conversations/{conversation}");
    let reply = poll(10, || http(&agent.team.namespace, &agent.name, 8000, &path, None).map_err(|error| error.to_string()));
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.body
}
