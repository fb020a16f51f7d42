//! Concurrent calls.

use reqwest::Method;
use serde_json::{Value, json};

use crate::Api;

/// How often a race is repeated.
const ROUNDS: usize = 40;

#[tokio::test]
async fn of_two_bodies_with_one_key_at_the_same_instant_one_is_made_and_one_refused() {
    let api = Api::open().await;
    for round in 0..ROUNDS {
        let (one, other, key) = (format!("One {round}"), format!("Other {round}"), format!("key-{round}"));
        let headers = [("idempotency-key", key.as_str())];
        let (first, second) = tokio::join!(api.agent(&one, &headers), api.agent(&other, &headers));
        let mut statuses = [first.status.as_u16(), second.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409], "round {round}: {} {}", first.body, second.body);
        let made = if first.status == 201 { &one } else { &other };
        let there: Vec<Value> = api.cluster.objects("/agents/").iter().map(|agent| agent["spec"]["name"].clone()).collect();
        assert_eq!(there.len(), round + 1, "{there:?}");
        assert!(there.contains(&json!(made)), "{made}: {there:?}");
        // The repeated calls have the same outcome.
        let (again, refused) = if first.status == 201 { (&one, &other) } else { (&other, &one) };
        assert_eq!(api.agent(again, &headers).await.status, 201);
        assert_eq!(api.agent(refused, &headers).await.status, 409);
    }
    let taken_back = api.cluster.writers("/agents/").iter().filter(|(method, _)| method == "DELETE").count();
    assert!(taken_back > ROUNDS / 2, "the calls hardly met: {taken_back} of {ROUNDS} rounds");
}

#[tokio::test]
async fn of_many_bodies_with_one_key_exactly_one_is_made() {
    let api = Api::open().await;
    let headers = [("idempotency-key", "many")];
    let names: Vec<String> = (0..20).map(|at| format!("Agent {at}")).collect();
    let answers = futures::future::join_all(names.iter().map(|name| api.agent(name, &headers))).await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!((made, api.cluster.objects("/agents/").len()), (1, 1));
    assert!(answers.iter().all(|answer| answer.status == 201 || answer.body["message"].as_str().unwrap().contains("Idempotency-Key")));
}

#[tokio::test]
async fn the_same_call_many_times_at_once_is_one() {
    let api = Api::open().await;
    let headers = [("idempotency-key", "same")];
    let answers = futures::future::join_all((0..20).map(|_| api.agent("Helper", &headers))).await;
    assert!(answers.iter().all(|answer| answer.status == 201), "{:?}", answers.iter().map(|answer| answer.status).collect::<Vec<_>>());
    assert_eq!(api.cluster.objects("/agents/").len(), 1);
}

async fn member(api: &Api, email: &str) -> (String, String) {
    let made = api.call(Method::POST, "/teams/a/members", &[], Some(json!({"email": email, "role": "viewer"}))).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let tag = made.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", made.body["data"]["resource_version"].as_str().unwrap()));
    (format!("/teams/a/members/{}", made.body["data"]["id"].as_str().unwrap()), tag)
}

fn role(role: &str) -> Value {
    json!({"role": role})
}

#[tokio::test]
async fn a_member_that_changed_meanwhile_is_not_changed_and_not_removed() {
    let api = Api::open().await;
    let (path, old) = member(&api, "ada@example.com").await;
    let changed = api.call(Method::PATCH, &path, &[("if-match", &old)], Some(role("developer"))).await;
    assert_eq!((changed.status.as_u16(), &changed.body["data"]["role"]), (200, &json!("developer")), "{}", changed.body);
    let new = changed.headers["etag"].to_str().unwrap();
    assert_ne!(new, old);
    for (method, body) in [(Method::PATCH, Some(role("admin"))), (Method::PATCH, Some(role("developer"))), (Method::DELETE, None)] {
        let refused = api.call(method.clone(), &path, &[("if-match", &old)], body).await;
        assert_eq!(refused.status, 409, "{method}: {}", refused.body);
        assert!(refused.body["message"].as_str().unwrap().contains("member ada@example.com"), "{}", refused.body);
    }
    assert_eq!(api.call(Method::PATCH, &path, &[("if-match", "\"")], Some(role("admin"))).await.status, 400);
    let listed = api.call(Method::GET, "/teams/a/members", &[], None).await;
    assert_eq!((&listed.body["data"][0]["role"], listed.body["data"].as_array().unwrap().len()), (&json!("developer"), 1));
    assert_eq!(api.call(Method::DELETE, &path, &[("if-match", new)], None).await.status, 200);
    assert!(api.cluster.objects("/rolebindings/").is_empty());
}

/// The member always has a role, and ends with the single role of a call that succeeded.
#[tokio::test]
async fn changes_of_a_member_at_the_same_instant_leave_one_role() {
    let mut met = 0;
    for round in 0..ROUNDS {
        let api = Api::open().await;
        let (path, tag) = member(&api, "ada@example.com").await;
        let conditional = [("if-match", tag.as_str())];
        // With every mix of changes with and without If-Match.
        let headers = |with: bool| if with { &conditional[..] } else { &[] };
        let (one, other) = (headers(round % 2 == 0), headers(round % 4 < 2));
        let (first, second) = tokio::join!(
            api.call(Method::PATCH, &path, one, Some(role("developer"))),
            api.call(Method::PATCH, &path, other, Some(role("admin")))
        );
        let told: Vec<&Value> =
            [&first, &second].iter().filter(|answer| answer.status == 200).map(|answer| &answer.body["data"]["role"]).collect();
        assert!([&first, &second].iter().all(|answer| answer.status == 200 || answer.status == 409), "{} {}", first.body, second.body);
        assert!(!told.is_empty(), "round {round}: both were refused: {} {}", first.body, second.body);
        if !one.is_empty() && !other.is_empty() {
            assert_eq!(told.len(), 1, "round {round}: both changed the same version");
        }
        let bindings = api.cluster.objects("/rolebindings/");
        assert_eq!(bindings.len(), 1, "round {round}: {bindings:#?}");
        let listed = api.call(Method::GET, "/teams/a/members", &[], None).await;
        assert!(told.contains(&&listed.body["data"][0]["role"]), "round {round}: {} of {told:?}", listed.body);
        assert_eq!(api.cluster.moments_without("/rolebindings/"), 0, "round {round}");
        met += usize::from(api.cluster.most_at_once("/rolebindings/") > 2);
    }
    assert!(met > ROUNDS / 2, "the calls hardly met: in {met} of {ROUNDS} rounds");
}

#[tokio::test]
async fn somebody_who_is_made_a_member_twice_at_the_same_instant_has_one_role() {
    let mut met = 0;
    for round in 0..ROUNDS {
        let api = Api::open().await;
        let add = |role: &str| api.call(Method::POST, "/teams/a/members", &[], Some(json!({"email": "ada@example.com", "role": role})));
        let (first, second) = tokio::join!(add("viewer"), add("admin"));
        assert!([&first, &second].iter().all(|answer| answer.status == 201 || answer.status == 409), "{} {}", first.body, second.body);
        let bindings = api.cluster.objects("/rolebindings/");
        assert_eq!(bindings.len(), 1, "round {round}: {bindings:#?}");
        met += usize::from(api.cluster.most_at_once("/rolebindings/") > 1);
    }
    assert!(met > ROUNDS / 2, "the calls hardly met: in {met} of {ROUNDS} rounds");
}

#[tokio::test]
async fn who_makes_a_member_again_with_the_same_key_is_told_the_same_until_it_changes() {
    let api = Api::open().await;
    let add = async |key: &str, role: &str| {
        let body = json!({"email": "Ada@example.com", "role": role});
        api.call(Method::POST, "/teams/a/members", &[("idempotency-key", key)], Some(body)).await
    };
    let first = add("k", "viewer").await;
    let again = add("k", "viewer").await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 201), "{}", again.body);
    assert_eq!(first.body, again.body);
    assert_eq!(add("l", "viewer").await.status, 409);
    let other = add("k", "admin").await;
    assert!(other.status == 409 && other.body.to_string().contains("with another body"), "{}", other.body);
    // In both spellings of the address.
    let binding = api.cluster.objects("/rolebindings/").remove(0);
    let names: Vec<_> = binding["subjects"].as_array().unwrap().iter().map(|subject| &subject["name"]).collect();
    assert_eq!(names, ["Ada@example.com", "ada@example.com"]);

    let path = format!("/teams/a/members/{}", first.body["data"]["id"].as_str().unwrap());
    assert_eq!(api.call(Method::PATCH, &path, &[], Some(json!({"role": "developer"}))).await.body["data"]["email"], "Ada@example.com");
    let late = add("k", "viewer").await;
    assert!(late.status == 409 && late.body.to_string().contains("a member already, as developer"), "{}", late.body);
    assert_eq!(api.cluster.objects("/rolebindings/").len(), 1);
}
