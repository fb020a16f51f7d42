//! Which messages about alerts are queued for integrations, and that none is lost or doubled by a change of the leader.

use slipway_api::Integration;
use slipway_database::AlertStage;

use super::*;

impl World {
    /// An Integration that asks for alerts.
    fn subscribe(&self, name: &str, alerts: &Value) {
        let whole = json!({"metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-of-{name}"), "generation": 1},
            "spec": {"name": "Hook", "webhook": {"url": "https://hook.example"}, "alerts": alerts}});
        self.caches().integrations.insert(Key::new("team-a", name), Guarded(Ok(object::<Integration>(whole))));
    }

    /// Integration and stage of what is or was queued.
    fn queued(&self) -> String {
        self.sql(
            "SELECT string_agg(integration || ' ' || stage, ', ' ORDER BY integration, created_at, stage) FROM slipway.alert_deliveries",
        )
    }

    async fn goes_down(&mut self, name: &str) {
        self.replicas(name, 1, 0);
        for _ in 0..3 {
            self.pass(1).await;
        }
    }

    async fn comes_back(&mut self, name: &str) {
        self.replicas(name, 1, 1);
        self.pass(1).await;
        self.pass(6).await;
    }
}

#[tokio::test]
async fn who_heard_of_an_alert_hears_of_its_end() {
    let mut world = World::new(true).await;
    world.agent("helper", &json!({})).await;
    world.subscribe("all", &json!({}));
    world.subscribe("others", &json!({"agents": ["somebody"]}));
    world.subscribe("ends-not", &json!({"resolved": false}));
    world.goes_down("helper").await;
    assert_eq!(world.queued(), "uid-of-all raised, uid-of-ends-not raised");
    let body: Value = serde_json::from_str(&world.sql("SELECT payload FROM slipway.alert_deliveries LIMIT 1")).unwrap();
    let data = &body["data"];
    assert_eq!((&data["agent"], &data["team"], &data["metric"]), (&json!("helper"), &json!("a"), &json!("minutes_down")));
    assert_eq!(data["id"].as_str().unwrap(), world.sql("SELECT id FROM slipway.alerts"));
    // It asks for something else by now, and another has come.
    world.subscribe("all", &json!({"agents": ["somebody"], "severities": ["warning"]}));
    world.subscribe("late", &json!({}));
    world.comes_back("helper").await;
    assert_eq!(world.queued(), "uid-of-all raised, uid-of-all resolved, uid-of-ends-not raised");
    world.goes_down("helper").await;
    assert_eq!(world.sql("SELECT count(*) FROM slipway.alert_deliveries WHERE integration = 'uid-of-late'"), "1", "the next alert");
}

#[tokio::test]
async fn a_kill_anywhere_loses_and_doubles_no_message() {
    let mut world = World::new(true).await;
    world.agent("helper", &json!({})).await;
    world.subscribe("all", &json!({}));
    world.goes_down("helper").await;
    // Killed between the alert's row and its message.
    world.sql("DELETE FROM slipway.alert_deliveries");
    world.takes_over();
    world.pass(1).await;
    assert_eq!(world.queued(), "uid-of-all raised");
    let id = world.sql("SELECT message_id FROM slipway.alert_deliveries");
    for _ in 0..3 {
        world.takes_over();
        world.pass(1).await;
    }
    assert_eq!((world.queued(), world.sql("SELECT message_id FROM slipway.alert_deliveries")), ("uid-of-all raised".to_owned(), id));
    // Killed between the message of its end and the row.
    world.comes_back("helper").await;
    world.sql("UPDATE slipway.alerts SET resolved_at = NULL");
    world.takes_over();
    world.pass(6).await;
    assert_eq!(world.queued(), "uid-of-all raised, uid-of-all resolved");
    assert_eq!(world.alerts(), "minutes_down critical false");
}

#[tokio::test]
async fn an_alert_that_rises_is_told_before_its_row_is() {
    let mut world = World::new(true).await;
    let rule = json!({"type": "max_cost_per_day", "operator": "lt", "value": "10.00"});
    world.policy("default-cost", &json!({"name": "C", "severity": "critical", "rules": [rule]}));
    world.agent("helper", &json!({})).await;
    world.subscribe("all", &json!({"metrics": ["daily_cost_usd"]}));
    world.subscribe("critical", &json!({"severities": ["critical"]}));
    world.used("helper", "h", |minute| minute.cost_micros = 8_500_000).await;
    world.pass(1).await;
    assert_eq!(world.queued(), "uid-of-all raised");
    world.used("helper", "h", |minute| minute.cost_micros = 2_000_000).await;
    world.pass(1).await;
    let both = "uid-of-all raised, uid-of-all risen, uid-of-critical risen";
    assert_eq!(world.queued(), both);
    // Killed between the message and the row that says that it is critical.
    world.sql("UPDATE slipway.alerts SET severity = 'warning'");
    world.takes_over();
    world.pass(1).await;
    assert_eq!((world.queued().as_str(), world.alerts().as_str()), (both, "daily_cost_usd critical true"));
    world.policy("default-cost", &json!({"name": "C", "severity": "critical", "enabled": false, "rules": []}));
    world.pass(1).await;
    let told = world.sql("SELECT string_agg(integration, ' ' ORDER BY integration) FROM slipway.alert_deliveries WHERE stage = 'resolved'");
    assert_eq!(told, "uid-of-all uid-of-critical");
}

#[tokio::test]
async fn a_first_look_that_fails_is_made_again() {
    let mut world = World::new(true).await;
    world.agent("helper", &json!({})).await;
    world.subscribe("all", &json!({}));
    world.goes_down("helper").await;
    world.sql("ALTER TABLE slipway.alert_deliveries RENAME TO away");
    world.sql("DELETE FROM slipway.away");
    world.takes_over();
    assert!(world.try_pass(1).await.is_err());
    world.sql("ALTER TABLE slipway.away RENAME TO alert_deliveries");
    tokio::time::sleep(crate::tenancy::UNAVAILABLE_TTL).await;
    world.pass(1).await;
    assert_eq!(world.queued(), "uid-of-all raised");
}

#[tokio::test]
async fn what_could_not_be_queued_is_queued_by_the_next_look() {
    let mut world = World::new(true).await;
    world.agent("helper", &json!({})).await;
    world.subscribe("all", &json!({}));
    world.replicas("helper", 1, 0);
    for _ in 0..2 {
        world.pass(1).await;
    }
    world.sql("ALTER TABLE slipway.alert_deliveries RENAME TO away");
    assert!(world.try_pass(1).await.is_err());
    assert_eq!(world.sql("SELECT count(*) FROM slipway.alerts"), "1", "its row is there, so that no look finds it new again");
    world.sql("ALTER TABLE slipway.away RENAME TO alert_deliveries");
    tokio::time::sleep(crate::tenancy::UNAVAILABLE_TTL).await;
    world.pass(1).await;
    assert_eq!(world.queued(), "uid-of-all raised");
}

#[tokio::test]
async fn without_a_database_messages_are_held_in_memory() {
    let mut world = World::new(false).await;
    world.agent("helper", &json!({})).await;
    world.subscribe("all", &json!({}));
    world.goes_down("helper").await;
    let stages = |world: &World| world.governance.context.alert_queue.stages();
    assert_eq!(stages(&world), [("uid-of-all".to_owned(), AlertStage::Raised)]);
    world.comes_back("helper").await;
    let both = [("uid-of-all".to_owned(), AlertStage::Raised), ("uid-of-all".to_owned(), AlertStage::Resolved)];
    assert_eq!(stages(&world), both);
}

#[tokio::test]
async fn a_thousand_alerts_are_queued_by_one_statement() {
    let mut world = World::new(true).await;
    for number in 0..1000 {
        let name = format!("a{number}");
        world.agent(&name, &json!({})).await;
        world.replicas(&name, 1, 0);
    }
    for name in ["one", "two"] {
        world.subscribe(name, &json!({}));
    }
    world.pass(0).await;
    world.pass(1).await;
    let begun = Instant::now();
    world.pass(1).await;
    println!("a pass over 1000 agents that raises 1000 alerts for two integrations: {:?}", begun.elapsed());
    // As many as a team has room for, shared by its integrations.
    let counts = "SELECT string_agg(integration || ' ' || n, ', ' ORDER BY integration) FROM
                  (SELECT integration, count(*) AS n FROM slipway.alert_deliveries GROUP BY integration) counts";
    assert_eq!(world.sql(counts), "uid-of-one 500, uid-of-two 500");
    let by = crate::metrics::ByDelivery { r#type: "webhook", outcome: "dropped" };
    assert_eq!(world.governance.context.metrics.alert_deliveries.get_or_create(&by).get(), 1000);
}
