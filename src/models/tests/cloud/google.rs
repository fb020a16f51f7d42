use std::io::Write;

use serde_json::json;
use slipway_models::FaultKind;
use tempfile::NamedTempFile;

use super::*;
use crate::replay::{Replay, ReplayedRequest, Reply};

const ANSWER: &str = include_str!("../../testdata/gemini/vertex-text.sse");

const IMPERSONATION: &str = "/v1/projects/-/serviceAccounts/agent@my-project.iam.gserviceaccount.com:generateAccessToken";

/// Google's services at one address, with the answers of AIP-4117.
async fn google() -> Replay {
    Replay::start(|_, asked| match asked.line.as_str() {
        "POST /sts/token" => Reply::ok(&json!({
            "access_token": "federated", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer",
            "expires_in": 3600,
        })),
        line if line.ends_with(":generateAccessToken") => {
            Reply::ok(&json!({"accessToken": "impersonated", "expireTime": "2099-01-01T00:00:00Z"}))
        }
        line if line.contains("/token") => Reply::ok(&json!({"access_token": "of-the-pod", "expires_in": 3599, "token_type": "Bearer"})),
        line if line.contains("/service-accounts/") => Reply {
            headers: "metadata-flavor: Google\r\n",
            ..Reply::ok(&json!({"email": "agent@my-project.iam.gserviceaccount.com", "scopes": [], "aliases": ["default"]}))
        },
        line if line.starts_with("POST /v1/") => Reply::ok(ANSWER),
        _ => Reply { status: 404, ..Reply::ok("{}") },
    })
    .await
}

fn configuration(google: &Replay, token: &NamedTempFile, impersonated: bool) -> NamedTempFile {
    let mut fields = json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/pool/providers/cluster",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{}/sts/token", google.url),
        "credential_source": {"file": token.path()},
    });
    if impersonated {
        fields["service_account_impersonation_url"] = format!("{}{IMPERSONATION}", google.url).into();
    }
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(fields.to_string().as_bytes()).unwrap();
    file
}

fn pod(google: &Replay) -> Variables {
    Variables::from([("GOOGLE_VERTEX_BASE_URL", google.url.clone()), ("GOOGLE_CLOUD_PROJECT", "my-project".to_owned())])
}

fn form(asked: &ReplayedRequest) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(asked.body.as_str().unwrap().as_bytes()).into_owned().collect()
}

#[tokio::test]
async fn a_token_of_another_cluster_is_exchanged_as_googles_own_library_does() {
    let google = google().await;
    let mut token = NamedTempFile::new().unwrap();
    token.write_all(b"a-token-of-the-cluster").unwrap();
    for (impersonated, expected) in [(false, "federated"), (true, "impersonated")] {
        let file = configuration(&google, &token, impersonated);
        let mut variables = pod(&google);
        variables.insert("GOOGLE_APPLICATION_CREDENTIALS", file.path().to_str().unwrap().to_owned());
        let before = google.asked().len();
        let pieces = ask(Provider::VertexAi, "gemini-2.5-flash", &variables).await;
        assert!(pieces.iter().all(Result::is_ok), "{pieces:?}");
        let ours = google.asked().split_off(before);
        assert_eq!(ours.last().unwrap().headers["authorization"], format!("Bearer {expected}"));

        assert_eq!(vendor("access.py", &variables).await, expected);
        let theirs = google.asked().split_off(before + ours.len());
        assert_eq!((&ours[0].line, form(&ours[0])), (&theirs[0].line, form(&theirs[0])));
        assert_eq!(form(&ours[0])["subject_token"], "a-token-of-the-cluster");
        if impersonated {
            assert_eq!((&ours[1].line, &ours[1].headers["authorization"]), (&theirs[1].line, &theirs[1].headers["authorization"]));
            assert_eq!(ours[1].body["scope"], theirs[1].body["scope"]);
            assert_eq!(ours[1].body["lifetime"], theirs[1].body["lifetime"]);
        }
    }
}

#[tokio::test]
async fn a_pod_in_gke_is_asked_for_by_its_metadata_server() {
    let google = google().await;
    let mut variables = pod(&google);
    variables.insert("GCE_METADATA_HOST", google.url.trim_start_matches("http://").to_owned());
    let pieces = ask(Provider::VertexAi, "gemini-2.5-flash", &variables).await;
    assert!(pieces.iter().all(Result::is_ok), "{pieces:?}");
    assert_eq!(google.asked()[1].headers["authorization"], "Bearer of-the-pod");
    assert_eq!(vendor("access.py", &variables).await, "of-the-pod");
    assert!(google.asked()[0].headers.get("metadata-flavor").is_some_and(|flavor| flavor == "Google"));
}

#[tokio::test]
async fn an_exchange_that_is_refused_says_so_without_the_token() {
    // An error of RFC 6749, section 5.2, which RFC 8693 adopts.
    let google =
        Replay::start(|_, _| Reply { status: 400, ..Reply::ok(&json!({"error": "invalid_grant", "error_description": "hunter2"})) }).await;
    let mut token = NamedTempFile::new().unwrap();
    token.write_all(b"hunter2").unwrap();
    let file = configuration(&google, &token, false);
    let mut variables = pod(&google);
    variables.insert("GOOGLE_APPLICATION_CREDENTIALS", file.path().to_str().unwrap().to_owned());
    let pieces = ask(Provider::VertexAi, "gemini-2.5-flash", &variables).await;
    let [Err(fault)] = &pieces[..] else { panic!("{pieces:?}") };
    assert_eq!(*fault.kind(), FaultKind::Unauthorized);
    assert!(fault.message().contains("GOOGLE_APPLICATION_CREDENTIALS") && fault.message().contains("pool trusts"), "{fault}");
    assert!(!fault.message().contains("hunter2"), "{fault}");
}
