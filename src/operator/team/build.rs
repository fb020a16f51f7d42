//! What a Team's namespace holds, from the Team and the settings alone.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, LimitRange, LimitRangeItem, LimitRangeSpec, Namespace, ResourceQuota, ResourceQuotaSpec, Secret,
};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::Value;
use slipway_api::agent::RUNTIME_SECRET;
use slipway_api::contract::policies;
use slipway_api::{Team, agent, contract, ids, labels};
use slipway_cluster::write::value;

use super::worker;
use crate::caches::ChildKind;
use crate::quantity::canonical;
use crate::settings::Settings;
use crate::tenancy::DatabaseAccess;
use crate::worker::{EVALUATION, EVALUATOR_NAME, EVALUATORS, component_labels};

/// The ClusterRole with the right to read and write Secrets, given to the manager in each team's namespace.
const SECRETS_ROLE: &str = "slipway-team-secrets";
/// The role by which REST writes the logins of integrations, and of their namespace's Secrets no other.
const INTEGRATIONS_ROLE: &str = "slipway-team-integrations";
/// The Secret with the credential by which the namespace's quality gates are asked. The team's admins read it.
const GATE_SECRET: &str = "slipway-canary-gate";
/// The name of the quota and of the limits.
const LIMITS: &str = "slipway";

/// What is known of the surroundings of a team.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub settings: &'a Settings,
    pub access: &'a DatabaseAccess,
    /// Whether Kubernetes can count objects of our kinds by now.
    pub counts: bool,
    /// Whether the team has a KnowledgeBase, with a database, or an Integration.
    pub has_worker: bool,
    /// A hash over the Secrets that the worker reads.
    pub secrets_hash: Option<&'a str>,
    /// The text of the file with the team's policies.
    pub policies: &'a str,
}

pub(super) fn build(team: &Team, surroundings: Surroundings) -> Result<Vec<(ChildKind, Value)>, serde_json::Error> {
    let Surroundings { settings, access, counts, has_worker, secrets_hash, policies } = surroundings;
    let mut all = vec![(ChildKind::Namespace, value(&namespace(team, settings))?)];
    let accounts = [(SECRETS_ROLE, Some(&settings.service_account)), (INTEGRATIONS_ROLE, settings.rest_account.as_ref())];
    for (role, account) in accounts.into_iter().filter_map(|(role, account)| Some((role, account?))) {
        all.push((ChildKind::RoleBinding, value(&role_binding(team, settings, role, account))?));
    }
    if let Some(secret) = secret(team, settings, access) {
        all.push((ChildKind::Secret, value(&secret)?));
    }
    if settings.team_network.enabled {
        all.push((ChildKind::NetworkPolicy, value(&deny_all(team))?));
        all.push((ChildKind::NetworkPolicy, value(&allow_callers(team, settings))?));
        all.push((ChildKind::NetworkPolicy, value(&allow_agents(team, settings))?));
        all.push((ChildKind::NetworkPolicy, value(&allow_evaluators(team, settings))?));
    }
    all.push((ChildKind::ConfigMap, value(&policy_file(team, policies))?));
    let amounts = amounts(team, settings, counts);
    if !amounts.is_empty() {
        all.push((ChildKind::ResourceQuota, value(&quota(team, &amounts))?));
    }
    if team.spec.container_limits.is_some() {
        all.push((ChildKind::LimitRange, value(&limits(team))?));
    }
    if has_worker {
        if settings.team_network.enabled {
            for policy in worker::network_policies(team, settings) {
                all.push((ChildKind::NetworkPolicy, value(&policy)?));
            }
        }
        all.push((ChildKind::Deployment, value(&worker::deployment(team, settings, secrets_hash))?));
        all.push((ChildKind::Service, value(&worker::service(team))?));
    }
    // The last one, as a quota of Secrets may refuse it.
    if let Some(secret) = gate_secret(team, settings) {
        all.push((ChildKind::Secret, value(&secret)?));
    }
    Ok(all)
}

fn own_labels(team: &Team) -> BTreeMap<String, String> {
    let slug = team.name_any();
    [(labels::PART_OF, labels::PLATFORM), (labels::MANAGED_BY, labels::OPERATOR), (labels::TEAM, &slug)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

pub(super) fn meta(team: &Team, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(super::namespace(team)),
        labels: Some(own_labels(team)),
        owner_references: team.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn namespace(team: &Team, settings: &Settings) -> Namespace {
    let mut metadata = meta(team, &super::namespace(team));
    metadata.namespace = None;
    let named = [("agents.slipway.dev/team-id", ids::team(&team.name_any())), ("agents.slipway.dev/team-name", team.spec.name.clone())];
    let named = named.map(|(key, value)| (key.to_owned(), value));
    metadata.annotations = Some(named.into_iter().chain(pod_settings(team, settings)).collect());
    let standard = ["enforce", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), "restricted".to_owned()));
    metadata.labels.get_or_insert_default().extend(standard);
    Namespace { metadata, ..Namespace::default() }
}

/// What the chart allows in every team, and what this one is allowed besides: lists of lines.
fn pod_settings(team: &Team, settings: &Settings) -> Vec<(String, String)> {
    let own = team.spec.allowed_pod_settings.clone().unwrap_or_default();
    let both = settings.allowed_pod_settings.lists().into_iter().zip(own.lists());
    both.map(|((list, all), (_, own))| {
        let lines: BTreeSet<&str> = all.iter().chain(own).map(String::as_str).collect();
        (format!("{}{list}", labels::ALLOWED_POD_SETTINGS), lines.into_iter().collect::<Vec<_>>().join("\n"))
    })
    .collect()
}

/// Gives an account of the platform a role of the same name in the team's namespace.
fn role_binding(team: &Team, settings: &Settings, role: &str, account: &str) -> RoleBinding {
    RoleBinding {
        metadata: meta(team, role),
        role_ref: RoleRef { api_group: "rbac.authorization.k8s.io".to_owned(), kind: "ClusterRole".to_owned(), name: role.to_owned() },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.to_owned(),
            namespace: Some(settings.platform_namespace.clone()),
            api_group: None,
        }]),
    }
}

/// The team's own login. While it is not known, what is there stays as it is.
fn secret(team: &Team, settings: &Settings, access: &DatabaseAccess) -> Option<Secret> {
    let suffix = format!("{}.svc.{}", settings.platform_namespace, settings.cluster_domain);
    let data = match access {
        DatabaseAccess::Unknown => return None,
        DatabaseAccess::Without => BTreeMap::new(),
        DatabaseAccess::Url(url) => {
            let url = url.clone().qualified(&suffix);
            let parts = [
                (contract::DATABASE_URL, url.complete()),
                (contract::DATABASE_USER, url.user()),
                (contract::DATABASE_PASSWORD, url.password().unwrap_or_default()),
            ];
            parts.into_iter().map(|(name, text)| (name.to_owned(), ByteString(text.as_bytes().to_vec()))).collect()
        }
    };
    Some(Secret { metadata: uncopied(meta(team, RUNTIME_SECRET)), type_: Some("Opaque".to_owned()), data: Some(data), ..Secret::default() })
}

/// Of what every pod is to read as it is now. Pods of Flagger's would read a copy from the day of their rollout.
fn uncopied(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta { annotations: Some([(labels::CONFIG_TRACKING.to_owned(), "disabled".to_owned())].into()), ..metadata }
}

/// What a progressive-delivery controller is told, to ask for the verdict of a gate of this namespace.
fn gate_secret(team: &Team, settings: &Settings) -> Option<Secret> {
    let credential = settings.callback_key.as_ref()?.gate().credential(&super::namespace(team));
    let url = settings.platform.url.as_deref().and_then(|platform| gate_url(platform, &credential));
    let given = [("credential", Some(credential)), ("url", url)];
    let data = given.into_iter().filter_map(|(name, text)| Some((name.to_owned(), ByteString(text?.into_bytes())))).collect();
    Some(Secret { metadata: meta(team, GATE_SECRET), type_: Some("Opaque".to_owned()), data: Some(data), ..Secret::default() })
}

/// With the credential as a password, which Go's errors leave out of a URL that they show, as Flagger does; a path they show whole.
fn gate_url(platform: &str, credential: &str) -> Option<String> {
    let (scheme, place) = platform.trim_end_matches('/').split_once("://")?;
    Some(format!("{scheme}://gate:{credential}@{place}/api/v1/webhooks/canary-gate"))
}

/// Mounted by every agent's pod, which does not start without it.
fn policy_file(team: &Team, text: &str) -> ConfigMap {
    ConfigMap {
        metadata: uncopied(meta(team, policies::CONFIG_MAP)),
        data: Some([(policies::KEY.to_owned(), text.to_owned())].into()),
        ..ConfigMap::default()
    }
}

/// What the team may have: the platform's amounts, and the Team's own in their place.
pub(super) fn amounts(team: &Team, settings: &Settings, counts: bool) -> BTreeMap<String, Quantity> {
    let of_ours = format!(".{}", slipway_api::GROUP);
    let defaults = settings.team_quota.iter().filter(|(name, _)| counts || !name.ends_with(&of_ours));
    defaults.chain(&team.spec.quota).map(|(name, amount)| (name.clone(), amount.clone())).collect()
}

fn quota(team: &Team, amounts: &BTreeMap<String, Quantity>) -> ResourceQuota {
    ResourceQuota {
        metadata: meta(team, LIMITS),
        spec: Some(ResourceQuotaSpec { hard: Some(canonical(amounts)), ..ResourceQuotaSpec::default() }),
        status: None,
    }
}

fn limits(team: &Team) -> LimitRange {
    let wanted = team.spec.container_limits.clone().unwrap_or_default();
    let some = |map: BTreeMap<String, Quantity>| (!map.is_empty()).then(|| canonical(&map));
    let item = LimitRangeItem {
        type_: "Container".to_owned(),
        default: some(wanted.default),
        default_request: some(wanted.default_request),
        max: some(wanted.max),
        ..LimitRangeItem::default()
    };
    LimitRange { metadata: meta(team, LIMITS), spec: Some(LimitRangeSpec { limits: vec![item] }) }
}

fn deny_all(team: &Team) -> NetworkPolicy {
    NetworkPolicy {
        metadata: meta(team, "slipway-deny-all"),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector::default()),
            policy_types: Some(both()),
            ..NetworkPolicySpec::default()
        }),
    }
}

/// Agents are called by their namespace and by whom the chart admits, unless they are for the platform alone.
fn allow_callers(team: &Team, settings: &Settings) -> NetworkPolicy {
    let neighbours = vec![namespace_peer(&super::namespace(team))];
    let mut ingress = vec![NetworkPolicyIngressRule { from: Some(neighbours), ports: Some(vec![tcp(contract::PORT)]) }];
    ingress.extend(settings.team_network.ingress.clone());
    let closed = LabelSelectorRequirement {
        key: labels::ACCESS.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec![agent::Access::Platform.as_str().to_owned()]),
    };
    NetworkPolicy {
        metadata: meta(team, "slipway-callers"),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(agents(vec![closed])),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(ingress),
            ..NetworkPolicySpec::default()
        }),
    }
}

/// The team's agents of which this holds, too.
fn agents(more: Vec<LabelSelectorRequirement>) -> LabelSelector {
    let mut all = vec![LabelSelectorRequirement { key: labels::AGENT.to_owned(), operator: "Exists".to_owned(), values: None }];
    all.extend(more);
    LabelSelector { match_expressions: Some(all), ..LabelSelector::default() }
}

/// What agents always need: to be called by the platform and by those that evaluate them, even where nobody else may, to call each other,
/// to ask the cluster's name servers (any other could be a way out), and to reach the platform, where database and telemetry are.
/// Whatever else is needed is a value of the chart.
fn allow_agents(team: &Team, settings: &Settings) -> NetworkPolicy {
    let platform = vec![namespace_peer(&settings.platform_namespace)];
    let evaluators = NetworkPolicyPeer { pod_selector: Some(evaluators()), ..namespace_peer(&super::namespace(team)) };
    let ports = vec![tcp(contract::PORT), tcp(contract::CONTROL_PORT)];
    let ingress = vec![
        NetworkPolicyIngressRule { from: Some(platform), ports: Some(ports) },
        NetworkPolicyIngressRule { from: Some(vec![evaluators]), ports: Some(vec![tcp(contract::PORT)]) },
    ];
    NetworkPolicy {
        metadata: meta(team, "slipway-agents"),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(agents(Vec::new())),
            policy_types: Some(both()),
            ingress: Some(ingress),
            egress: Some(egress(team, settings)),
        }),
    }
}

/// Those that evaluate agents reach what agents reach, as they ask them and the models that judge. The platform alone calls them.
fn allow_evaluators(team: &Team, settings: &Settings) -> NetworkPolicy {
    let platform = vec![namespace_peer(&settings.platform_namespace)];
    let ingress = vec![NetworkPolicyIngressRule { from: Some(platform), ports: Some(vec![tcp(contract::CONTROL_PORT)]) }];
    NetworkPolicy {
        metadata: meta(team, EVALUATORS),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(evaluators()),
            policy_types: Some(both()),
            ingress: Some(ingress),
            egress: Some(egress(team, settings)),
        }),
    }
}

fn evaluators() -> LabelSelector {
    LabelSelector { match_labels: Some(component_labels(EVALUATOR_NAME, EVALUATION)), ..LabelSelector::default() }
}

/// Name servers, the team's agents, the platform, and what the chart allows.
fn egress(team: &Team, settings: &Settings) -> Vec<NetworkPolicyEgressRule> {
    let platform = vec![namespace_peer(&settings.platform_namespace)];
    let neighbours = vec![namespace_peer(&super::namespace(team))];
    let mut egress = Vec::new();
    // An empty list of peers would stand for everybody.
    if !settings.team_network.dns.is_empty() {
        let ports = Some(vec![port("UDP", 53), port("TCP", 53)]);
        egress.push(NetworkPolicyEgressRule { to: Some(settings.team_network.dns.clone()), ports });
    }
    egress.extend([
        NetworkPolicyEgressRule { to: Some(neighbours), ports: Some(vec![tcp(contract::PORT)]) },
        NetworkPolicyEgressRule { to: Some(platform), ports: None },
    ]);
    egress.extend(settings.team_network.egress.clone());
    egress
}

pub(super) fn both() -> Vec<String> {
    ["Ingress", "Egress"].map(str::to_owned).into()
}

pub(super) fn namespace_peer(name: &str) -> NetworkPolicyPeer {
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
    let selector = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
    NetworkPolicyPeer { namespace_selector: Some(selector), ..NetworkPolicyPeer::default() }
}

pub(super) fn tcp(number: i32) -> NetworkPolicyPort {
    port("TCP", number)
}

pub(super) fn port(protocol: &str, number: i32) -> NetworkPolicyPort {
    NetworkPolicyPort { protocol: Some(protocol.to_owned()), port: Some(IntOrString::Int(number)), end_port: None }
}

#[cfg(test)]
mod tests {
    use slipway_http::callback::CallbackKey;

    use super::*;
    use crate::testing::settings;

    /// Each rule as `peers: ports`; nothing stands for everybody, and for every port.
    fn rules(policy: &Value, direction: &str, peers: &str) -> Vec<String> {
        let line = |rule: &Value| {
            let names = rule[peers].as_array().into_iter().flatten().map(|peer| {
                let namespace = peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"].as_str().unwrap();
                let parts = peer.as_object().map_or(0, serde_json::Map::len);
                let labels = &peer["podSelector"]["matchLabels"];
                match labels["k8s-app"].as_str().or(labels["app.kubernetes.io/name"].as_str()) {
                    Some(pods) if parts == 2 => format!("{namespace}/{pods}"),
                    _ => {
                        assert_eq!(parts, 1, "namespaces and nothing else: {peer}");
                        namespace.to_owned()
                    }
                }
            });
            let ports = rule["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|port| format!("{}/{}", port["protocol"].as_str().unwrap(), port["port"]));
            format!("{}: {}", names.collect::<Vec<_>>().join(" "), ports.collect::<Vec<_>>().join(" "))
        };
        policy["spec"][direction].as_array().into_iter().flatten().map(line).collect()
    }

    fn around(settings: &Settings) -> Surroundings<'_> {
        Surroundings { settings, access: &DatabaseAccess::Without, counts: true, has_worker: false, secrets_hash: None, policies: "{}" }
    }

    #[test]
    fn a_team_with_a_knowledge_base_has_a_worker() {
        let team: Team = serde_json::from_value(serde_json::json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"name": "A"}})).unwrap();
        let egress = serde_json::json!([{"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "sources"}}}]}]);
        let mut settings = settings(Some("postgres://u:hunter2@db/app"));
        settings.worker.egress = serde_json::from_value(egress).unwrap();
        let named = |settings: &Settings, has_worker| {
            let children = build(&team, Surroundings { has_worker, secrets_hash: Some("h"), ..around(settings) }).unwrap();
            let of_worker = |(kind, body): (ChildKind, Value)| {
                let name = body["metadata"]["name"].as_str()?.to_owned();
                ["slipway-worker", "slipway-ingestions"].contains(&name.as_str()).then_some(((kind, name), body))
            };
            children.into_iter().filter_map(of_worker).collect::<BTreeMap<_, _>>()
        };
        assert!(named(&settings, false).is_empty());
        let bare = named(&crate::testing::settings(None), true);
        let env = bare[&(ChildKind::Deployment, "slipway-worker".to_owned())]["spec"]["template"]["spec"]["containers"][0]["env"]
            .as_array()
            .unwrap();
        let has = |name: &str| env.iter().any(|env| env["name"] == name);
        assert!(has("RUNTIME_TEAM") && !has("SLIPWAY_KNOWLEDGE_URL") && !has("RUNTIME_DATABASE_PASSWORD"), "{env:?}");
        let all = named(&settings, true);
        let of = |kind, name: &str| &all[&(kind, name.to_owned())];
        assert_eq!(all.len(), 4);
        let deployment = of(ChildKind::Deployment, "slipway-worker");
        let pod = &deployment["spec"]["template"];
        assert_eq!(pod["metadata"]["annotations"], serde_json::json!({"agents.slipway.dev/secrets-hash": "h"}));
        assert!(pod["metadata"]["labels"].get("agents.slipway.dev/agent").is_none(), "what holds for agents does not hold for it");
        assert_eq!(pod["spec"]["containers"][0]["args"], serde_json::json!(["serve"]));
        assert!(!deployment.to_string().contains("hunter2"), "{deployment}");
        let selects = serde_json::json!({"app.kubernetes.io/component": "worker", "app.kubernetes.io/name": "slipway-worker"});
        assert_eq!(of(ChildKind::Service, "slipway-worker")["spec"]["selector"], selects);
        assert_eq!(deployment["spec"]["selector"]["matchLabels"], selects);
        let worker = of(ChildKind::NetworkPolicy, "slipway-worker");
        assert_eq!(rules(worker, "ingress", "from"), ["slipway-system: TCP/8000"]);
        assert_eq!(rules(worker, "egress", "to"), ["kube-system/kube-dns: UDP/53 TCP/53", "slipway-system: ", "sources: "]);
        let ingestions = of(ChildKind::NetworkPolicy, "slipway-ingestions");
        assert!(ingestions["spec"]["ingress"].is_null() && ingestions["spec"]["policyTypes"][0] == "Ingress", "nobody calls them");
        assert_eq!(rules(ingestions, "egress", "to"), rules(worker, "egress", "to"));
        settings.team_network.enabled = false;
        assert_eq!(named(&settings, true).len(), 2);
    }

    #[test]
    fn the_file_of_policies_comes_before_what_may_be_refused() {
        let spec = serde_json::json!({"name": "A", "quota": {"count/configmaps": 0}});
        let team: Team = serde_json::from_value(serde_json::json!({"metadata": {"name": "a", "uid": "u"}, "spec": spec})).unwrap();
        let children = build(&team, Surroundings { policies: "{\"policies\":[]}", ..around(&settings(None)) }).unwrap();
        let kinds: Vec<_> = children.iter().map(|(kind, _)| *kind).collect();
        let at = |kind| kinds.iter().position(|found| *found == kind).unwrap();
        assert!(at(ChildKind::NetworkPolicy) < at(ChildKind::ConfigMap) && at(ChildKind::ConfigMap) < at(ChildKind::ResourceQuota));
        let (_, file) = &children[at(ChildKind::ConfigMap)];
        assert_eq!((&file["metadata"]["name"], &file["metadata"]["namespace"]), (&"slipway-policies".into(), &"team-a".into()));
        assert_eq!(file["data"], serde_json::json!({"policies.json": "{\"policies\":[]}"}));
        assert_eq!(file["metadata"]["ownerReferences"][0]["kind"], "Team");
    }

    #[test]
    fn a_team_has_the_credential_of_its_own_gates() {
        let team = |name: &str| -> Team {
            serde_json::from_value(serde_json::json!({"metadata": {"name": name, "uid": "u"}, "spec": {"name": "A"}})).unwrap()
        };
        let mut settings = settings(None);
        let secret = |team: &Team, settings: &Settings| -> Option<Secret> {
            let children = build(team, around(settings)).unwrap();
            let found = children.into_iter().find(|(kind, body)| *kind == ChildKind::Secret && body["metadata"]["name"] == GATE_SECRET);
            found.map(|(_, body)| serde_json::from_value(body).unwrap())
        };
        assert!(secret(&team("a"), &settings).is_none(), "without a key there is none");
        let key = CallbackKey::new(&[1; 32]).unwrap();
        settings.callback_key = Some(key.clone());
        let text = |secret: &Secret, name: &str| {
            let data = secret.data.as_ref().unwrap();
            data.get(name).map(|bytes| String::from_utf8(bytes.0.clone()).unwrap())
        };
        let found = secret(&team("a"), &settings).unwrap();
        let credential = text(&found, "credential").unwrap();
        assert!(key.gate().verify("team-a", &credential) && !key.gate().verify("team-b", &credential));
        assert_eq!((found.metadata.namespace.as_deref(), found.type_.as_deref()), (Some("team-a"), Some("Opaque")));
        assert_eq!(found.metadata.owner_references.as_ref().unwrap()[0].kind, "Team");
        assert!(!found.metadata.labels.as_ref().unwrap().contains_key("agents.slipway.dev/agent-readable"), "it is for no agent");
        assert_eq!(text(&found, "url"), None, "there is no REST");
        settings.platform.url = Some("http://slipway-rest.slipway-system.svc.cluster.local/".to_owned());
        let found = secret(&team("a"), &settings).unwrap();
        let url = url::Url::parse(&text(&found, "url").unwrap()).unwrap();
        assert_eq!((url.password(), url.path()), (Some(credential.as_str()), "/api/v1/webhooks/canary-gate"));
        assert_eq!(url.host_str(), Some("slipway-rest.slipway-system.svc.cluster.local"));
        let others = secret(&team("b"), &settings).unwrap();
        assert_ne!(text(&others, "credential"), Some(credential));
    }

    #[test]
    fn the_teams_word_counts_before_the_platforms() {
        let mut settings = settings(None);
        let amount = |text: &str| Quantity(text.to_owned());
        settings.team_quota = [("count/agents.agents.slipway.dev", "50"), ("count/secrets", "100"), ("count/services", "100")]
            .map(|(name, text)| (name.to_owned(), amount(text)))
            .into();
        let team = |quota: Value| -> Team {
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "spec": {"name": "A", "quota": quota}})).unwrap()
        };
        let hard = |team: &Team, counts: bool| {
            let surroundings = Surroundings { counts, ..around(&settings) };
            let quota = build(team, surroundings).unwrap().into_iter().find(|(kind, _)| *kind == ChildKind::ResourceQuota);
            quota.map_or(Value::Null, |(_, quota)| quota["spec"]["hard"].clone())
        };
        let own = team(serde_json::json!({"count/agents.agents.slipway.dev": 7, "pods": 5}));
        assert_eq!(
            hard(&own, true),
            serde_json::json!({"count/agents.agents.slipway.dev": "7", "count/secrets": "100", "count/services": "100", "pods": "5"})
        );
        let plain = team(serde_json::json!({}));
        assert_eq!(hard(&plain, false), serde_json::json!({"count/secrets": "100", "count/services": "100"}));
        assert_eq!(hard(&plain, true)["count/agents.agents.slipway.dev"], "50");
    }

    #[test]
    fn agents_call_their_neighbours_and_nobody_but_the_platform_their_control_port() {
        let team: Team = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "spec": {"name": "A"}})).unwrap();
        let settings = settings(None);
        let children = build(&team, around(&settings)).unwrap();
        let policies: Vec<&Value> =
            children.iter().filter(|(kind, _)| *kind == ChildKind::NetworkPolicy).map(|(_, policy)| policy).collect();
        let [closed, callers, open, evaluators] = policies[..] else { panic!("four policies, not {policies:#?}") };
        assert_eq!(closed["spec"], serde_json::json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
        assert_eq!(rules(callers, "ingress", "from"), ["team-a: TCP/8000"]);
        let but_closed = serde_json::json!({"matchExpressions": [
            {"key": "agents.slipway.dev/agent", "operator": "Exists"},
            {"key": "agents.slipway.dev/access", "operator": "NotIn", "values": ["platform"]},
        ]});
        assert_eq!(callers["spec"]["podSelector"], but_closed);
        assert_eq!(callers["spec"]["policyTypes"], serde_json::json!(["Ingress"]));
        assert_eq!(rules(open, "ingress", "from"), ["slipway-system: TCP/8000 TCP/8001", "team-a/slipway-evaluator: TCP/8000"]);
        assert_eq!(rules(open, "egress", "to"), ["kube-system/kube-dns: UDP/53 TCP/53", "team-a: TCP/8000", "slipway-system: "]);
        let selects = serde_json::json!({"app.kubernetes.io/component": "evaluation", "app.kubernetes.io/name": "slipway-evaluator"});
        assert_eq!(evaluators["spec"]["podSelector"], serde_json::json!({"matchLabels": selects}));
        assert_eq!(rules(evaluators, "ingress", "from"), ["slipway-system: TCP/8001"], "nobody else may tell one what to ask");
        assert_eq!(rules(evaluators, "egress", "to"), rules(open, "egress", "to"));
    }

    #[test]
    fn what_pods_may_have_is_the_charts_word_and_the_teams() {
        let spec = serde_json::json!({"name": "A", "allowedPodSettings": {"annotations": ["example.com/*", "a"], "tolerations": ["gpu"]}});
        let team: Team = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
        let mut settings = settings(None);
        settings.allowed_pod_settings.annotations = vec!["a".to_owned(), "b".to_owned()];
        let children = build(&team, around(&settings)).unwrap();
        let [(ChildKind::Namespace, home), ..] = &children[..] else { panic!("{children:#?}") };
        for (list, lines) in [("annotations", "a\nb\nexample.com/*"), ("labels", ""), ("priorityClassNames", ""), ("tolerations", "gpu")] {
            assert_eq!(home["metadata"]["annotations"][format!("allowed.agents.slipway.dev/{list}")], lines, "{list}");
        }
    }

    #[test]
    fn no_name_servers_are_nobody_and_not_everybody() {
        let team: Team = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "spec": {"name": "A"}})).unwrap();
        let mut settings = settings(None);
        settings.team_network.dns.clear();
        let policy = value(&allow_agents(&team, &settings)).unwrap();
        assert_eq!(rules(&policy, "egress", "to"), ["team-a: TCP/8000", "slipway-system: "]);
    }
}
