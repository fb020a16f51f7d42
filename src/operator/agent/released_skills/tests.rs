//! Skills as releases hold them, before a cluster that is played.

use std::convert::Infallible;
use std::sync::Mutex;

use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use slipway_api::labels::{MANAGED_BY, OPERATOR, SKILL};
use slipway_api::{AgentStatus, Skill, Track};
use slipway_cluster::Guarded;

use super::*;
use crate::agent::gather;
use crate::agent::pin::tests::{agent_of, release_of};
use crate::agent::tracks;
use crate::caches::skill::CachedSkill;
use crate::caches::{ChildKind, HeldRelease};
use crate::testing::context_of;

/// Objects by name, and what was asked of them.
#[derive(Clone, Default)]
struct Cluster {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    asked: Arc<Mutex<Vec<String>>>,
    /// Of ConfigMaps.
    no_room: Arc<Mutex<bool>>,
}

impl Cluster {
    /// A manager that has just begun, with what there is.
    fn context(&self) -> Arc<Context> {
        let held = self.clone();
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let cluster = held.clone();
            async move {
                let (parts, body) = request.into_parts();
                let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
                let body = body.collect().await.unwrap().to_bytes();
                let (status, answer) = cluster.answer(&parts.method, &name, &body);
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
            }
        });
        let context = context_of(Client::new(server, "default"));
        for skill in self.objects.lock().unwrap().values().filter(|object| object["kind"] == "Skill") {
            hear(&context, skill.clone());
        }
        context
    }

    fn answer(&self, method: &Method, name: &str, body: &[u8]) -> (StatusCode, Value) {
        self.asked.lock().unwrap().push(format!("{method} {}", short(name)));
        let mut objects = self.objects.lock().unwrap();
        let failed = |status: StatusCode, reason: &str| {
            (status, json!({"kind": "Status", "status": "Failure", "reason": reason, "code": status.as_u16(), "message": "exceeded quota"}))
        };
        if *method == Method::PATCH {
            let mut made: Value = serde_json::from_slice(body).unwrap();
            if let Some(there) = objects.get_mut(name) {
                assert!(made.get("data").is_none(), "what is immutable is not written: {made}");
                assert_eq!(made["metadata"]["uid"], there["metadata"]["uid"], "it is the one that was read");
                let owners = there["metadata"]["ownerReferences"].as_array_mut().unwrap();
                let added = made["metadata"]["ownerReferences"].as_array().unwrap().iter();
                let added: Vec<Value> = added.filter(|added| owners.iter().all(|known| known["uid"] != added["uid"])).cloned().collect();
                owners.extend(added);
                if made["metadata"]["labels"].is_object() {
                    there["metadata"]["labels"] = made["metadata"]["labels"].take();
                }
            } else if *self.no_room.lock().unwrap() {
                return failed(StatusCode::FORBIDDEN, "Forbidden");
            } else {
                made["metadata"]["uid"] = json!(format!("uid-{name}"));
                made["metadata"]["resourceVersion"] = json!("7");
                objects.insert(name.to_owned(), made);
            }
        }
        objects.get(name).map_or_else(|| failed(StatusCode::NOT_FOUND, "NotFound"), |found| (StatusCode::OK, found.clone()))
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// Makes the Skill `forms` say this, and be heard of.
    fn write(&self, context: &Context, instructions: &str) -> String {
        let skill = skill(instructions);
        let value = write::value(&skill).unwrap();
        self.objects.lock().unwrap().insert("forms".to_owned(), value.clone());
        hear(context, value);
        skill.spec.digest()
    }

    /// Makes the ConfigMap of a digest go, as the watch would tell.
    fn lose(&self, context: &Context, digest: &str) {
        let name = held_skill::config_map_name(digest);
        self.objects.lock().unwrap().remove(&name);
        context.caches.children(ChildKind::ConfigMap).remove(&Key::new("team-a", name));
    }

    /// Makes the ConfigMap of a digest be another one, of this owner and without labels, as the watch would tell.
    fn replace(&self, context: &Context, digest: &str, owner: &str) {
        let name = held_skill::config_map_name(digest);
        let mut objects = self.objects.lock().unwrap();
        let metadata = &mut objects.get_mut(&name).unwrap()["metadata"];
        metadata["uid"] = json!("another");
        metadata["labels"] = json!({});
        metadata["ownerReferences"][0]["uid"] = json!(owner);
        let (children, key) = (context.caches.children(ChildKind::ConfigMap), Key::new("team-a", name));
        let mut child = (*children.get(&key).unwrap()).clone();
        child.uid = "another".to_owned();
        children.insert(key, child);
    }

    /// Whom the ConfigMap of a digest belongs to.
    fn owners(&self, digest: &str) -> Vec<String> {
        let objects = self.objects.lock().unwrap();
        let owners = &objects[&held_skill::config_map_name(digest)]["metadata"]["ownerReferences"];
        owners.as_array().unwrap().iter().map(|owner| owner["uid"].as_str().unwrap().to_owned()).collect()
    }
}

/// Without most of the digest.
fn short(name: &str) -> &str {
    if name.starts_with("skill-") { "skill-…" } else { name }
}

fn hear(context: &Context, skill: Value) {
    let skill = CachedSkill::from(Guarded(Ok(serde_json::from_value::<Skill>(skill).unwrap())));
    context.caches.skills.insert(Key::new("team-a", "forms"), skill);
}

fn skill(instructions: &str) -> Skill {
    let spec = json!({"name": "forms", "description": "d", "instructions": instructions, "files": {"a/b.md": "x"}});
    let metadata = json!({"name": "forms", "namespace": "team-a", "uid": "s"});
    let whole = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Skill", "metadata": metadata, "spec": spec});
    serde_json::from_value(whole).unwrap()
}

/// An agent whose release v1 is active.
fn gated() -> Agent {
    let agent = agent_of("skills: [sk_forms], governance: {minQualityScore: 60}");
    Agent { status: Some(AgentStatus { active_release: Some(1), ..AgentStatus::default() }), ..agent }
}

/// A release that was made when the Skill had this digest.
fn release(agent: &Agent, version: u64, digest: &str) -> Release {
    let mut release = release_of(agent, version);
    release.artifact.resolved.skills = BTreeMap::from([("forms".to_owned(), digest.to_owned())]);
    release
}

/// An agent whose release of this version waits.
fn waiting(version: u64, digest: &str, context: &Context) -> Agent {
    let run = format!("ev-{version}");
    let status =
        AgentStatus { pending_release: i64::try_from(version).ok(), pending_evaluation: Some(run.clone()), ..AgentStatus::default() };
    let agent = Agent { status: Some(status), ..gated() };
    let release = Arc::new(release(&agent, version, digest));
    context.caches.held.insert(Key::of(&agent), HeldRelease { run, release });
    agent
}

fn seen(context: &Context, agent: &Agent, track: Track) -> gather::Seen {
    let workloads = tracks::of(agent, context).expect("it is known what runs").workloads;
    gather::gather(workloads.iter().find(|it| it.track == track).expect("it has the track"), context)
}

/// The digest that is held for a track, if one is, and what is said of it.
fn used(context: &Context, agent: &Agent, track: Track) -> (Option<String>, Option<(Option<bool>, String)>) {
    let seen = seen(context, agent, track);
    let finding = seen.differs.as_ref().and_then(Differs::finding);
    (seen.held_skills.get("forms").map(|held| held.digest.clone()), finding.map(|finding| (finding.holds, finding.reason)))
}

fn said(holds: bool, reason: &str) -> (Option<bool>, String) {
    (Some(holds), reason.to_owned())
}

#[tokio::test]
async fn pods_keep_the_approved_folder_whatever_becomes_of_the_skill() {
    let (cluster, agent) = (Cluster::default(), gated());
    let (key, context) = (Key::of(&agent), cluster.context());
    let first = cluster.write(&context, "Read.");
    let active = release(&agent, 1, &first);
    context.caches.pins.insert(key.clone(), active.clone());
    assert!(tracks::of(&agent, &context).is_none(), "it has yet to be read what was held");
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET skill-…", "GET forms", "PATCH skill-…"]);
    read(&agent, &context).await.unwrap();
    assert!(cluster.asked().is_empty(), "it is known");
    let made = cluster.objects.lock().unwrap()[&held_skill::config_map_name(&first)].clone();
    assert_eq!((&made["immutable"], &made["data"]["a_-b.md"], cluster.owners(&first)), (&json!(true), &json!("x"), vec!["r1".to_owned()]));
    assert_eq!(used(&context, &agent, Track::Stable), (Some(first.clone()), None));
    cluster.write(&context, "Do harm.");
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Stable), (Some(first.clone()), Some(said(true, "SkillsChanged"))), "it was edited");
    context.caches.skills.remove(&Key::new("team-a", "forms"));
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Stable), (Some(first.clone()), Some(said(true, "SkillsChanged"))), "it was deleted");
    assert!(cluster.asked().is_empty(), "that takes no request");
    // Another manager reads what was held, and tells pods the same.
    let later = cluster.context();
    later.caches.pins.insert(key.clone(), active);
    read(&agent, &later).await.unwrap();
    assert_eq!(cluster.asked(), ["GET skill-…"]);
    assert_eq!(used(&later, &agent, Track::Stable), (Some(first.clone()), Some(said(true, "SkillsChanged"))));
    let folder = |context: &Context| context.caches.released_skills.get(&key).unwrap().folders[&first].clone();
    assert_eq!(folder(&later), folder(&context));
    // Of an agent without a gate nothing is held.
    let free = agent_of("skills: [forms]");
    read(&free, &later).await.unwrap();
    assert!(later.caches.released_skills.get(&key).is_none());
    assert_eq!(used(&later, &free, Track::Stable), (None, None));
}

#[tokio::test]
async fn each_track_has_the_folder_of_its_own_release() {
    let (cluster, mut agent) = (Cluster::default(), gated());
    let (key, context) = (Key::of(&agent), cluster.context());
    let first = cluster.write(&context, "Read.");
    context.caches.pins.insert(key.clone(), release(&agent, 1, &first));
    read(&agent, &context).await.unwrap();
    let second = cluster.write(&context, "Write.");
    let status = agent.status.as_mut().unwrap();
    (status.pending_release, status.pending_evaluation) = (Some(2), Some("ev-2".to_owned()));
    let pending = Arc::new(release(&agent, 2, &second));
    context.caches.held.insert(key.clone(), HeldRelease { run: "ev-2".to_owned(), release: pending.clone() });
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Stable), (Some(first.clone()), Some(said(true, "SkillsChanged"))));
    assert_eq!(used(&context, &agent, Track::Candidate), (Some(second.clone()), None));
    // It has passed, and a third one of the same skill waits: its folder goes with the last of them.
    let status = agent.status.as_mut().unwrap();
    *status =
        AgentStatus { active_release: Some(2), pending_release: Some(3), pending_evaluation: Some("ev-3".to_owned()), ..status.clone() };
    context.caches.pins.insert(key.clone(), (*pending).clone());
    let third = Arc::new(release(&agent, 3, &second));
    context.caches.held.insert(key.clone(), HeldRelease { run: "ev-3".to_owned(), release: third });
    cluster.asked();
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET skill-…", "PATCH skill-…"]);
    assert_eq!(cluster.owners(&second), ["r2", "r3"]);
    assert_eq!(used(&context, &agent, Track::Stable), (Some(second.clone()), None), "no pod is replaced for a number");
    assert!(!context.caches.released_skills.get(&key).unwrap().folders.contains_key(&first), "what nobody uses is forgotten");
    // One whose Skill had changed before it was seen is not evaluated.
    let status = agent.status.as_mut().unwrap();
    (status.pending_release, status.pending_evaluation) = (Some(4), Some("ev-4".to_owned()));
    let fourth = Arc::new(release(&agent, 4, &"0".repeat(64)));
    context.caches.held.insert(key.clone(), HeldRelease { run: "ev-4".to_owned(), release: fourth });
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Candidate), (None, Some(said(false, "NotKept"))));
}

#[tokio::test]
async fn a_folder_that_somebody_removed_is_made_again_while_it_can_be() {
    let (cluster, agent) = (Cluster::default(), gated());
    let (key, context) = (Key::of(&agent), cluster.context());
    let first = cluster.write(&context, "Read.");
    // The AgentRelease is listed again, as it may be another one by now.
    let listed = json!({"kind": "AgentReleaseList", "apiVersion": "agents.slipway.dev/v1", "metadata": {}, "items": [{
        "metadata": {"name": "helper-v1", "namespace": "team-a", "uid": "r9"}, "spec": {"agent": "helper"},
        "status": {"version": 1, "artifact": release(&agent, 1, &first).artifact.sealed().unwrap().to_yaml()},
    }]});
    cluster.objects.lock().unwrap().insert("agentreleases".to_owned(), listed);
    let sealed = Release { artifact: release(&agent, 1, &first).artifact.sealed().unwrap(), ..release(&agent, 1, &first) };
    context.caches.pins.insert(key.clone(), sealed);
    read(&agent, &context).await.unwrap();
    cluster.lose(&context, &first);
    cluster.asked();
    read(&agent, &context).await.unwrap();
    assert_eq!(cluster.asked(), ["GET agentreleases", "GET skill-…", "GET forms", "PATCH skill-…"]);
    assert_eq!((cluster.owners(&first), used(&context, &agent, Track::Stable).0), (vec!["r9".to_owned()], Some(first.clone())));
    // Once the Skill is another one, nobody has its texts.
    cluster.write(&context, "Write.");
    cluster.lose(&context, &first);
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Stable), (None, Some(said(false, "NotKept"))));
    cluster.asked();
    read(&agent, &context).await.unwrap();
    assert!(cluster.asked().is_empty(), "there is nothing to be had");
    cluster.write(&context, "Read.");
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Stable), (Some(first), None), "it is what it was");
}

#[tokio::test]
async fn a_folder_for_which_there_is_no_room_is_said() {
    let (cluster, agent) = (Cluster::default(), gated());
    let context = cluster.context();
    let first = cluster.write(&context, "Read.");
    *cluster.no_room.lock().unwrap() = true;
    context.caches.pins.insert(Key::of(&agent), release(&agent, 1, &first));
    read(&agent, &context).await.unwrap();
    assert_eq!(used(&context, &agent, Track::Stable), (None, Some(said(false, "CannotBeKept"))));
    // What could be edited once it is approved is not evaluated before.
    let context = cluster.context();
    let agent = waiting(2, &first, &context);
    let fault = || seen(&context, &agent, Track::Candidate).differs.as_ref().and_then(Differs::fault).map(|fault| fault.reason);
    read(&agent, &context).await.unwrap();
    assert_eq!(fault(), Some("SkillCannotBeKept"));
    *cluster.no_room.lock().unwrap() = false;
    read(&agent, &context).await.unwrap();
    assert_eq!((fault(), cluster.owners(&first)), (None, vec!["r2".to_owned()]));
}

#[tokio::test]
async fn a_folder_that_another_agent_made_again_is_owned_again() {
    let cluster = Cluster::default();
    let context = cluster.context();
    let first = cluster.write(&context, "Read.");
    let agent = waiting(1, &first, &context);
    read(&agent, &context).await.unwrap();
    cluster.replace(&context, &first, "r8");
    cluster.asked();
    read(&agent, &context).await.unwrap();
    assert_eq!(
        (cluster.asked(), cluster.owners(&first)),
        (vec!["GET skill-…".to_owned(), "PATCH skill-…".to_owned()], vec!["r8".to_owned(), "r1".to_owned()])
    );
    let labels = cluster.objects.lock().unwrap()[&held_skill::config_map_name(&first)]["metadata"]["labels"].clone();
    assert_eq!((&labels[MANAGED_BY], &labels[SKILL]), (&json!(OPERATOR), &json!("forms")), "it is watched");
    read(&agent, &context).await.unwrap();
    assert!(cluster.asked().is_empty(), "it is known");
}

#[tokio::test]
async fn agents_hear_of_a_folder_that_comes_or_goes() {
    use futures::StreamExt;
    use slipway_cluster::references::Kind;

    use crate::agent::Controller;
    use crate::registry::{Change, Registered};

    let controller = Controller::new(Cluster::default().context());
    let (caches, forms) = (&controller.context.caches, Key::new("team-a", "forms"));
    for name in ["gated", "free"] {
        caches.references.set(&Key::new("team-a", name), [(Kind::of::<Skill>(), forms.clone())].into());
    }
    caches.released_skills.insert(Key::new("team-a", "gated"), ReleasedSkills::default());
    let requested = controller.requests.open();
    controller.changed(&Change::Child("Skill", forms));
    let requested: Vec<_> = requested.take(controller.requests.depth()).map(|key| key.name).collect().await;
    assert_eq!(requested, ["gated"]);
}
