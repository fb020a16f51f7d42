//! Messages about alerts: each is queued once, taken in its order and by its time, and ended once.

use std::time::Duration;

use slipway_database::{AlertStage, Delivery, MAX_PAYLOAD_BYTES, NewDelivery, Postponed, RaisedAlert, Tenants, migrate, migrate_up_to};

use crate::spans::key;
use crate::{Database, Raw};

use AlertStage::{Raised, Resolved, Risen};

fn message(integration: &str, alert: &str, stage: AlertStage) -> NewDelivery {
    NewDelivery {
        team: "a".into(),
        agent_id: "ag_1".into(),
        integration: integration.into(),
        alert_id: alert.into(),
        stage,
        message_id: format!("msg_{integration}_{alert}_{}", stage.as_str()),
        payload: "{}".into(),
        most: 1_000,
    }
}

fn alert(metric: &str) -> RaisedAlert {
    RaisedAlert {
        agent: key("a", "ag_1", "u"),
        metric: metric.into(),
        policy: String::new(),
        severity: "warning".into(),
        message: "m".into(),
        value: None,
        threshold: None,
        traces: Vec::new(),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn due(tenants: &Tenants, of: &[&str]) -> Vec<Delivery> {
    tenants.deliveries().due(&names(of)).await.unwrap()
}

fn shown(due: &[Delivery]) -> Vec<(&str, &str, AlertStage)> {
    due.iter().map(|one| (one.integration.as_str(), one.alert_id.as_str(), one.stage)).collect()
}

fn postponed(seconds: u64, is_attempt: bool) -> Postponed {
    Postponed { error: "it does not answer".into(), wait: Duration::from_secs(seconds), is_attempt }
}

async fn rows(admin: &mut Raw) -> String {
    admin.one("select count(*)::text from slipway.alert_deliveries").await
}

#[tokio::test]
async fn what_is_queued_twice_is_there_once() {
    let database = Database::migrated().await;
    let (tenants, other) = (database.tenants(), database.tenants());
    let mut admin = database.raw(&database.url).await;
    let messages = [message("one", "al_1", Raised), message("two", "al_1", Raised), message("one", "al_2", Raised)];
    let (deliveries, others) = (tenants.deliveries(), other.deliveries());
    let (first, second) = tokio::join!(deliveries.enqueue(&messages), others.enqueue(&messages));
    assert_eq!((first.unwrap(), second.unwrap()), (vec![], vec![]));
    assert_eq!(rows(&mut admin).await, "3");
    for one in due(&tenants, &["one", "two"]).await {
        tenants.deliveries().delivered(&one).await.unwrap();
    }
    // The next leader announces once more what has begun of late, in other words perhaps.
    let again = messages.map(|message| NewDelivery { payload: "{\"other\": true}".into(), ..message });
    assert_eq!(tenants.deliveries().enqueue(&again).await.unwrap(), []);
    assert_eq!(due(&tenants, &["one", "two"]).await, []);
    assert_eq!(admin.one("select count(*)::text from slipway.alert_deliveries where payload = '' and attempts = 1").await, "3");
    assert_eq!(tenants.deliveries().enqueue(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn messages_of_an_alert_come_one_after_the_other() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    deliveries.enqueue(&[message("one", "al_1", Risen), message("one", "al_1", Raised), message("one", "al_2", Raised)]).await.unwrap();
    deliveries.enqueue(&[message("one", "al_1", Resolved)]).await.unwrap();
    let first = due(&tenants, &["one"]).await;
    assert_eq!(shown(&first), [("one", "al_1", Raised), ("one", "al_2", Raised)]);
    // Though its own time has come, a later one waits for the one before it.
    deliveries.failed(&first[0], &postponed(60, true)).await.unwrap();
    assert_eq!(shown(&due(&tenants, &["one"]).await), [("one", "al_2", Raised)]);
    deliveries.hasten(&names(&["one"]), Duration::from_secs(30)).await.unwrap();
    assert_eq!(shown(&due(&tenants, &["one"]).await), [("one", "al_2", Raised)], "it waits for longer");
    deliveries.hasten(&names(&["one"]), Duration::from_secs(90)).await.unwrap();
    let again = due(&tenants, &["one"]).await;
    let again = again.iter().find(|one| one.alert_id == "al_1").unwrap();
    assert_eq!((again.stage, again.attempts, &again.message_id), (Raised, 1, &first[0].message_id), "the same message");
    deliveries.delivered(again).await.unwrap();
    let second = due(&tenants, &["one"]).await;
    let second = second.iter().find(|one| one.alert_id == "al_1").unwrap();
    assert_eq!(second.stage, Risen);
    // One that is given up is in the way of none.
    deliveries.give_up(second, "it is gone").await.unwrap();
    let third = due(&tenants, &["one"]).await;
    assert!(shown(&third).contains(&("one", "al_1", Resolved)), "{third:?}");
}

#[tokio::test]
async fn the_end_is_for_those_who_were_told_of_the_beginning() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    deliveries.enqueue(&[message("one", "al_1", Raised), message("two", "al_1", Risen)]).await.unwrap();
    for one in due(&tenants, &["one", "two"]).await {
        deliveries.delivered(&one).await.unwrap();
    }
    let end = ["one", "two", "three"].map(|integration| message(integration, "al_1", Resolved));
    assert_eq!(deliveries.enqueue(&end).await.unwrap(), []);
    deliveries.enqueue(&[message("one", "al_other", Resolved)]).await.unwrap();
    assert_eq!(shown(&due(&tenants, &["one", "two", "three"]).await), [("one", "al_1", Resolved), ("two", "al_1", Resolved)]);
}

#[tokio::test]
async fn an_integration_has_its_share_of_what_is_due() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    let mut many: Vec<_> = (0..500).map(|n| message("busy", &format!("al_{n:03}"), Raised)).collect();
    many.push(message("calm", "al_last", Raised));
    many.push(message("unasked", "al_last", Raised));
    deliveries.enqueue(&many).await.unwrap();
    let found = due(&tenants, &["busy", "calm", "none"]).await;
    assert_eq!(found.iter().filter(|one| one.integration == "busy").count(), 20);
    assert_eq!(found.iter().filter(|one| one.integration == "calm").count(), 1);
    assert_eq!(found.len(), 21, "nothing of an integration that is not asked for");
    deliveries.failed(&found[0], &postponed(3_600, true)).await.unwrap();
    assert!(!due(&tenants, &["busy"]).await.iter().any(|one| one.alert_id == found[0].alert_id), "its time has not come");
}

#[tokio::test]
async fn a_team_has_its_share_of_what_is_due() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    let busy: Vec<String> = (0..20).map(|n| format!("busy_{n:02}")).collect();
    let many: Vec<_> = (0..400).map(|n| message(&busy[n % 20], &format!("al_{n:03}"), Raised)).collect();
    deliveries.enqueue(&many).await.unwrap();
    deliveries.enqueue(&[NewDelivery { team: "b".into(), ..message("calm", "al_last", Raised) }]).await.unwrap();
    let all: Vec<String> = busy.into_iter().chain(["calm".to_owned()]).collect();
    let found = deliveries.due(&all).await.unwrap();
    assert_eq!(found.len(), 160);
    assert_eq!(found.iter().position(|one| one.team == "b"), Some(1), "after the first of the other team");
}

#[tokio::test]
async fn there_is_room_for_so_many_and_ends_have_more() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    let with = |most, message: NewDelivery| NewDelivery { most, ..message };
    let first: Vec<_> = (0..5).map(|n| with(3, message("one", &format!("al_{n}"), Raised))).collect();
    assert_eq!(deliveries.enqueue(&first).await.unwrap(), [("one".to_owned(), 2)]);
    // What is there already takes no room from what is new.
    let mut next = first[..3].to_vec();
    next.push(with(4, message("one", "al_9", Raised)));
    next.push(with(4, message("two", "al_9", Raised)));
    assert_eq!(deliveries.enqueue(&next).await.unwrap(), []);
    assert_eq!(deliveries.enqueue(&[with(4, message("one", "al_8", Raised))]).await.unwrap(), [("one".to_owned(), 1)]);
    assert_eq!(deliveries.enqueue(&[with(8, message("one", "al_0", Resolved))]).await.unwrap(), []);
    // What has ended takes none.
    let found = due(&tenants, &["one"]).await;
    deliveries.delivered(&found[0]).await.unwrap();
    deliveries.give_up(&found[1], "gone").await.unwrap();
    assert_eq!(deliveries.enqueue(&[with(4, message("one", "al_8", Raised))]).await.unwrap(), []);
    let long = NewDelivery { payload: "x".repeat(MAX_PAYLOAD_BYTES + 1).into(), ..message("two", "al_long", Raised) };
    assert_eq!(deliveries.enqueue(&[long, message("two", "al_short", Raised)]).await.unwrap(), [("two".to_owned(), 1)]);
    assert!(shown(&due(&tenants, &["two"]).await).contains(&("two", "al_short", Raised)));
}

#[tokio::test]
async fn it_is_told_since_when_none_arrives() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    let of = |name: &str| names(&[name]);
    let stands = async |name: &str| deliveries.waiting(&of(name)).await.unwrap().remove(0);
    assert_eq!(stands("one").await.count, 0);
    assert_eq!(stands("one").await.oldest, None);
    deliveries.enqueue(&[message("one", "al_1", Raised), message("one", "al_2", Raised)]).await.unwrap();
    let found = due(&tenants, &["one"]).await;
    let fresh = stands("one").await;
    assert_eq!((fresh.count, fresh.failing_since, fresh.arrived), (2, None, None), "nothing was tried");
    assert_eq!(fresh.oldest, Some(found[0].created_at));
    deliveries.failed(&found[0], &Postponed { error: "ä".repeat(500), ..postponed(0, true) }).await.unwrap();
    let failing = stands("one").await;
    assert!(failing.failing_since.is_some() && failing.last_error.as_ref().unwrap().len() <= 512, "{failing:?}");
    deliveries.failed(&found[1], &postponed(0, false)).await.unwrap();
    let still = stands("one").await;
    assert_eq!((still.failing_since, still.last_error.as_deref()), (failing.failing_since, Some("it does not answer")));
    let attempts: Vec<_> = due(&tenants, &["one"]).await.iter().map(|one| one.attempts).collect();
    assert_eq!(attempts.iter().sum::<i32>(), 1, "what was not sent is no attempt");
    deliveries.delivered(&found[0]).await.unwrap();
    let arrived = stands("one").await;
    assert_eq!((arrived.count, arrived.failing_since), (1, None));
    assert!(arrived.arrived.is_some() && arrived.given_up.is_none());
    deliveries.failed(&found[1], &postponed(0, true)).await.unwrap();
    assert_eq!(stands("one").await.failing_since, arrived.arrived, "since the last one that arrived");
    deliveries.give_up(&found[1], "gone").await.unwrap();
    let ended = stands("one").await;
    assert_eq!((ended.count, ended.failing_since, ended.last_error.as_deref()), (0, None, None));
    assert!(ended.given_up > ended.arrived);
    // Once ended, it stays so, whatever answer comes late.
    deliveries.delivered(&found[1]).await.unwrap();
    assert_eq!(stands("one").await, ended);
}

#[tokio::test]
async fn what_has_waited_for_a_day_is_given_up() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    let mut admin = database.raw(&database.url).await;
    deliveries.enqueue(&[message("one", "al_1", Raised), message("one", "al_2", Raised), message("two", "al_1", Raised)]).await.unwrap();
    deliveries.enqueue(&[message("one", "al_1", Resolved)]).await.unwrap();
    let found = due(&tenants, &["one"]).await;
    deliveries.failed(&found[0], &postponed(3_600, true)).await.unwrap();
    let older = "update slipway.alert_deliveries set created_at = now() - interval '25 h' where alert_id = 'al_1' and stage = 'raised'";
    admin.ask(older).await.unwrap();
    let day = Duration::from_hours(24);
    let given_up = deliveries.give_up_older(&names(&["one"]), day).await.unwrap();
    let [one] = &given_up[..] else { panic!("{given_up:?}") };
    assert_eq!((one.integration.as_str(), one.alert_id.as_str(), one.stage), ("one", "al_1", Raised));
    assert_eq!(one.last_error.as_deref(), Some("it does not answer"));
    assert_eq!(deliveries.give_up_older(&names(&["one"]), day).await.unwrap(), []);
    let left = due(&tenants, &["one", "two"]).await;
    assert_eq!(left.len(), 3, "the end of it, the other alert and the other integration: {left:?}");
}

#[tokio::test]
async fn nothing_waits_for_an_integration_that_is_gone() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    let mut admin = database.raw(&database.url).await;
    deliveries.enqueue(&[message("one", "al_1", Raised), message("one", "al_2", Raised), message("two", "al_1", Raised)]).await.unwrap();
    deliveries.delivered(&due(&tenants, &["one"]).await[0]).await.unwrap();
    assert_eq!(deliveries.forget(&names(&["one"])).await.unwrap(), 1);
    assert_eq!((due(&tenants, &["one"]).await.len(), due(&tenants, &["two"]).await.len()), (0, 1));
    assert_eq!(rows(&mut admin).await, "2", "what has ended is kept for its time");
}

#[tokio::test]
async fn the_receivers_of_an_open_alert_are_remembered() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let deliveries = tenants.deliveries();
    let mut admin = database.raw(&database.url).await;
    let kept = tenants.raise_alerts(&[alert("open"), alert("ended")]).await.unwrap();
    let of = |place: usize| message("one", &kept[place].id, Raised);
    deliveries.enqueue(&[of(0), of(1), message("one", "al_waits", Raised)]).await.unwrap();
    for one in due(&tenants, &["one"]).await.iter().filter(|one| one.alert_id != "al_waits") {
        deliveries.delivered(one).await.unwrap();
    }
    tenants.resolve_alerts(&[kept[1].id.clone()]).await.unwrap();
    admin.ask("update slipway.alert_deliveries set created_at = now() - interval '100 days'").await.unwrap();
    assert_eq!(tenants.delete_old_governance(&slipway_database::Retention::default()).await.unwrap(), 2);
    assert_eq!(admin.one("select string_agg(alert_id, ',') from slipway.alert_deliveries").await, kept[0].id);
}

#[tokio::test]
async fn alerts_that_are_open_at_the_upgrade_stay_open() {
    let database = Database::empty();
    migrate_up_to(&database.url, 14).await.unwrap();
    let tenants = database.tenants();
    let kept = tenants.raise_alerts(&[alert("before")]).await.unwrap();
    assert!(tenants.deliveries().due(&names(&["one"])).await.unwrap_err().is_passing(), "the manager makes the table");
    migrate(&database.url, None, None).await.unwrap();
    assert_eq!(tenants.open_alerts().await.unwrap().len(), 1);
    let deliveries = tenants.deliveries();
    deliveries.enqueue(&[message("one", &kept[0].id, Resolved)]).await.unwrap();
    assert_eq!(due(&tenants, &["one"]).await, [], "nobody was told that it began");
    deliveries.enqueue(&[message("one", &kept[0].id, Risen)]).await.unwrap();
    deliveries.enqueue(&[message("one", &kept[0].id, Resolved)]).await.unwrap();
    assert_eq!(due(&tenants, &["one"]).await.len(), 1);
    assert_eq!(tenants.resolve_alerts(&[kept[0].id.clone()]).await, Ok(1));
    let login = database.login("a").await;
    let mut team = Raw::connect(&database.url_of(&login)).await;
    for attack in [
        "select * from slipway.alert_deliveries",
        "delete from slipway.alert_deliveries",
        "update slipway.alert_deliveries set payload = '{}'",
        "insert into slipway.alert_deliveries values ('a', 'ag_1', 'one', 'al_x', 'raised', 'msg_x', '{}', now(), now())",
    ] {
        let error = team.ask(attack).await.unwrap_err();
        assert!(error.starts_with("42501"), "{attack}: {error}");
    }
}
