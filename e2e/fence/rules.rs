//! From policies to rules, without touching anything. Who is under no policy is open; who is under one is closed but for
//! what some policy allows; and both ends of a way must be open.
//!
//! A packet goes by the first chain, which passes on what concerns the fenced pods, to the one where each pod's own chains
//! are asked. There RETURN means allowed, and the end of a chain refuses, loudly, so that a test need not wait.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::Value;

use super::block::Block;
use super::labels::selects;

/// Chains by name, and the rules of each.
pub(super) type Chains = BTreeMap<String, Vec<String>>;

const REFUSE: &str = "-j REJECT --reject-with icmp-admin-prohibited";

#[derive(Clone, Copy)]
enum Direction {
    Egress,
    Ingress,
}

impl Direction {
    /// The policy type, its field, the field of its peers.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Egress => ["Egress", "egress", "to"],
            Self::Ingress => ["Ingress", "ingress", "from"],
        }
    }

    /// How iptables calls the pod itself, and the other end.
    fn ends(self) -> [&'static str; 2] {
        match self {
            Self::Egress => ["-s", "-d"],
            Self::Ingress => ["-d", "-s"],
        }
    }
}

struct Pod<'a> {
    object: &'a Value,
    namespace: &'a str,
    address: Ipv4Addr,
}

struct Cluster<'a> {
    pods: Vec<Pod<'a>>,
    policies: Vec<&'a Value>,
    /// The labels of each namespace.
    namespaces: BTreeMap<&'a str, &'a Value>,
}

/// The chains that put `objects`, which are policies, namespaces and pods, in force for the pods of the namespaces `within`.
/// The first one is called `first`.
pub fn render(first: &str, within: &[String], objects: &[Value]) -> Result<Chains, String> {
    let cluster = Cluster::of(objects);
    let all = format!("{first}-ALL");
    // What was allowed goes on, and a pod always reaches itself.
    let mut entrance = vec!["-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN".to_owned()];
    for Pod { address, .. } in cluster.pods.iter().filter(|pod| within.iter().any(|namespace| namespace == pod.namespace)) {
        entrance.push(format!("-s {address}/32 -d {address}/32 -j RETURN"));
        entrance.extend(["-s", "-d"].map(|end| format!("{end} {address}/32 -g {all}")));
    }
    let (mut chains, mut each) = (Chains::from([(first.to_owned(), entrance)]), Vec::new());
    for direction in [Direction::Egress, Direction::Ingress] {
        let ([_, _, word], [own, _]) = (direction.words(), direction.ends());
        for (number, pod) in cluster.pods.iter().enumerate() {
            let policies = cluster.policies_of(pod, direction)?;
            if policies.is_empty() {
                continue;
            }
            let chain = format!("{first}-{}-{number}", word.to_uppercase());
            each.push(format!("{own} {}/32 -j {chain}", pod.address));
            let mut rules = Vec::new();
            for policy in policies {
                rules.extend(cluster.allowed(policy, pod, direction)?);
            }
            rules.push(REFUSE.to_owned());
            chains.insert(chain, rules);
        }
    }
    chains.insert(all, each);
    Ok(chains)
}

impl<'a> Cluster<'a> {
    fn of(objects: &'a [Value]) -> Self {
        let kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
        let pods = kind("Pod").filter_map(|object| {
            // Who is on the node's network has the node's address, and policies are not for nodes.
            let gone = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let apart = object["spec"]["hostNetwork"] != true && !gone;
            let address = object["status"]["podIP"].as_str()?.parse().ok()?;
            apart.then_some(Pod { object, namespace: object["metadata"]["namespace"].as_str()?, address })
        });
        let named = |object: &'a Value| Some((object["metadata"]["name"].as_str()?, &object["metadata"]["labels"]));
        Self { pods: pods.collect(), policies: kind("NetworkPolicy").collect(), namespaces: kind("Namespace").filter_map(named).collect() }
    }

    /// The policies that this pod is under, in this direction.
    fn policies_of(&self, pod: &Pod, direction: Direction) -> Result<Vec<&'a Value>, String> {
        let [kind, field, _] = direction.words();
        let mut found = Vec::new();
        for policy in self.policies.iter().filter(|policy| policy["metadata"]["namespace"] == pod.namespace) {
            let spec = &policy["spec"];
            let concerns = match (spec["policyTypes"].as_array(), direction) {
                (Some(types), _) => types.iter().any(|each| each == kind),
                (None, Direction::Ingress) => true,
                (None, Direction::Egress) => !spec[field].is_null(),
            };
            if concerns && selects(&spec["podSelector"], &pod.object["metadata"]["labels"])? {
                found.push(*policy);
            }
        }
        Ok(found)
    }

    /// What one policy allows a pod.
    fn allowed(&self, policy: &Value, pod: &Pod, direction: Direction) -> Result<Vec<String>, String> {
        let ([_, field, peers], [_, other]) = (direction.words(), direction.ends());
        let mut rules = Vec::new();
        for rule in list(&policy["spec"][field]) {
            let ports = ports(list(&rule["ports"]), pod, direction)?;
            for peer in self.peers(list(&rule[peers]), pod.namespace)? {
                let peer = peer.map(|peer| format!("{other} {peer} ")).unwrap_or_default();
                rules.extend(ports.iter().map(|port| format!("{peer}{port}-j RETURN")));
            }
        }
        Ok(rules)
    }

    /// The addresses of these peers, none for everybody.
    fn peers(&self, peers: &[Value], namespace: &str) -> Result<Vec<Option<String>>, String> {
        if peers.is_empty() {
            return Ok(vec![None]);
        }
        let mut addresses = Vec::new();
        for peer in peers {
            if peer["ipBlock"].is_object() {
                addresses.extend(blocks(&peer["ipBlock"])?.into_iter().map(|block| Some(block.to_string())));
                continue;
            }
            for pod in &self.pods {
                let home = match &peer["namespaceSelector"] {
                    Value::Null => pod.namespace == namespace,
                    selector => selects(selector, self.namespaces.get(pod.namespace).unwrap_or(&&Value::Null))?,
                };
                if home && selects(&peer["podSelector"], &pod.object["metadata"]["labels"])? {
                    addresses.push(Some(format!("{}/32", pod.address)));
                }
            }
        }
        Ok(addresses)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The cluster has no IPv6, so of its blocks nothing is left.
fn blocks(given: &Value) -> Result<Vec<Block>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if text(&given["cidr"]).contains(':') {
        return Ok(Vec::new());
    }
    let mut blocks = vec![text(&given["cidr"]).parse()?];
    for hole in list(&given["except"]) {
        let hole = text(hole).parse()?;
        blocks = blocks.into_iter().flat_map(|block: Block| block.without(hole)).collect();
    }
    Ok(blocks)
}

/// Each as iptables wants it, with a space behind; one that is empty for every port.
fn ports(ports: &[Value], pod: &Pod, direction: Direction) -> Result<Vec<String>, String> {
    if ports.is_empty() {
        return Ok(vec![String::new()]);
    }
    let mut found = Vec::new();
    for port in ports {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let numbers = match (&port["port"], direction) {
            (Value::Null, _) => vec![String::new()],
            (Value::Number(number), _) => match &port["endPort"] {
                Value::Null => vec![format!("--dport {number} ")],
                last => vec![format!("--dport {number}:{last} ")],
            },
            (Value::String(name), Direction::Ingress) => named(pod, name, protocol),
            (other, _) => return Err(format!("a port that pods are allowed to reach should be a number here, not {other}")),
        };
        found.extend(numbers.iter().map(|number| format!("-p {} {number}", protocol.to_lowercase())));
    }
    Ok(found)
}

/// What this pod's containers call by that name.
fn named(pod: &Pod, name: &str, protocol: &str) -> Vec<String> {
    let containers = list(&pod.object["spec"]["containers"]).iter();
    let ports = containers.flat_map(|container| list(&container["ports"]));
    let same = |port: &&Value| port["name"] == name && port["protocol"].as_str().unwrap_or("TCP") == protocol;
    ports.filter(same).map(|port| format!("--dport {} ", port["containerPort"])).collect()
}
