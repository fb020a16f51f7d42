use std::io::Write;

use slipway_models::FaultKind;
use tempfile::NamedTempFile;

use super::*;
use crate::replay::{Replay, ReplayedRequest, Reply};

const ROLE: &str = "arn:aws:iam::123456789012:role/agents";
/// The answer of the model server; only the signature of the request matters.
const REFUSAL: &str = r#"{"message": "The provided model identifier is invalid."}"#;

fn file(content: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

fn path(file: &NamedTempFile) -> String {
    file.path().to_str().unwrap().to_owned()
}

async fn bedrock() -> Replay {
    Replay::start(|_, _| Reply { status: 400, ..Reply::ok(REFUSAL) }).await
}

fn pod(bedrock: &Replay) -> Variables {
    Variables::from([("AWS_REGION", "eu-west-1".to_owned()), ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", bedrock.url.clone())])
}

/// The key id and the token with which a request was signed.
fn signed(asked: &ReplayedRequest) -> (String, String) {
    let authorization = &asked.headers["authorization"];
    let id = authorization.split_once("Credential=").unwrap().1.split_once('/').unwrap().0;
    (id.to_owned(), asked.headers["x-amz-security-token"].clone())
}

fn issued(number: usize, lifetime: i64) -> String {
    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(lifetime);
    // From AWS's SDK guide, "Container credential provider".
    serde_json::json!({
        "AccessKeyId": format!("ASIA{number}"), "SecretAccessKey": "secret", "Token": format!("token-{number}"),
        "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
    .to_string()
}

#[tokio::test]
async fn the_token_of_a_service_account_becomes_keys_of_its_role() {
    let (moto, bedrock) = (slipway_peers::moto(), bedrock().await);
    let token = file("a-token-of-the-cluster\n");
    let mut variables = pod(&bedrock);
    variables.extend([
        ("AWS_ROLE_ARN", ROLE.to_owned()),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", path(&token)),
        ("AWS_ENDPOINT_URL_STS", moto.url().to_owned()),
    ]);
    let model = open(Provider::Bedrock, "some-model", &|name| variables.get(name).cloned()).unwrap();
    for _ in 0..2 {
        let pieces: Vec<_> = model.answer(hello()).collect().await;
        let [Err(fault)] = &pieces[..] else { panic!("{pieces:?}") };
        assert_eq!(*fault.kind(), FaultKind::UnknownModel, "it is the model's server that answers: {fault}");
    }
    let asked = bedrock.asked();
    let (id, session) = signed(&asked[0]);
    assert!(id.starts_with("ASIA") && !session.is_empty(), "{id}");
    assert_eq!(signed(&asked[1]), (id, session), "the keys are kept");
    assert!(asked[0].headers["authorization"].contains("/eu-west-1/bedrock/aws4_request"));
    assert_eq!(moto.log().matches("POST / HTTP").count(), 1, "{}", moto.log());
    // AWS's own library gets the same from the same server.
    assert!(vendor("keys.py", &variables).await.starts_with("ASIA"));
}

#[tokio::test]
async fn a_role_that_does_not_trust_the_cluster_is_told_without_the_token() {
    let error = include_str!("../../testdata/aws/sts-error.xml");
    let sts = Replay::start(|_, _| Reply { status: 400, ..Reply::ok(error) }).await;
    let bedrock = bedrock().await;
    let token = file("hunter2");
    let mut variables = pod(&bedrock);
    variables.extend([
        ("AWS_ROLE_ARN", ROLE.to_owned()),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", path(&token)),
        ("AWS_ENDPOINT_URL_STS", sts.url.clone()),
    ]);
    let pieces = ask(Provider::Bedrock, "m", &variables).await;
    let [Err(fault)] = &pieces[..] else { panic!("{pieces:?}") };
    assert_eq!(*fault.kind(), FaultKind::Unauthorized);
    for part in ["AWS_ROLE_ARN", ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE", "InvalidIdentityToken"] {
        assert!(fault.message().contains(part), "{part} in {fault}");
    }
    assert!(!fault.message().contains("hunter2") && bedrock.asked().is_empty(), "{fault}");
    assert!(sts.asked()[0].body.as_str().unwrap().contains("&WebIdentityToken=hunter2"));
}

#[tokio::test]
async fn pod_identity_gives_keys_for_the_token_in_the_file_of_that_moment() {
    let agent = Replay::start(|number, _| Reply::ok(&issued(number, 60))).await;
    let bedrock = bedrock().await;
    let mut token = file("first");
    let mut variables = pod(&bedrock);
    variables.extend([
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{}/v1/credentials", agent.url)),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path(&token)),
    ]);
    let model = open(Provider::Bedrock, "m", &|name| variables.get(name).cloned()).unwrap();
    let _: Vec<_> = model.answer(hello()).collect().await;
    token.write_all(b"-and-second").unwrap();
    let _: Vec<_> = model.answer(hello()).collect().await;
    let ids: Vec<_> = bedrock.asked().iter().map(signed).collect();
    assert_eq!(ids, [("ASIA0".to_owned(), "token-0".to_owned()), ("ASIA1".to_owned(), "token-1".to_owned())], "they are about to expire");

    // Keys that are about to expire are renewed at once.
    assert_eq!(vendor("keys.py", &variables).await, "ASIA3 secret token-3");
    let asked = agent.asked();
    let ours = ["authorization", "accept"].map(|name| &asked[1].headers[name]);
    let theirs = ["authorization", "accept"].map(|name| &asked[2].headers[name]);
    assert_eq!((&asked[1].line, ours), (&asked[2].line, theirs), "asked as AWS's own library asks");
    assert_eq!(asked[0].headers["authorization"], "first");
}

#[tokio::test]
async fn keys_serve_until_they_expire_though_renewing_them_fails() {
    let agent = Replay::start(|number, _| match number {
        // Due for renewal, but still valid.
        0 => Reply::ok(&issued(0, 200)),
        _ => Reply { status: 400, ..Reply::ok("{}") },
    })
    .await;
    let bedrock = bedrock().await;
    let mut variables = pod(&bedrock);
    variables.insert("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url.clone());
    let model = open(Provider::Bedrock, "m", &|name| variables.get(name).cloned()).unwrap();
    for _ in 0..3 {
        let _: Vec<_> = model.answer(hello()).collect().await;
    }
    assert_eq!(bedrock.asked().iter().map(|asked| signed(asked).0).collect::<Vec<_>>(), ["ASIA0"; 3]);
    assert_eq!(agent.asked().len(), 2, "after a failure there is a pause");
}

#[tokio::test]
async fn what_hands_out_no_keys_is_named() {
    let refusing = Replay::start(|_, _| Reply { status: 404, ..Reply::ok("{}") }).await;
    let bedrock = bedrock().await;
    for (name, value, kind, words) in [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token", FaultKind::MissingKey, "AWS_WEB_IDENTITY_TOKEN_FILE, /nowhere/token"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", refusing.url.as_str(), FaultKind::Unauthorized, "associated with a role"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/", FaultKind::Unreachable, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    ] {
        let mut variables = pod(&bedrock);
        variables.extend([("AWS_ROLE_ARN", ROLE.to_owned()), (name, value.to_owned())]);
        let pieces = tokio::time::timeout(std::time::Duration::from_secs(30), ask(Provider::Bedrock, "m", &variables)).await.unwrap();
        let [Err(fault)] = &pieces[..] else { panic!("{pieces:?}") };
        assert_eq!((fault.kind(), fault.message().contains(words)), (&kind, true), "{fault}");
    }
    for (set, words) in [
        (("AWS_ACCESS_KEY_ID", "AKID"), "AWS_SECRET_ACCESS_KEY is not"),
        (("AWS_SECRET_ACCESS_KEY", "hunter2"), "AWS_ACCESS_KEY_ID is not"),
        (("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), "AWS_ROLE_ARN is not"),
        (("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://10.0.0.1/keys"), "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        (("AWS_CONTAINER_CREDENTIALS_FULL_URI", "nonsense"), "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    ] {
        let variables = Variables::from([(set.0, set.1.to_owned())]);
        let fault = open(Provider::Bedrock, "m", &|name| variables.get(name).cloned()).err().unwrap();
        assert_eq!(*fault.kind(), FaultKind::Misconfigured);
        assert!(fault.message().contains(words) && !fault.message().contains("hunter2"), "{fault}");
    }
}
