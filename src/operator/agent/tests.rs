//! From YAML to YAML: an Agent with what surrounds it goes in, its children or its fault come out.
//!
//! `testdata/NAME.in.yaml` is what people would apply; `testdata/NAME.out.yaml` is what must come of it, and
//! is written anew with `UPDATE_GOLDEN=1`.

mod canary;
mod flagger;
mod integrations;
mod judges;
mod kept;
mod own_image;
mod policies;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slipway_api::condition::TOOLS_AS_RELEASED;
use slipway_api::guardrail_policy::DEFAULT;
use slipway_api::{Agent, GuardrailPolicy, KnowledgeBase, Skill, Team, Tool, Track, contract, ids};
use slipway_cluster::references::Kind;
use slipway_cluster::{Guarded, Key};

use super::gather::{self, Seen};
use super::released_tools::Differs;
use super::resolve::{ConditionFault, Plan, Resolved, resolve};
use super::{Controller, build, tracks};
use crate::caches::ChildKind;
use crate::caches::guardrail_policy::CachedPolicy;
use crate::caches::secret::SecretState;
use crate::caches::skill::CachedSkill;
use crate::children;
use crate::registry::{Change, Registered};
use crate::settings::{PlatformInfo, Settings};
use crate::skill_folder::SkillFolder;
use crate::testing::{context, settings};

fn documents(yaml: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(yaml).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn all<K: DeserializeOwned>(documents: &[Value], kind: &str) -> Vec<K> {
    let of_kind = documents.iter().filter(|document| document["kind"] == kind);
    of_kind.map(|document| serde_json::from_value(document.clone()).unwrap()).collect()
}

/// Finds what an Agent names among `documents`, as gathering from the caches does.
fn seen(agent: &Agent, documents: &[Value], settings: &Settings) -> Seen {
    fn named<K: Resource + Clone>(objects: &[K], name: &str) -> Option<Arc<Guarded<K>>> {
        objects.iter().find(|object| object.meta().name.as_deref() == Some(name)).map(|found| Arc::new(Guarded(Ok(found.clone()))))
    }
    fn folded(skills: &[Skill], name: &str) -> Option<Arc<CachedSkill>> {
        let found = skills.iter().find(|skill| skill.meta().name.as_deref() == Some(name))?;
        Some(Arc::new(CachedSkill::from(Guarded(Ok(found.clone())))))
    }
    let (tools, bases) = (all::<Tool>(documents, "Tool"), all::<KnowledgeBase>(documents, "KnowledgeBase"));
    let (skills, skill_names) = (all::<Skill>(documents, "Skill"), agent.spec.skills.iter().map(|reference| ids::skill_name(reference)));
    let (secrets, teams) = (all::<Secret>(documents, "Secret"), all::<Team>(documents, "Team"));
    let policies = all::<GuardrailPolicy>(documents, "GuardrailPolicy");
    let held = |name: &str| {
        let found = policies.iter().find(|policy| policy.meta().name.as_deref() == Some(name))?;
        Some(Arc::new(CachedPolicy::from(Guarded(Ok(found.clone())))))
    };
    let named_policies = agent.spec.governance.iter().flat_map(|governance| &governance.policies).filter(|name| *name != DEFAULT);
    let policy_names = named_policies.map(|reference| ids::guardrail_policy_name(reference));
    let base_names = agent.spec.knowledge_bases.iter().map(|reference| ids::knowledge_base_name(reference));
    Seen {
        team: teams.first().map(|team| (team.name_any(), Arc::new(Guarded(Ok(team.clone()))))),
        tools: agent.spec.tools.iter().map(|name| (name.clone(), named(&tools, name))).collect(),
        tool_faults: BTreeMap::new(),
        opened: BTreeSet::new(),
        model: None,
        knowledge_bases: base_names.map(|name| (name.clone(), named(&bases, &name))).collect(),
        skills: skill_names.map(|name| (name.clone(), folded(&skills, &name))).collect(),
        held_skills: BTreeMap::new(),
        team_policies: None,
        policies: policy_names.map(|name| (name.clone(), held(&name))).collect(),
        secrets: secrets.iter().map(|secret| (secret.name_any(), Arc::new(SecretState::of(secret, &settings.secrets_hash_key)))).collect(),
        secrets_known: true,
        mlflow_uri: settings.platform.mlflow_uri.clone(),
        differs: None,
        primary_ready: false,
        replicas_elsewhere: false,
    }
}

fn resolved(yaml: &str, settings: &Settings) -> Resolved {
    resolved_on(Track::Stable, yaml, settings)
}

fn resolved_on(track: Track, yaml: &str, settings: &Settings) -> Resolved {
    let documents = documents(yaml);
    let agent = all::<Agent>(&documents, "Agent").remove(0);
    resolve(&agent, track, &seen(&agent, &documents, settings), settings)
}

fn plan(yaml: &str, settings: &Settings) -> Plan {
    plan_on(Track::Stable, yaml, settings)
}

fn plan_on(track: Track, yaml: &str, settings: &Settings) -> Plan {
    match resolved_on(track, yaml, settings) {
        Resolved::Plan(plan) => plan,
        Resolved::Fault(fault) => panic!("expected a plan, got {fault:?}"),
        Resolved::Unknown(what) => panic!("expected a plan, waits for {what}"),
    }
}

fn fault(yaml: &str, settings: &Settings) -> ConditionFault {
    match resolved(yaml, settings) {
        Resolved::Fault(fault) => fault,
        _ => panic!("expected a fault of:\n{yaml}"),
    }
}

fn golden(name: &str, settings: &Settings) {
    golden_on(Track::Stable, name, settings);
}

fn golden_on(track: Track, name: &str, settings: &Settings) {
    let yaml = std::fs::read_to_string(Path::new("testdata").join(format!("{name}.in.yaml"))).unwrap();
    golden_of(&plan_on(track, &yaml, settings), name);
}

fn golden_of(plan: &Plan, name: &str) {
    let file = |end: &str| Path::new("testdata").join(format!("{name}.{end}.yaml"));
    let mut text = String::new();
    for (kind, value) in build::build(plan).into_values().unwrap() {
        let name = value["metadata"]["name"].as_str().unwrap();
        assert_eq!(
            build::child(plan, kind, name).unwrap().as_ref(),
            Some(&value),
            "a child built alone is the child built with the others"
        );
        write!(text, "---\n{}", serde_yaml::to_string(&value).unwrap()).unwrap();
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file("out"), &text).unwrap();
    }
    let expected = std::fs::read_to_string(file("out")).unwrap_or_default();
    assert!(text == expected, "{} differs from what is built now; see with UPDATE_GOLDEN=1 and git diff", file("out").display());
}

#[test]
fn the_smallest_agent() {
    golden("minimal", &settings(None));
}

/// A platform that tells its agents all that it can.
fn everything() -> Settings {
    let database = "postgres://slipway:p%24ss@postgres:5432/slipway?sslmode=require";
    let mut settings = settings(Some(database));
    settings.ollama_base_url = Some("http://ollama:11434".to_owned());
    settings.platform = PlatformInfo {
        url: Some("http://slipway-rest:8080".to_owned()),
        control_public_key: Some("bm90IGEga2V5LCBvbmx5IHRoaXJ0eS10d28gYnl0ZXM=".to_owned()),
        access_public_key: Some("bm9yIGlzIHRoaXMgYSBrZXksIG9ubHkgMzIgYnl0ZXM=".to_owned()),
        embedding_model: Some("builtin:all-minilm-l6-v2".to_owned()),
        egress_allow: vec!["10.0.0.0/8".to_owned(), "wiki.internal:443".to_owned()],
        egress_proxy: Some("http://proxy:3128".to_owned()),
        search_url: Some("http://searxng:8080/search".to_owned()),
        eval_samples_per_day: 500,
        otlp_endpoint: Some("http://otel-collector:4318".to_owned()),
        mlflow_uri: Some("https://mlflow.example.com".to_owned()),
        prepared_statements: true,
    };
    settings
}

#[test]
fn an_agent_with_everything() {
    golden("full", &everything());
}

#[test]
fn a_candidate() {
    let yaml = std::fs::read_to_string("testdata/candidate.in.yaml").unwrap();
    let built = |track| build::build(&plan_on(track, &yaml, &settings(None))).into_values().unwrap();
    let (stable, candidate) = (built(Track::Stable), built(Track::Candidate));
    assert_eq!((stable.len(), candidate.len()), (5, 5), "all kinds are built");
    for ((kind, value), (other, of_stable)) in candidate.iter().zip(&stable) {
        assert_eq!(kind, other);
        let (name, of_stable) = (children::name(value), children::name(of_stable));
        assert_eq!(name, of_stable.replacen("helper", "helper-candidate", 1), "{kind:?}");
    }
    let child = |wanted: ChildKind| &candidate.iter().find(|(kind, _)| *kind == wanted).unwrap().1;
    assert_eq!(child(ChildKind::ConfigMap)["data"][contract::STORAGE], "memory");
    assert_eq!(child(ChildKind::Deployment)["spec"]["replicas"], 1);
    golden_on(Track::Candidate, "candidate", &settings(None));
}

#[test]
fn a_candidate_waits_whose_tools_are_not_what_its_release_names() {
    let yaml = agent("tools: [t]") + "---\nkind: Tool\nmetadata: {name: t}\nspec: {name: calculator, type: builtin}\n";
    let documents = documents(&yaml);
    let agent = all::<Agent>(&documents, "Agent").remove(0);
    let with = |track, differs: Differs| {
        let differs = Some(Differs { version: 2, ..differs });
        resolve(&agent, track, &Seen { differs, ..seen(&agent, &documents, &settings(None)) }, &settings(None))
    };
    let on = |track, lost: &[&str]| {
        let lost = lost.iter().map(|name| (*name).to_owned()).collect();
        with(track, Differs { lost, ..Differs::default() })
    };
    let models = |is_kept: bool| Differs { integration: Some(("llm".to_owned(), is_kept)), ..Differs::default() };
    assert!(matches!(with(Track::Candidate, models(false)), Resolved::Fault(ConditionFault { reason: "IntegrationChanged", .. })));
    assert!(matches!(with(Track::Candidate, models(true)), Resolved::Plan(_)));
    assert!(matches!(on(Track::Candidate, &["t"]), Resolved::Fault(ConditionFault { reason: "ToolChanged", .. })));
    let skills = Differs { lost_skills: vec!["s".to_owned()], ..Differs::default() };
    assert!(matches!(with(Track::Candidate, skills), Resolved::Fault(ConditionFault { reason: "SkillChanged", .. })));
    let bases = Differs { lost_bases: vec!["kb".to_owned()], ..Differs::default() };
    assert!(matches!(with(Track::Candidate, bases), Resolved::Fault(ConditionFault { reason: "KnowledgeBaseChanged", .. })));
    assert!(matches!(on(Track::Candidate, &[]), Resolved::Plan(_)));
    let Resolved::Plan(plan) = on(Track::Stable, &["t"]) else { panic!("what serves goes on") };
    assert!(plan.warnings.iter().any(|found| (found.kind, found.holds) == (TOOLS_AS_RELEASED, Some(false))), "{:?}", plan.warnings);
}

#[test]
fn a_folder_that_is_held_counts_in_place_of_its_skill() {
    let yaml = agent("skills: [s]") + BROKEN_SKILL;
    let documents = documents(&yaml);
    let agent = all::<Agent>(&documents, "Agent").remove(0);
    let held =
        SkillFolder { name: "s".to_owned(), description: "as approved".to_owned(), paths: vec!["a/b".to_owned()], digest: "d1".to_owned() };
    let held_skills = BTreeMap::from([("s".to_owned(), Arc::new(held))]);
    let seen = Seen { held_skills, ..seen(&agent, &documents, &settings(None)) };
    let Resolved::Plan(plan) = resolve(&agent, Track::Stable, &seen, &settings(None)) else { panic!("it runs as it was approved") };
    let folder = &plan.skills[0];
    assert_eq!((folder.name.as_str(), folder.config_map.as_str()), ("s", "skill-d1"));
    let files: Vec<_> = folder.files.iter().map(|(key, path)| (key.as_str(), path.as_str())).collect();
    assert_eq!(files, [("a_-b", "a/b"), ("SKILL.md", "SKILL.md")]);
    let told: Value = serde_json::from_str(&plan.variables[contract::SKILLS]).unwrap();
    assert_eq!((&told[0]["description"], &told[0]["digest"]), (&Value::from("as approved"), &Value::from("d1")));
}

const TEAM: &str = "---\nkind: Team\nmetadata: {name: a, uid: t}\nspec: {name: A, gcpServiceAccounts: [me@example.com]}\n";

fn agent(spec: &str) -> String {
    format!("kind: Agent\nmetadata: {{name: helper, namespace: team-a, uid: u}}\nspec: {{name: H, framework: custom, {spec}}}\n{TEAM}")
}

/// A Tool in YAML.
fn tool(name: &str, spec: &str) -> String {
    format!("---\nkind: Tool\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}

const BROKEN_SKILL: &str = "---
kind: Skill
metadata: {name: s, generation: 2}
spec: {name: s, description: d, instructions: i}
status: {phase: Error, observedGeneration: 2, conditions: [{type: Ready, status: 'False', reason: FieldInvalid, message: 'spec.files: too many', lastTransitionTime: '2026-01-01T00:00:00Z'}]}
";

const TWINS: &str = "---
kind: Skill
metadata: {name: s, generation: 1}
spec: {name: same, description: d, instructions: i}
status: {phase: Available, observedGeneration: 1, digest: d1}
---
kind: Skill
metadata: {name: t, generation: 1}
spec: {name: same, description: d, instructions: i}
status: {phase: Available, observedGeneration: 1, digest: d2}
";

#[test]
fn faults_name_the_field_and_what_would_be_right() {
    let long = "x".repeat(200 * 1024);
    let long = format!("systemPrompt: {long}");
    let secret = "---\nkind: Secret\nmetadata: {name: s}\ndata: {a: eA==}\n";
    let cases: Vec<(&str, &str, &str, &str)> = vec![
        ("tools: [nope]", "", "ToolNotFound", "spec.tools[0]: there is no Tool nope"),
        ("knowledgeBases: [kb_nope]", "", "KnowledgeBaseNotFound", "spec.knowledgeBases[0]"),
        ("storage: postgresql", "", "DatabaseRequired", "spec.storage"),
        ("envSecrets: [nope]", "", "SecretMissing", "spec.envSecrets: Secret nope"),
        ("envSecrets: [s]", secret, "SecretNotAllowed", "agents.slipway.dev/agent-readable=true"),
        ("credentialSecret: s", secret, "SecretNotAllowed", "spec.credentialSecret"),
        ("gcpServiceAccount: you@example.com", "", "ServiceAccountNotAllowed", "Team a"),
        ("suggestions: '[1]', suggestionsProvider: static", "", "InvalidSuggestions", "JSON array of strings"),
        (&long, "", "ConfigTooLarge", "RUNTIME_SYSTEM_PROMPT would have 204800 bytes"),
        ("skills: [sk_no_pe]", "", "SkillNotFound", "spec.skills[0]: there is no Skill no-pe"),
        ("skills: [s]", BROKEN_SKILL, "SkillInvalid", "Skill s cannot be used: spec.files: too many"),
        ("skills: [s, t]", TWINS, "SkillInvalid", "spec.skills[1]: Skill t is called same"),
        ("governance: {guards: [spend-limit], limits: {dailyCostUsd: much}}", "", "InvalidLimit", "spec.governance.limits.dailyCostUsd"),
        ("tools: [t]", "---\nkind: Tool\nmetadata: {name: t}\nspec: {name: t, type: http}\n", "ToolInvalid", "spec.endpoint"),
    ];
    for (spec, others, reason, says) in cases {
        let fault = fault(&format!("{}{others}", agent(spec)), &settings(None));
        assert_eq!(fault.reason, reason, "{}", fault.message);
        assert!(fault.message.contains(says), "{reason}: {}", fault.message);
    }
    let homeless = agent("replicas: 1").replace(TEAM, "");
    assert_eq!(fault(&homeless, &settings(None)).reason, "NotATeamNamespace");
}

#[test]
fn a_knowledge_base_needs_the_platforms_database() {
    let base = "---\nkind: KnowledgeBase\nmetadata: {name: docs}\nspec: {name: D}\n";
    let yaml = format!("{}{base}", agent("knowledgeBases: [kb_docs]"));
    assert_eq!(fault(&yaml, &settings(None)).reason, "DatabaseRequired");
    assert!(plan(&yaml, &settings(Some("postgres://db/app"))).variables.contains_key("RUNTIME_KNOWLEDGE_BASES"));
}

#[test]
fn a_scale_changes_nothing_but_the_replicas() {
    let template = |spec: &str| build::build(&plan(&agent(spec), &settings(None))).deployment.spec.unwrap().template;
    assert_eq!(template("replicas: 1"), template("replicas: 3"));
    assert_eq!(template("suspend: true"), template("suspend: false"));
}

#[test]
fn annotations_stop_start_and_restart_an_agent_whose_spec_is_anothers() {
    let annotated = |spec: &str, annotations: &str| {
        let yaml = agent(spec).replace("uid: u}", &format!("uid: u, annotations: {{{annotations}}}}}"));
        build::build(&plan(&yaml, &settings(None))).deployment.spec.unwrap()
    };
    let plain = annotated("replicas: 2", "");
    for (spec, annotations, replicas) in [
        ("replicas: 2", "agents.slipway.dev/suspend: 'true'", 0),
        ("replicas: 2, suspend: true", "agents.slipway.dev/suspend: 'false'", 2),
        ("replicas: 2", "agents.slipway.dev/archived: 'true'", 0),
    ] {
        let built = annotated(spec, annotations);
        assert_eq!(built.replicas, Some(replicas), "{spec} {annotations}");
        assert_eq!(built.template, plain.template, "{spec} {annotations}");
    }
    let mut restarted = annotated("replicas: 2", "agents.slipway.dev/restarted-at: noon").template;
    let annotations = restarted.metadata.as_mut().unwrap().annotations.as_mut().unwrap();
    assert_eq!(annotations.remove("agents.slipway.dev/restarted-at").as_deref(), Some("noon"));
    assert_eq!(restarted, plain.template, "and nothing else");
}

#[test]
fn a_pull_secret_that_is_named_twice_is_applied_once() {
    let pod = |spec: &str| build::build(&plan(&agent(spec), &settings(None))).deployment.spec.unwrap().template.spec.unwrap();
    let twice = pod("podTemplate: {imagePullSecrets: [{name: b}, {name: a}, {name: b}]}").image_pull_secrets.unwrap();
    assert_eq!(twice.iter().map(|secret| &*secret.name).collect::<Vec<_>>(), ["b", "a"]);
}

#[test]
fn only_secrets_that_are_used_change_the_hash() {
    let secret = |name: &str, value: &str| {
        format!(
            "---\nkind: Secret\nmetadata: {{name: {name}, labels: {{agents.slipway.dev/agent-readable: 'true'}}}}\ndata: {{k: {value}}}\n"
        )
    };
    let hash = |value: &str| plan(&format!("{}{}", agent("envSecrets: [s]"), secret("s", value)), &settings(None)).secrets_hash;
    assert!(hash("eA==").is_some());
    assert_ne!(hash("eA=="), hash("eQ=="));
    assert_eq!(plan(&agent("replicas: 1"), &settings(None)).secrets_hash, None);
}

#[test]
fn no_secret_can_override_a_variable_of_the_contract() {
    let secrets = "---\nkind: Secret\nmetadata: {name: agent-env}\ndata: {RUNTIME_MODEL_ID: eA==}\n";
    let deployment = build::build(&plan(&format!("{}{secrets}", agent("replicas: 1")), &settings(None))).deployment;
    let sources = deployment.spec.unwrap().template.spec.unwrap().containers.remove(0).env_from.unwrap();
    assert!(sources.last().unwrap().config_map_ref.is_some(), "the last source wins, and it must be the ConfigMap");
}

#[tokio::test]
async fn judging_a_child_does_not_touch_the_reverse_index() {
    let (context, key) = (context(), |name: &str| Key::new("team-a", name));
    let documents = documents(&format!(
        "{}---\nkind: Tool\nmetadata: {{name: t, namespace: team-a}}\nspec: {{name: t, type: mcp, mcpEndpoint: 'https://x', headersFrom: [{{name: A, secret: s, key: k}}]}}\n",
        agent("tools: [t], knowledgeBases: [kb_docs]")
    ));
    context.caches.agents.insert(key("helper"), Guarded(Ok(all::<Agent>(&documents, "Agent").remove(0))).into());
    context.caches.tools.insert(key("t"), Guarded(Ok(all::<Tool>(&documents, "Tool").remove(0))));
    let named = || {
        let all = [
            (Kind::of::<Tool>(), "t"),
            (Kind::of::<KnowledgeBase>(), "docs"),
            (Kind::of::<Secret>(), "s"),
            (Kind::of::<Secret>(), "agent-env"),
        ];
        all.map(|(kind, name)| context.caches.references.to(kind, &key(name)))
    };
    super::desired(&context, &key("helper"), ChildKind::ConfigMap, "helper-config");
    assert_eq!(named(), [const { Vec::new() }; 4], "a replica that stands by judges too, and must not pretend to reconcile");
    let agent = all::<Agent>(&documents, "Agent").remove(0);
    gather::note(&key("helper"), &tracks::of(&agent, &context).unwrap().workloads, std::iter::empty(), &context);
    assert_eq!(named(), std::array::from_fn::<_, 4, _>(|_| vec![key("helper")]));
}

#[tokio::test]
async fn a_change_reaches_the_agents_that_name_what_has_changed() {
    let key = |name: &str| Key::new("team-a", name);
    let controller = Controller::new(context());
    let caches = &controller.context.caches;
    for (name, tool) in [("one", "t"), ("two", "u")] {
        let documents = documents(&agent(&format!("tools: [{tool}]")).replace("name: helper", &format!("name: {name}")));
        caches.agents.insert(key(name), Guarded(Ok(all::<Agent>(&documents, "Agent").remove(0))).into());
        caches.references.set(&key(name), [(Kind::of::<Tool>(), key(tool))].into());
    }
    for (change, expected) in [
        (Change::Object(Kind::of::<Agent>(), key("one")), &["one"][..]),
        (Change::Object(Kind::of::<Tool>(), key("u")), &["two"]),
        (Change::Object(Kind::of::<Skill>(), key("u")), &[]),
        (Change::Object(Kind::of::<Team>(), Key::new("", "a")), &["one", "two"]),
        (Change::Child("Agent", key("two")), &["two"]),
        (Change::Child("Skill", key("two")), &[]),
        (Change::Pods(key("one")), &["one"]),
        (Change::Namespace("team-a".to_owned()), &["one", "two"]),
        (Change::SecretsRead("team-b".to_owned()), &[]),
        (Change::Platform, &["one", "two"]),
        (Change::Database { ready: false }, &[]),
        (Change::Database { ready: true }, &["one", "two"]),
    ] {
        let requested = controller.requests.open();
        controller.changed(&change);
        let mut requested: Vec<_> = requested.take(controller.requests.depth()).map(|key| key.name).collect().await;
        requested.sort();
        assert_eq!(requested, expected, "{change:?}");
    }
}

#[tokio::test]
async fn a_team_that_counts_its_agents_reconciles_none_of_them() {
    let controller = Controller::new(context());
    let caches = &controller.context.caches;
    let agent = all::<Agent>(&documents(&agent("")), "Agent").remove(0);
    let (helper, team) = (Key::of(&agent), Key::new("", "a"));
    caches.agents.insert(helper, Guarded(Ok(agent)).into());
    for (generation, agents, leaving, requested) in
        [(1, 0, "", 1), (1, 1, "", 0), (1, 2, "", 0), (2, 2, "", 1), (2, 2, "deletionTimestamp: 2026-01-01T00:00:00Z, ", 1)]
    {
        let yaml = format!(
            "kind: Team\nmetadata: {{{leaving}name: a, generation: {generation}}}\nspec: {{name: A}}\nstatus: {{agents: {agents}}}\n"
        );
        caches.teams.insert(team.clone(), Guarded(Ok(all::<Team>(&documents(&yaml), "Team").remove(0))));
        let requests = controller.requests.open();
        controller.changed(&Change::Object(Kind::of::<Team>(), team.clone()));
        assert_eq!(controller.requests.depth(), requested, "{yaml}");
        drop(requests.take(requested).collect::<Vec<_>>().await);
    }
    caches.teams.remove(&team);
    controller.changed(&Change::Object(Kind::of::<Team>(), team));
    assert_eq!(controller.requests.depth(), 1, "the Team has gone");
}

#[test]
fn an_agent_waits_until_a_changed_skill_is_laid_out() {
    let skill = |generation: u32, observed: u32, digest: &str| {
        format!(
            "---\nkind: Skill\nmetadata: {{name: s, generation: {generation}}}\nspec: {{name: s, description: d, instructions: i}}\n\
             status: {{phase: Available, observedGeneration: {observed}, digest: {digest}}}\n"
        )
    };
    let yaml = |skill: &str| format!("{}{skill}", agent("skills: [sk_s]"));
    assert!(matches!(resolved(&yaml(&skill(2, 1, "one")), &settings(None)), Resolved::Unknown(_)));
    let hash = |digest: &str| {
        let template = build::build(&plan(&yaml(&skill(2, 2, digest)), &settings(None))).deployment.spec.unwrap().template;
        template.metadata.unwrap().annotations.unwrap().remove("agents.slipway.dev/config-hash")
    };
    assert_ne!(hash("one"), hash("two"), "other files roll the pods");
}

#[test]
fn a_list_that_was_merely_seen_restarts_nobody() {
    let yaml = |spec: &str, status: &str| {
        let agent = agent("tools: [t], strategy: agent-react");
        format!(
            "{agent}---\nkind: Tool\nmetadata: {{name: t}}\nspec: {{name: m, type: mcp, mcpEndpoint: 'https://m'{spec}}}\nstatus: {{{status}}}\n"
        )
    };
    let built = |spec: &str, status: &str| {
        let plan = plan(&yaml(spec, status), &settings(None));
        let template = build::build(&plan).deployment.spec.unwrap().template;
        (plan.tool_digests.clone().unwrap(), plan.variables[contract::TOOLS].contains("sha256:x"), template)
    };
    let (digests, _, fresh) = built("", "");
    assert_eq!(digests, "{}", "it is there, so that lists count as approved");
    let (digests, pinned, seen) = built("", "toolsServer: 'https://m', toolsDigest: 'sha256:x'");
    assert_eq!((digests.as_str(), pinned, &seen), (r#"{"m":"sha256:x"}"#, false, &fresh), "the pod that starts next is told");
    assert_eq!(built("", "toolsServer: 'https://other', toolsDigest: 'sha256:x'").0, "{}", "another server's list is another list");
    let (digests, pinned, approved) = built(", toolsDigest: 'sha256:x'", "toolsServer: 'https://m', toolsDigest: 'sha256:x'");
    assert_eq!((digests.as_str(), pinned), ("{}", true));
    assert_ne!(approved, fresh, "who approves a list wants it in force");
    assert_eq!(plan(&agent("replicas: 1"), &settings(None)).tool_digests, None);
}
