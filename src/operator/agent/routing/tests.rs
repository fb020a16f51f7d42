use std::path::Path;

use serde_json::json;
use slipway_api::canary::{Carrier, CarrierName};

use super::*;
use crate::testing::settings;

/// The agent `helper` of the team `a`, exposed, with a canary in that phase.
fn agent(phase: &str, spec: &str) -> Agent {
    let yaml = format!(
        "{{metadata: {{name: helper, namespace: team-a, uid: 0b1f}}, spec: {{name: H, framework: custom, {spec}}}, \
         status: {{canary: {{phase: {phase}, weight: 10}}}}}}"
    );
    serde_yaml::from_str(&yaml).unwrap()
}

fn exposed_agent(phase: &str) -> Agent {
    agent(phase, "expose: gateway")
}

fn with_gateway() -> Settings {
    let gateway = Gateway {
        name: "public".to_owned(),
        namespace: "gateways".to_owned(),
        section_name: "https".to_owned(),
        hostname: "{agent}.{team}.agents.example.com".to_owned(),
    };
    Settings { gateway: Some(gateway), ..settings(None) }
}

/// A cluster with everything in it, and with what the agent asks for.
fn everything() -> RoutingSeen {
    RoutingSeen {
        team: Some("a".to_owned()),
        has_gateway_kinds: true,
        has_mesh_kinds: true,
        has_services: true,
        mesh: Mesh::Enrolled,
        route: Some(RouteState { accepted: Some(true), ..RouteState::default() }),
        has_mesh_objects: true,
        refused: RefusedRoutes::default(),
    }
}

fn kinds(routes: &[(ChildKind, Value)]) -> Vec<ChildKind> {
    routes.iter().map(|(kind, _)| *kind).collect()
}

#[test]
fn routes_have_names_that_no_workload_has() {
    for (kind, name) in names("helper") {
        assert!(is_name("helper", kind, &name), "{kind:?} {name}");
        assert!(Track::ALL.into_iter().all(|track| !crate::agent::build::is_name("helper", track, kind, &name)), "{kind:?} {name}");
    }
    assert!(!is_name("helper", ChildKind::Service, "helper") && !is_name("helper", ChildKind::HttpRoute, "other"));
}

/// `testdata/routes.out.yaml` is written anew with `UPDATE_GOLDEN=1`.
#[test]
fn routes_are_those_of_the_file() {
    use std::fmt::Write;
    let mut text = String::new();
    for weight in [None, Some(0), Some(10), Some(100)] {
        writeln!(text, "# weight: {weight:?}").unwrap();
        for (kind, route) in build(&exposed_agent("Serving"), weight, &everything(), &with_gateway()) {
            assert!(is_name("helper", kind, route["metadata"]["name"].as_str().unwrap()), "{route}");
            write!(text, "---\n{}", serde_yaml::to_string(&route).unwrap()).unwrap();
        }
    }
    let file = Path::new("testdata/routes.out.yaml");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, &text).unwrap();
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    assert!(text == expected, "{} differs from what is built now; see with UPDATE_GOLDEN=1 and git diff", file.display());
}

#[test]
fn a_weight_is_what_both_tracks_have_of_a_hundred() {
    use ChildKind::{DestinationRule, HttpRoute, VirtualService};
    for weight in [0_u8, 1, 10, 100] {
        let routes = build(&exposed_agent("Serving"), Some(weight), &everything(), &with_gateway());
        assert_eq!(kinds(&routes), [HttpRoute, DestinationRule, DestinationRule, VirtualService], "what others name comes first");
        let backends = &routes[0].1["spec"]["rules"][0]["backendRefs"];
        let backend = |name: &str, weight: u8| json!({"name": name, "port": 8000, "weight": weight});
        assert_eq!(*backends, json!([backend("helper-primary", 100 - weight), backend("helper-canary", weight)]));
        let mesh = &routes[3].1["spec"];
        assert_eq!(mesh["hosts"], json!(["helper.team-a.svc.cluster.local"]), "nothing is weighed twice");
        let weights: Vec<_> = mesh["http"][0]["route"].as_array().unwrap().iter().map(|route| &route["weight"]).collect();
        assert_eq!(weights, [&json!(100 - weight), &json!(weight)]);
    }
}

#[test]
fn all_goes_to_the_agents_own_service_while_its_canary_serves_nobody() {
    let own = json!([{"name": "helper", "port": 8000, "weight": 1}]);
    let without_services = || RoutingSeen { has_services: false, ..everything() };
    for (phase, weight, seen) in [
        ("Serving", None, everything()),
        ("Serving", Some(10), without_services()),
        ("Progressing", Some(0), everything()),
        ("Draining", Some(0), everything()),
        ("RolledBack", Some(0), everything()),
    ] {
        let routes = build(&exposed_agent(phase), weight, &seen, &with_gateway());
        assert_eq!(kinds(&routes), [ChildKind::HttpRoute], "{phase}");
        assert_eq!(routes[0].1["spec"]["rules"][0]["backendRefs"], own, "{phase}");
    }
    for phase in ["Serving", "Paused", "Inconclusive", "Succeeded", "Promoting"] {
        assert_eq!(build(&exposed_agent(phase), Some(10), &everything(), &with_gateway()).len(), 4, "{phase}");
    }
}

/// Each cluster in which something is missing, with the reason of the condition.
#[test]
fn an_agent_is_exposed_where_it_asks_and_all_is_there() {
    let hostname = |hostname: &str| Gateway { hostname: hostname.to_owned(), ..with_gateway().gateway.unwrap() };
    let told = |agent: &Agent, seen: &RoutingSeen, settings: &Settings| {
        let is_routed = kinds(&build(agent, None, seen, settings)) == [ChildKind::HttpRoute];
        let finding = exposed(agent, seen, settings)?;
        assert!(finding.message.ends_with("talks to this agent without REST's rights, limits and conversation ids"), "{finding:?}");
        assert_eq!(finding.holds, Some(finding.reason == "RouteProgrammed"));
        Some((finding.reason, is_routed))
    };
    let reason = |reason: &str, is_routed: bool| Some((reason.to_owned(), is_routed));
    let (ours, both) = (exposed_agent("Serving"), with_gateway());
    assert_eq!(told(&agent("Serving", "expose: gateway, access: platform"), &everything(), &both), reason("AccessPlatform", false));
    assert_eq!(told(&agent("Serving", ""), &everything(), &both), None);
    assert_eq!(kinds(&build(&agent("Serving", ""), None, &everything(), &both)), []);
    assert_eq!(told(&ours, &everything(), &settings(None)), reason("NoGateway", false));
    let long = Settings { gateway: Some(hostname(&format!("{{agent}}.{{team}}.{}", "a".repeat(64)))), ..settings(None) };
    assert_eq!(told(&ours, &everything(), &long), reason("HostnameInvalid", false));
    let refused = RefusedRoutes { gateway: Some("not so".to_owned()), mesh: None };
    let of_mesh = RefusedRoutes { mesh: Some("not so".to_owned()), gateway: None };
    let not_accepted = RouteState { accepted: Some(false), message: "NotAllowedByListeners: no".to_owned(), was_accepted: true };
    for (seen, expected) in [
        (everything(), reason("RouteProgrammed", true)),
        (RoutingSeen { refused: of_mesh, ..everything() }, reason("RouteProgrammed", true)),
        (RoutingSeen { has_gateway_kinds: false, ..everything() }, reason("GatewayKindsMissing", false)),
        (RoutingSeen { team: None, ..everything() }, reason("NoTeam", false)),
        (RoutingSeen { route: None, ..everything() }, reason("RouteNotAccepted", true)),
        (RoutingSeen { route: Some(RouteState::default()), ..everything() }, reason("RouteNotAccepted", true)),
        (RoutingSeen { route: Some(not_accepted), ..everything() }, reason("RouteNotAccepted", true)),
        (RoutingSeen { refused, ..everything() }, reason("RouteNotAccepted", true)),
    ] {
        assert_eq!(told(&ours, &seen, &both), expected);
    }
    // Who was led to goes on being so while a Gateway reads another weight.
    let mut programmed = ours.clone();
    let said = exposed(&ours, &everything(), &both).into_iter().collect();
    let conditions = slipway_api::condition::conditions(said, &[], None, jiff::Timestamp::UNIX_EPOCH);
    programmed.status.as_mut().unwrap().conditions = conditions;
    let outdated = |was_accepted| RoutingSeen { route: Some(RouteState { was_accepted, ..RouteState::default() }), ..everything() };
    assert_eq!(told(&ours, &outdated(true), &both), reason("RouteNotAccepted", true), "it was another one's");
    assert_eq!(told(&programmed, &outdated(true), &both), reason("RouteProgrammed", true));
    assert_eq!(told(&programmed, &outdated(false), &both), reason("RouteNotAccepted", true), "no Gateway knows it any more");
}

#[test]
fn hostnames_are_what_the_gateway_api_takes() {
    for good in ["helper.a.example.com", "a", "1.2-3.x", &["a".repeat(63).as_str(), "b"].join(".")] {
        assert!(is_hostname(good), "{good}");
    }
    for bad in ["", ".", "a..b", "-a.b", "a-.b", "A.b", "*.a", "a_b", "{agent}.a", &"a".repeat(64), &["a"; 128].join(".")] {
        assert!(!is_hostname(bad), "{bad}");
    }
}

#[test]
fn the_status_says_who_carries_a_canary_and_why_others_do_not() {
    let told = |agent: &Agent, seen: &RoutingSeen, settings: &Settings| {
        let canary = agent.status.as_ref().and_then(|status| status.canary.clone()).unwrap();
        let carriers = carriers(agent, &canary, seen, settings);
        assert_eq!(
            carriers.iter().map(|carrier| carrier.name).collect::<Vec<_>>(),
            [CarrierName::Rest, CarrierName::Gateway, CarrierName::Mesh]
        );
        // What the schema takes.
        assert!(carriers.iter().all(|carrier| carrier.message.len() <= 1024 && (carrier.carries || !carrier.message.is_empty())));
        carriers
    };
    let carries = |carriers: &[Carrier]| carriers.iter().map(|carrier| carrier.carries).collect::<Vec<_>>();
    let (ours, both) = (exposed_agent("Serving"), with_gateway());
    let all = told(&ours, &everything(), &both);
    assert_eq!(carries(&all), [true; 3]);
    assert!(all.iter().all(|carrier| carrier.message.is_empty()), "{all:?}");
    assert_eq!(carries(&told(&exposed_agent("Draining"), &everything(), &both)), [false; 3]);
    assert_eq!(carries(&told(&ours, &RoutingSeen { has_services: false, ..everything() }, &both)), [true, false, false]);

    let alone = told(&agent("Serving", ""), &RoutingSeen::default(), &settings(None));
    let direct = "callers inside the cluster that call Service helper directly reach stable alone";
    assert_eq!(carries(&alone), [true, false, false]);
    assert_eq!(alone[0].message, direct);
    assert_eq!(alone[1].message, "the agent is not exposed");
    assert_eq!(alone[2].message, "the kinds of Istio are not installed");

    let long = || Some("x".repeat(5000));
    for (seen, says) in [
        (RoutingSeen { mesh: Mesh::Absent, ..everything() }, "namespace team-a is not enrolled: label it istio-injection=enabled"),
        (RoutingSeen { mesh: Mesh::WithoutWaypoint, ..everything() }, "without a waypoint"),
        (RoutingSeen { has_mesh_objects: false, ..everything() }, "have yet to be made"),
        (RoutingSeen { refused: RefusedRoutes { mesh: long(), gateway: long() }, ..everything() }, "xxx"),
    ] {
        let who = told(&ours, &seen, &both);
        assert!(!who[2].carries && who[2].message.contains(says), "{who:?}");
        assert_eq!(who[0].message, direct);
    }
}

#[tokio::test]
async fn what_is_there_is_read_from_the_caches_and_what_is_unwanted_goes() {
    use ChildKind::{DestinationRule, HttpRoute, Namespace, Service, VirtualService};
    let (context, ours) = (crate::testing::context(), exposed_agent("Serving"));
    let there = |kind: ChildKind, namespace: &str, name: &str, uid: &str, more: Value| {
        let types = kind.types();
        let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": "helper", "uid": uid, "controller": true});
        let mut object = json!({
            "apiVersion": types.api_version, "kind": types.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": name, "ownerReferences": [owner], "labels": {"istio-injection": "enabled"}},
        });
        object["status"] = more;
        let child = Child::look(&serde_json::from_value(object).unwrap(), None, || None, "");
        context.caches.children(kind).insert(Key::new(namespace, name), child);
    };
    let accepted = json!({"parents": [{"conditions": [{"type": "Accepted", "status": "True"}]}]});
    let nothing = gather(&ours, &context);
    assert!(!nothing.has_gateway_kinds && !nothing.has_mesh_kinds && !nothing.has_services && !nothing.has_mesh_objects);
    assert_eq!((nothing.mesh, nothing.route), (Mesh::Absent, None));

    for kind in [HttpRoute, VirtualService, DestinationRule] {
        context.caches.know_kind(kind, true);
    }
    there(Namespace, "", "team-a", "t", Value::Null);
    there(Service, "team-a", "helper-primary", "0b1f", Value::Null);
    there(Service, "team-a", "helper-canary", "of an earlier agent", Value::Null);
    for (kind, name) in names("helper") {
        there(kind, "team-a", &name, "0b1f", accepted.clone());
    }
    let seen = gather(&ours, &context);
    assert!(seen.has_gateway_kinds && seen.has_mesh_kinds && seen.has_mesh_objects && !seen.has_services);
    assert_eq!((seen.mesh, seen.route.unwrap().accepted), (Mesh::Enrolled, Some(true)));
    there(Service, "team-a", "helper-canary", "0b1f", Value::Null);
    assert!(gather(&ours, &context).has_services);

    let wanted = HashSet::from([(HttpRoute, "helper".to_owned())]);
    let [_, of_mesh @ ..] = names("helper");
    assert_eq!(unwanted(&ours, &wanted, &context), of_mesh, "what names others goes before them");
    there(VirtualService, "team-a", "helper", "of an earlier agent", Value::Null);
    assert_eq!(unwanted(&ours, &wanted, &context), of_mesh[1..]);
    context.caches.know_kind(DestinationRule, false);
    assert!(unwanted(&ours, &wanted, &context).is_empty() && !gather(&ours, &context).has_mesh_kinds);
}
