//! Integrations: what is written, in which order, and that no login is ever read or shown. The test plays the manager and sets the
//! status.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use slipway_rest::{Authentication, RestSettings};
use tokio::time::sleep;

use crate::{Api, ApiAnswer, settings};

const INTEGRATIONS: &str = "/integrations";
const STORED: &str = "/apis/agents.slipway.dev/v1/namespaces/team-a/integrations";
const SECRETS: &str = "/api/v1/namespaces/team-a/secrets";
const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];
/// The planted login, and as Secrets have it.
const PLANTED: &str = "hunter2";
const ENCODED: &str = "aHVudGVyMg==";

fn metrics() -> Value {
    json!({"name": "Metrics", "type": "prometheus", "config": {"url": "https://metrics.example.com"}})
}

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn login() -> Value {
    json!({"credentials": {"token": PLANTED}})
}

async fn call(api: &Api, method: Method, path: &str, body: Option<Value>) -> ApiAnswer {
    let answer = api.call(method, path, &[], body).await;
    assert!(!answer.body.to_string().contains(PLANTED), "{}", answer.body);
    answer
}

#[track_caller]
fn says(answer: &ApiAnswer, status: u16, words: &str) {
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(answer.status == status && message.contains(words), "{} should say {words:?}: {}", answer.status, answer.body);
}

/// An API with integration `metrics`, whose login is the planted one.
async fn with_metrics() -> Api {
    let api = Api::open().await;
    let made = call(&api, Method::POST, INTEGRATIONS, Some(with(metrics(), &login()))).await;
    assert_eq!(made.status, 201, "{}", made.body);
    api
}

fn secret(api: &Api) -> Value {
    api.cluster.objects("/team-a/secrets/in-metrics").remove(0)
}

/// The host that the Secret says its login is for.
fn origin(secret: &Value) -> &Value {
    &secret["metadata"]["annotations"]["agents.slipway.dev/origin"]
}

#[tokio::test]
async fn an_integration_is_made_and_after_it_its_secret() {
    let api = Api::open().await;
    let made = call(&api, Method::POST, INTEGRATIONS, Some(with(metrics(), &login()))).await;
    let view = &made.body["data"];
    assert_eq!((made.status.as_u16(), &view["id"], &view["slug"]), (201, &json!("in_metrics"), &json!("metrics")), "{view}");
    assert_eq!((&view["type"], &view["status"]), (&json!("prometheus"), &json!("disconnected")), "{view}");
    assert_eq!(view["config"], json!({"url": "https://metrics.example.com"}));
    assert_eq!((&view["credential_keys"], view.get("generated")), (&json!([]), None), "the manager knows the keys");

    let stored = api.cluster.objects("/integrations/").remove(0);
    assert_eq!(stored["spec"], json!({"name": "Metrics", "prometheus": {"url": "https://metrics.example.com"}}));
    let secret = secret(&api);
    assert_eq!((&secret["type"], &secret["data"]), (&json!("Opaque"), &json!({"token": ENCODED})));
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Integration", "name": "metrics", "uid": stored["metadata"]["uid"]});
    assert_eq!(secret["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!(secret["metadata"]["labels"], json!({"app.kubernetes.io/managed-by": "slipway-rest"}));
    assert_eq!(origin(&secret), "https://metrics.example.com", "the manager sends it nowhere else");
    assert_eq!(api.cluster.lines("/team-a/"), [format!("POST {STORED}"), format!("POST {SECRETS}")]);

    says(&call(&api, Method::POST, INTEGRATIONS, Some(with(metrics(), &login()))).await, 409, "already an integration metrics");
    assert_eq!(api.cluster.lines("/secrets").len(), 1, "another's login is left alone");
}

#[tokio::test]
async fn a_login_is_replaced_and_never_read() {
    let api = with_metrics().await;
    let path = "/integrations/in_metrics";
    let renamed = with(metrics(), &json!({"description": "How servers are."}));
    let kept = call(&api, Method::PUT, path, Some(renamed)).await;
    assert_eq!((kept.status.as_u16(), &kept.body["data"]["description"]), (200, &json!("How servers are.")), "{}", kept.body);
    assert_eq!((secret(&api)["data"].clone(), api.cluster.lines("/secrets").len()), (json!({"token": ENCODED}), 1), "it stays");

    let written = || secret(&api)["metadata"]["annotations"]["agents.slipway.dev/written"].clone();
    let first = written();
    assert_eq!(call(&api, Method::PUT, path, Some(with(metrics(), &login()))).await.status, 200);
    assert!(first.is_string() && written().is_string() && written() != first, "the same login is given anew");
    let two = with(metrics(), &json!({"credentials": {"username": "u", "password": PLANTED}}));
    assert_eq!(call(&api, Method::PUT, "/integrations/metrics", Some(two)).await.status, 200);
    assert_eq!(secret(&api)["data"], json!({"username": "dQ==", "password": ENCODED}), "it is replaced whole");
    assert_eq!(api.cluster.objects("/integrations/")[0]["spec"].get("description"), None, "what is left out is reset");
    assert_eq!(call(&api, Method::PUT, path, Some(with(metrics(), &json!({"credentials": {}})))).await.status, 200);
    assert_eq!(secret(&api)["data"], json!({}), "it is cleared");

    let deleted = call(&api, Method::DELETE, path, None).await;
    assert_eq!((deleted.status.as_u16(), &deleted.body["data"]), (200, &json!({"id": "in_metrics", "deleted": true})));
    for (method, body) in [(Method::GET, None), (Method::PUT, Some(metrics())), (Method::DELETE, None)] {
        says(&call(&api, method, path, body).await, 404, "there is no integration metrics");
    }
    says(&call(&api, Method::POST, "/integrations/metrics/test", None).await, 404, "there is no integration metrics");
    says(&call(&api, Method::GET, "/integrations/No.Name", None).await, 404, "there is no integration No.Name");
    let one = format!("{SECRETS}/in-metrics");
    assert_eq!(api.cluster.reads(&one), 0);
    let put = format!("PUT {one}");
    let post = format!("POST {SECRETS}");
    assert_eq!(api.cluster.lines("/secrets"), [&post, &post, &put, &post, &put, &post, &put].map(String::clone));
}

#[tokio::test]
async fn a_login_does_not_follow_to_another_host() {
    let api = with_metrics().await;
    let path = "/integrations/metrics";
    let at = |url: &str| with(metrics(), &json!({"config": {"url": url}}));
    says(&call(&api, Method::PUT, path, Some(at("https://evil.example.com"))).await, 409, "credentials: must be given anew");
    says(&call(&api, Method::PUT, path, Some(at("http://metrics.example.com"))).await, 409, "credentials: must be given anew");
    assert_eq!(api.cluster.objects("/integrations/")[0]["spec"]["prometheus"]["url"], "https://metrics.example.com");
    assert_eq!(call(&api, Method::PUT, path, Some(at("https://metrics.example.com:443/api"))).await.status, 200);
    assert_eq!(origin(&secret(&api)), "https://metrics.example.com");
    assert_eq!(call(&api, Method::PUT, path, Some(with(at("https://new.example.com"), &login()))).await.status, 200);
    assert_eq!(origin(&secret(&api)), "https://new.example.com");
    assert_eq!(api.cluster.lines("/secrets").len(), 3, "made, taken, replaced: {:?}", api.cluster.lines("/secrets"));
    let other = json!({"name": "Metrics", "type": "mlflow", "config": {"url": "https://new.example.com"}});
    says(&call(&api, Method::PUT, path, Some(other)).await, 400, "an integration keeps its type");
}

/// Ada gives a login, and while REST writes it Eve sends the integration elsewhere.
#[tokio::test]
async fn a_login_is_taken_back_where_the_host_changed_meanwhile() {
    let api = with_metrics().await;
    let (path, ada) = ("/integrations/metrics", with(metrics(), &json!({"credentials": {"token": "newer"}})));
    api.cluster.fail(Method::POST, "/secrets", 403, "User \"rest\" cannot create resource \"secrets\"");
    let eve = async {
        // REST has changed the integration once it tries to write the Secret.
        for _ in 0..500 {
            if api.cluster.lines("/secrets").len() > 1 {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        api.cluster.set(&format!("{STORED}/metrics"), json!({"spec": {"prometheus": {"url": "https://evil.example.com"}}}));
        api.cluster.heal();
    };
    let (answer, ()) = tokio::join!(call(&api, Method::PUT, path, Some(ada)), eve);
    says(&answer, 409, "its credentials were taken back");
    let taken_back = secret(&api);
    assert_eq!((&taken_back["data"], origin(&taken_back)), (&json!({}), &json!("https://metrics.example.com")), "nor was it ever Eve's");
}

#[tokio::test]
async fn a_login_that_is_a_url_is_for_no_host() {
    let api = Api::open().await;
    let body = json!({"name": "Metrics", "type": "slack", "credentials": {"webhook_url": "https://hooks.example.com/hunter2"}});
    assert_eq!(call(&api, Method::POST, INTEGRATIONS, Some(body)).await.status, 201);
    let secret = secret(&api);
    assert!(secret["metadata"]["annotations"].is_object() && origin(&secret).is_null(), "{}", secret["metadata"]);
}

#[tokio::test]
async fn a_creation_that_was_cut_off_is_finished_by_the_same_call() {
    let api = Api::open().await;
    let key = [("idempotency-key", "k")];
    let post = || api.call(Method::POST, INTEGRATIONS, &key, Some(with(metrics(), &login())));
    api.cluster.fail(Method::POST, "/secrets", 500, "hunter2 is no Secret");
    let cut_off = post().await;
    says(&cut_off, 503, "the cluster does not answer");
    assert!(!cut_off.body.to_string().contains(PLANTED), "{}", cut_off.body);
    assert_eq!((api.cluster.objects("/integrations/").len(), api.cluster.objects("/team-a/secrets/").len()), (1, 0));
    api.cluster.heal();
    let (first, second) = (post().await, post().await);
    assert_eq!((first.status.as_u16(), second.status.as_u16(), &first.body), (201, 201, &second.body));
    assert_eq!((api.cluster.objects("/integrations/").len(), secret(&api)["data"].clone()), (1, json!({"token": ENCODED})));
    // By now it is for another host than this call meant.
    api.cluster.set(&format!("{STORED}/metrics"), json!({"spec": {"prometheus": {"url": "https://evil.example.com"}}}));
    let before = api.cluster.lines("/secrets");
    says(&post().await, 409, "was changed since this call made it");
    assert_eq!(api.cluster.lines("/secrets"), before);
}

#[tokio::test]
async fn a_webhooks_secret_is_shown_once() {
    let api = Api::open().await;
    let body = json!({"name": "Alerts", "type": "webhook", "config": {"url": "https://hooks.example.com/a"}, "alerts": {"severities": ["critical"]}});
    let made = call(&api, Method::POST, INTEGRATIONS, Some(body.clone())).await.body;
    let shown = made["data"]["generated"]["signing_secret"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("whsec_"), "{shown}");
    let alerts = json!({"severities": ["critical"], "agents": [], "metrics": [], "resolved": true});
    assert_eq!(made["data"]["alerts"], alerts);
    for (method, path, body) in [
        (Method::GET, "/integrations/alerts", None),
        (Method::GET, INTEGRATIONS, None),
        (Method::PUT, "/integrations/alerts", Some(body.clone())),
    ] {
        let answer = call(&api, method, path, body).await;
        assert!(answer.status == 200 && !answer.body.to_string().contains("whsec_"), "{}", answer.body);
    }
    let anew = call(&api, Method::PUT, "/integrations/alerts", Some(with(body, &json!({"credentials": {}})))).await.body;
    let anew = anew["data"]["generated"]["signing_secret"].as_str().unwrap().to_owned();
    assert_ne!(anew, shown);
}

#[tokio::test]
async fn a_secret_that_cannot_be_written_is_said_in_our_words() {
    let api = Api::open().await;
    let body = |name: &str| Some(with(metrics(), &json!({"name": name, "credentials": {"token": PLANTED}})));
    let cannot = "secrets is forbidden: User \"rest\" cannot create resource \"secrets\": hunter2";
    api.cluster.fail(Method::POST, "/secrets", 403, cannot);
    let answer = call(&api, Method::POST, INTEGRATIONS, body("one")).await;
    says(
        &answer,
        503,
        "integration one is there, but its credentials cannot be stored: REST may not write Secrets in team a (chart value policies.confineRest); create Secret in-one by kubectl",
    );
    api.cluster.fail(Method::POST, "/secrets", 403, "secrets \"in-two\" is forbidden: exceeded quota: slipway, requested: hunter2");
    says(&call(&api, Method::POST, INTEGRATIONS, body("two")).await, 403, "the team's quota has no room for Secret in-two");
    let going = "secrets \"in-x\" is forbidden: unable to create new content in namespace team-a because it is being terminated";
    api.cluster.fail(Method::POST, "/secrets", 403, going);
    says(&call(&api, Method::POST, INTEGRATIONS, body("going")).await, 409, "the team is being deleted");
    api.cluster.fail(Method::POST, "/secrets", 422, "a policy denied hunter2");
    says(&call(&api, Method::POST, INTEGRATIONS, body("three")).await, 403, "a policy of the cluster refuses Secret in-three");
    api.cluster.make(SECRETS, json!({"metadata": {"name": "in-four"}, "data": {"token": "dGhlaXJz"}}));
    api.cluster.fail(Method::PUT, "/secrets", 422, "a policy denied hunter2");
    says(&call(&api, Method::POST, INTEGRATIONS, body("four")).await, 409, "Secret in-four is somebody else's and stays as it is");
    assert_eq!(api.cluster.objects("/secrets/in-four")[0]["data"], json!({"token": "dGhlaXJz"}));
}

#[tokio::test]
async fn what_is_wrong_with_an_integration_writes_nothing() {
    let api = with_metrics().await;
    let before = api.cluster.lines("/team-a/");
    for (method, path) in [(Method::POST, INTEGRATIONS), (Method::PUT, "/integrations/metrics")] {
        for (change, words) in [
            (json!({"type": "ftp"}), "type: must be one of"),
            (json!({"config": {"url": "https://x", "colour": 1}}), "there is no field `config.colour`"),
            (json!({"config": {"url": "https://x".repeat(200)}}), "config.url: must have at most 1024 characters"),
            (json!({"credentials": {"token": PLANTED, "user": PLANTED}}), "there is no field `credentials.user`"),
            (json!({"credentials": PLANTED}), "credentials: must be an object"),
            (json!({"alerts": {"severities": ["low", "middle", "high"]}}), "alerts.severities: must have at most 2 items"),
            (json!({"colour": 1}), "there is no field `colour`"),
        ] {
            says(&call(&api, method.clone(), path, Some(with(metrics(), &change))).await, 400, words);
        }
    }
    assert_eq!(api.cluster.lines("/team-a/"), before);
}

#[tokio::test]
async fn a_list_is_of_a_type_and_a_status() {
    let api = with_metrics().await;
    let llm = json!({"name": "LLM", "type": "openai", "credentials": {"api_key": PLANTED}});
    assert_eq!(call(&api, Method::POST, INTEGRATIONS, Some(llm)).await.status, 201);
    let status = json!({"status": {"phase": "Connected", "type": "openai", "observedGeneration": 1, "credentialKeys": ["api_key"]}});
    api.cluster.set(&format!("{STORED}/llm"), status);
    let shown = call(&api, Method::GET, "/integrations/llm", None).await;
    assert_eq!(shown.body["data"]["credential_keys"], json!(["api_key"]));
    let version = shown.headers["x-resource-version"].to_str().unwrap().to_owned();
    let listed = async |query: &str| -> Vec<String> {
        let path = format!("{INTEGRATIONS}{query}");
        let answer = api.call(Method::GET, &path, &[("x-resource-version", &version)], None).await;
        let items = answer.body["data"].as_array().unwrap_or_else(|| panic!("{}", answer.body)).clone();
        items.iter().map(|item| item["slug"].as_str().unwrap().to_owned()).collect()
    };
    let mut all = listed("").await;
    all.sort();
    assert_eq!(all, ["llm", "metrics"]);
    assert_eq!(listed("?type=openai").await, ["llm"]);
    assert_eq!(listed("?status=disconnected").await, ["metrics"]);
    assert_eq!(listed("?status=connected&type=prometheus").await, Vec::<String>::new());
    says(&call(&api, Method::GET, "/integrations?type=ftp", None).await, 400, "`type` must be one of local");
    says(&call(&api, Method::GET, "/integrations?status=up", None).await, 400, "`status` must be one of connected, error, disconnected");
    let types = call(&api, Method::GET, "/integrations/types", None).await.body;
    assert_eq!(types["data"].as_array().map(Vec::len), Some(13));
}

#[tokio::test]
async fn an_integration_that_gitops_owns_is_left_to_it() {
    let api = with_metrics().await;
    api.cluster.set(&format!("{STORED}/metrics"), json!({"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}}));
    let before = api.cluster.lines("/secrets");
    for (method, body) in [(Method::PUT, Some(with(metrics(), &login()))), (Method::DELETE, None)] {
        says(&call(&api, method, "/integrations/metrics", body).await, 409, "integration metrics belongs to Flux");
    }
    assert_eq!(api.cluster.lines("/secrets"), before);
}

#[tokio::test]
async fn an_integration_is_written_only_by_those_who_may() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    assert_eq!(api.call(Method::POST, INTEGRATIONS, &ADA, Some(with(metrics(), &login()))).await.status, 201);
    let before = api.cluster.lines("/team-a/");
    api.cluster.refuse(&[("create", "integrations"), ("patch", "integrations"), ("delete", "integrations")]);
    // Until reviews of before are forgotten.
    sleep(Duration::from_millis(5_100)).await;
    let (one, tested) = ("/integrations/metrics", "/integrations/metrics/test");
    let body = || Some(with(metrics(), &login()));
    for (method, path, body) in
        [(Method::POST, INTEGRATIONS, body()), (Method::PUT, one, body()), (Method::DELETE, one, None), (Method::POST, tested, None)]
    {
        says(&api.call(method, path, &ADA, body).await, 403, "integrations");
    }
    assert_eq!(api.call(Method::GET, one, &ADA, None).await.status, 200);
    assert_eq!(api.cluster.lines("/team-a/"), before);
}

#[tokio::test]
async fn secrets_are_written_by_rest_and_never_as_the_caller() {
    let api = Api::start(RestSettings { impersonate: true, ..settings() }, Authentication::On(None)).await;
    assert_eq!(api.call(Method::POST, INTEGRATIONS, &ADA, Some(with(metrics(), &login()))).await.status, 201);
    let writers = api.cluster.writers("/team-a/integrations");
    assert_eq!(writers[0].1.first().map(String::as_str), Some("ada@example.com"), "{writers:?}");
    assert_eq!(api.cluster.writers("/team-a/secrets"), [("POST".to_owned(), Vec::new())]);
}

/// Plays the manager, who answers what is asked next.
async fn manager(api: &Api, answer: impl Fn(&str) -> Value) -> String {
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries < 500, "nobody asked for a test");
        let stored = api.cluster.objects("/integrations/metrics").remove(0);
        let asked = stored["metadata"]["annotations"]["agents.slipway.dev/test"].as_str().unwrap_or_default();
        if !asked.is_empty() && stored["status"]["lastTest"]["id"] != asked {
            api.cluster.set(&format!("{STORED}/metrics"), json!({"status": answer(asked)}));
            return asked.to_owned();
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn test_of(id: &str, reason: &str) -> Value {
    let succeeded = reason == "Connected";
    let test =
        json!({"id": id, "digest": "d", "succeeded": succeeded, "reason": reason, "message": format!("It is {reason}."), "latencyMs": 12});
    json!({"observedGeneration": 1, "lastTest": test})
}

#[tokio::test]
async fn a_test_waits_for_its_own_answer() {
    let api = with_metrics().await;
    let test = || call(&api, Method::POST, "/integrations/metrics/test", None);
    for (reason, status) in [("Connected", "connected"), ("Unauthorized", "error")] {
        let (answer, _) = tokio::join!(test(), manager(&api, |asked| test_of(asked, reason)));
        let expected = json!({"status": status, "message": format!("It is {reason}."), "latency_ms": 12});
        assert_eq!((answer.status.as_u16(), &answer.body["data"]), (200, &expected), "{}", answer.body);
    }
    let (answer, _) = tokio::join!(test(), manager(&api, |asked| test_of(asked, "WorkerUnavailable")));
    says(&answer, 503, "the worker of team a is not ready");
    assert_eq!(answer.headers["retry-after"], "5");

    // Somebody else asks meanwhile, and that later test answers both.
    let later = async {
        let asked = manager(&api, |_| test_of("change", "Unauthorized")).await;
        api.cluster.set(&format!("{STORED}/metrics"), json!({"metadata": {"annotations": {"agents.slipway.dev/test": "by hand"}}}));
        api.cluster.set(&format!("{STORED}/metrics"), json!({"status": test_of("by hand", "Connected")}));
        asked
    };
    let (answer, asked) = tokio::join!(test(), later);
    assert!(asked.starts_with("rest-"), "{asked}");
    assert_eq!(answer.body["data"]["status"], "connected", "{}", answer.body);
}

#[tokio::test]
async fn one_test_of_an_integration_is_under_way_at_a_time() {
    let api = with_metrics().await;
    let test = || call(&api, Method::POST, "/integrations/metrics/test", None);
    let second = async {
        while api.cluster.objects("/integrations/metrics")[0]["metadata"]["annotations"]["agents.slipway.dev/test"].is_null() {
            sleep(Duration::from_millis(5)).await;
        }
        let refused = test().await;
        manager(&api, |asked| test_of(asked, "Connected")).await;
        refused
    };
    let (first, second) = tokio::join!(test(), second);
    says(&second, 429, "a test of integration metrics is under way");
    assert_eq!((first.status.as_u16(), second.headers.contains_key("retry-after")), (200, true), "{}", first.body);
}

#[tokio::test]
async fn a_manager_that_is_away_is_a_504() {
    let api = with_metrics().await;
    let answer = call(&api, Method::POST, "/integrations/metrics/test", None).await;
    says(&answer, 504, "the manager has not tested integration metrics yet");
    let stored = api.cluster.objects("/integrations/metrics").remove(0);
    assert!(stored["metadata"]["annotations"]["agents.slipway.dev/test"].is_string(), "the wish stays");
}

#[tokio::test]
async fn an_integration_that_goes_while_it_is_tested_is_a_404() {
    let api = with_metrics().await;
    let test = call(&api, Method::POST, "/integrations/metrics/test", None);
    let gone = async {
        while api.cluster.objects("/integrations/metrics")[0]["metadata"]["annotations"]["agents.slipway.dev/test"].is_null() {
            sleep(Duration::from_millis(5)).await;
        }
        call(&api, Method::DELETE, "/integrations/metrics", None).await
    };
    let (tested, deleted) = tokio::join!(test, gone);
    assert_eq!(deleted.status, 200);
    says(&tested, 404, "there is no integration metrics");
}
