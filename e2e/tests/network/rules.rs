//! What becomes of a policy before iptables hears of it. No cluster takes part.

use serde_json::Value;
use slipway_e2e::render;

/// Two namespaces, `a` of team a with `one` and `two`, `b` with `three`, and pods to which no policy applies.
const PODS: &str = r#"
- {kind: Namespace, metadata: {name: a, labels: {team: a}}}
- {kind: Namespace, metadata: {name: b, labels: {team: b}}}
- {kind: Pod, metadata: {name: one, namespace: a, labels: {agent: one}}, status: {podIP: 10.0.0.1},
   spec: {containers: [{ports: [{name: http, containerPort: 80}, {name: http, containerPort: 81, protocol: UDP}]}]}}
- {kind: Pod, metadata: {name: two, namespace: a, labels: {agent: two, old: "yes"}}, status: {podIP: 10.0.0.2}}
- {kind: Pod, metadata: {name: three, namespace: b, labels: {agent: three}}, status: {podIP: 10.0.0.3}}
- {kind: Pod, metadata: {name: ended, namespace: a, labels: {agent: one}}, status: {podIP: 10.0.0.1, phase: Succeeded}}
- {kind: Pod, metadata: {name: host, namespace: a, labels: {agent: one}}, spec: {hostNetwork: true}, status: {podIP: 10.0.0.9}}
- {kind: Pod, metadata: {name: waiting, namespace: a, labels: {agent: one}}, status: {phase: Pending}}
"#;

fn chains(policies: &str) -> Result<Vec<String>, String> {
    let mut objects: Vec<Value> = serde_yaml::from_str(PODS).unwrap();
    let policies: Vec<Value> = serde_yaml::from_str(policies).unwrap();
    objects.extend(
        policies
            .into_iter()
            .map(|spec| serde_json::json!({"kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "a"}, "spec": spec})),
    );
    let chains = render("F", &["a".to_owned()], &objects)?;
    Ok(chains.into_iter().flat_map(|(chain, rules)| rules.into_iter().map(move |rule| format!("{chain} {rule}"))).collect())
}

/// The chain of pod `one` for what it sends or is sent, without what all chains end with.
fn one(direction: &str, policy: &str) -> Vec<String> {
    let (own, refuse) = (format!("F-{direction}-0 "), "-j REJECT --reject-with icmp-admin-prohibited");
    let rules: Vec<String> = chains(policy).unwrap().iter().filter_map(|rule| rule.strip_prefix(&own).map(str::to_owned)).collect();
    let (last, rest) = rules.split_last().unwrap_or_else(|| panic!("it should be under a policy: {policy}"));
    assert_eq!(last, refuse, "what is not allowed is refused");
    rest.iter().map(|rule| rule.strip_suffix("-j RETURN").unwrap().trim().to_owned()).collect()
}

#[test]
fn who_is_under_no_policy_is_open() {
    let entrance = [
        "F -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN",
        "F -s 10.0.0.1/32 -d 10.0.0.1/32 -j RETURN",
        "F -s 10.0.0.1/32 -g F-ALL",
        "F -d 10.0.0.1/32 -g F-ALL",
        "F -s 10.0.0.2/32 -d 10.0.0.2/32 -j RETURN",
        "F -s 10.0.0.2/32 -g F-ALL",
        "F -d 10.0.0.2/32 -g F-ALL",
    ];
    assert_eq!(chains("[]").unwrap(), entrance);
    let closed: Vec<_> = chains("[{podSelector: {matchLabels: {agent: two}}, policyTypes: [Egress]}]").unwrap();
    let own = ["F-ALL -s 10.0.0.2/32 -j F-TO-1", "F-TO-1 -j REJECT --reject-with icmp-admin-prohibited"];
    assert_eq!(closed, [&entrance[..], &own].concat());
}

#[test]
fn types_that_are_not_named_follow_from_the_rules() {
    let pods = |policy: &str| -> Vec<String> {
        chains(policy).unwrap().into_iter().filter_map(|rule| rule.strip_prefix("F-ALL ").map(str::to_owned)).collect()
    };
    assert_eq!(pods("[{podSelector: {matchLabels: {agent: one}}}]"), ["-d 10.0.0.1/32 -j F-FROM-0"]);
    let both = ["-s 10.0.0.1/32 -j F-TO-0", "-d 10.0.0.1/32 -j F-FROM-0"];
    assert_eq!(pods("[{podSelector: {matchLabels: {agent: one}}, egress: []}]"), both);
    assert_eq!(pods("[{podSelector: {matchLabels: {agent: one}}, policyTypes: [Egress], ingress: [{}]}]"), both[..1]);
}

#[test]
fn peers_are_who_is_selected() {
    let from = |peers: &str| one("FROM", &format!("[{{podSelector: {{}}, ingress: [{{from: {peers}}}]}}]"));
    let (first, second, third) = ("-s 10.0.0.1/32", "-s 10.0.0.2/32", "-s 10.0.0.3/32");
    for (peers, expected) in [
        ("[]", vec![""]),
        ("[{podSelector: {}}]", vec![first, second]),
        ("[{namespaceSelector: {}}]", vec![first, second, third]),
        ("[{namespaceSelector: {matchLabels: {team: b}}}]", vec![third]),
        ("[{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {agent: two}}}]", vec![]),
        ("[{podSelector: {matchLabels: {agent: one}}}, {namespaceSelector: {matchLabels: {team: b}}}]", vec![first, third]),
        ("[{podSelector: {matchExpressions: [{key: agent, operator: In, values: [two, three]}]}}]", vec![second]),
        ("[{podSelector: {matchExpressions: [{key: old, operator: Exists}]}}]", vec![second]),
        ("[{podSelector: {matchExpressions: [{key: old, operator: DoesNotExist}]}}]", vec![first]),
        ("[{podSelector: {matchExpressions: [{key: old, operator: NotIn, values: [\"yes\"]}]}}]", vec![first]),
        ("[{podSelector: {matchLabels: {agent: one}, matchExpressions: [{key: old, operator: Exists}]}}]", vec![]),
        ("[{ipBlock: {cidr: 192.0.2.0/24}}]", vec!["-s 192.0.2.0/24"]),
        ("[{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.64/26, 192.0.2.0/27]}}]", vec!["-s 192.0.2.32/27", "-s 192.0.2.128/25"]),
        ("[{ipBlock: {cidr: 192.0.2.0/24, except: [198.51.100.0/24]}}]", vec!["-s 192.0.2.0/24"]),
        ("[{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/24]}}]", vec![]),
        ("[{ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1]}}]", vec!["-s 128.0.0.0/1"]),
        ("[{ipBlock: {cidr: \"2001:db8::/32\"}}]", vec![]),
    ] {
        assert_eq!(from(peers), expected, "{peers}");
    }
}

#[test]
fn ports_are_numbers_ranges_protocols_and_names() {
    let ports = |ports: &str| one("FROM", &format!("[{{podSelector: {{}}, ingress: [{{ports: {ports}}}]}}]"));
    for (given, expected) in [
        ("[]", vec![""]),
        ("[{port: 8000}]", vec!["-p tcp --dport 8000"]),
        ("[{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]", vec!["-p udp --dport 53", "-p tcp --dport 53"]),
        ("[{port: 8000, endPort: 8100}]", vec!["-p tcp --dport 8000:8100"]),
        ("[{protocol: UDP}]", vec!["-p udp"]),
        ("[{port: http}]", vec!["-p tcp --dport 80"]),
        ("[{port: http, protocol: UDP}]", vec!["-p udp --dport 81"]),
        ("[{port: nobody}]", vec![]),
    ] {
        assert_eq!(ports(given), expected, "{given}");
    }
    let crossed =
        one("TO", "[{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: 1}, {port: 2}]}]}]");
    let expected = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(pod, port)| format!("-d 10.0.0.{pod}/32 -p tcp --dport {port}"));
    assert_eq!(crossed, expected);
}

/// Better no fence than one with a hole.
#[test]
fn what_is_not_understood_is_told() {
    for (policy, says) in [
        ("[{podSelector: {matchExpressions: [{key: agent, operator: Like}]}}]", "Like"),
        ("[{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0}}]}]}]", "192.0.2.0"),
        ("[{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/33}}]}]}]", "192.0.2.0/33"),
        ("[{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}]", "http"),
    ] {
        let refusal = chains(policy).unwrap_err();
        assert!(refusal.contains(says), "{refusal}");
    }
}
