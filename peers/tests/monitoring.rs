//! `config/monitoring`, judged by promtool: the rules, a test of each alert, the same rules for the Prometheus operator, the
//! example of a configuration, and what Grafana wants of dashboards.
#![expect(clippy::panic, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::fs;

use slipway_peers::{dashboards, monitoring, panels, promtool};

const HEAD: &str = "\
# The rules of rules.yaml for the Prometheus operator. UPDATE_GOLDEN=1 cargo test -p slipway-peers writes this; the chart installs
# the same with monitoring.rules.enabled.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: slipway
  labels:
    app.kubernetes.io/name: slipway
    app.kubernetes.io/part-of: slipway
spec:
";

fn read(name: &str) -> String {
    fs::read_to_string(monitoring().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn succeeds(arguments: &[&str]) {
    let output = promtool(arguments);
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "promtool {}:\n{said}", arguments.join(" "));
}

/// What follows `key` on lines that begin with it, but for indentation.
fn values<'a>(text: &'a str, key: &str) -> BTreeSet<&'a str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(key)).map(str::trim).collect()
}

#[test]
fn rules_are_sound_and_alerts_come_and_do_not_come() {
    succeeds(&["check", "rules", "config/monitoring/rules.yaml"]);
    succeeds(&["test", "rules", "config/monitoring/rules.test.yaml"]);
}

#[test]
fn each_alert_has_a_time_to_fire_and_one_not_to() {
    let (rules, tests) = (read("rules.yaml"), read("rules.test.yaml"));
    let alerts = values(&rules, "- alert:");
    assert!(alerts.len() > 15, "{alerts:?}");
    let quiet = tests.lines().filter_map(|line| line.split_once("alertname: ")?.1.strip_suffix(", exp_alerts: []}"));
    assert_eq!(alerts, quiet.collect(), "alerts without a time at which they do not fire");
    assert_eq!(alerts, values(&tests, "alertname:"), "alerts without a time at which they fire");
}

#[test]
fn the_operator_gets_the_same_rules() {
    let rules = read("rules.yaml");
    let groups = &rules[rules.find("groups:\n").expect("rules have groups")..];
    let indented = groups.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") });
    let wanted: String = std::iter::once(HEAD.to_owned()).chain(indented).collect();
    let file = monitoring().join("prometheusrule.yaml");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &wanted).expect("it can be written");
    }
    assert!(read("prometheusrule.yaml") == wanted, "{} is not of today: run with UPDATE_GOLDEN=1", file.display());
}

#[test]
fn the_configuration_without_an_operator_is_sound() {
    // Debian builds Prometheus without the discovery of pods, which is left out here.
    let mut discovery = false;
    let kept = read("prometheus.yaml").lines().fold(String::new(), |text, line| {
        match line.trim() {
            "kubernetes_sd_configs:" => discovery = true,
            "relabel_configs:" => discovery = false,
            _ => {}
        }
        if discovery { text } else { text + line + "\n" }
    });
    assert_eq!(kept.matches("job_name").count(), kept.matches("target_label: namespace").count(), "all pods have a namespace:\n{kept}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in [("prometheus.yaml", &kept), ("rules.yaml", &read("rules.yaml"))] {
        fs::write(folder.path().join(name), text).expect("a file in a folder of ours");
    }
    succeeds(&["check", "config", &folder.path().join("prometheus.yaml").to_string_lossy()]);
}

#[test]
fn dashboards_name_no_server_and_are_told_apart() {
    let dashboards = dashboards();
    let mut ids = BTreeSet::new();
    for (file, dashboard) in &dashboards {
        assert!(ids.insert(dashboard["uid"].as_str().expect("a uid")), "{file} has the uid of another");
        assert!(!dashboard["title"].as_str().unwrap_or_default().is_empty(), "{file} has no title");
        assert!(dashboard.get("id").is_none(), "{file} has the id of somebody's Grafana");
        let variables = dashboard["templating"]["list"].as_array().expect("variables");
        assert_eq!((&variables[0]["name"], &variables[0]["type"]), (&"datasource".into(), &"datasource".into()), "{file}");
        for panel in dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] != "row") {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{file}: {}", panel["title"]);
            assert!(!panel["targets"].as_array().expect("targets").is_empty(), "{file}: {}", panel["title"]);
        }
    }
    assert_eq!(dashboards.len(), 3);
    assert!(panels().len() > 60);
    let left = panels().into_iter().find(|panel| panel.expression.contains('$'));
    assert!(left.is_none(), "{:?} has a variable that no test knows", left.map(|panel| panel.place));
}
