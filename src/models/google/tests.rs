use std::io::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A published test key; see testdata/README.md.
const KEY: &str = include_str!("../testdata/google-test-key.pem");

fn key(token_uri: &str) -> Value {
    json!({
        "type": "service_account", "project_id": "my-project", "private_key_id": "kid-1", "private_key": KEY,
        "client_email": "agent@my-project.iam.gserviceaccount.com", "token_uri": token_uri,
    })
}

fn file(content: &str) -> (tempfile::NamedTempFile, GoogleCredentials) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let credentials = GoogleCredentials::of(&|name| (name == FILE_VARIABLE).then(|| path.clone())).unwrap();
    (file, credentials)
}

/// Answers every request with this body and records the requests.
async fn serve(status: &'static str, body: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = asked.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 8192];
            while !complete(&request) {
                let read = stream.read(&mut buffer).await.unwrap();
                request.extend_from_slice(&buffer[..read]);
            }
            heard.lock().await.push(String::from_utf8(request).unwrap());
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, asked)
}

fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |length| length.parse().unwrap());
    body.len() >= length
}

#[test]
fn the_statement_is_signed_so_that_the_public_key_confirms_it() {
    let key: Account = serde_json::from_value(key("https://oauth2.googleapis.com/token")).unwrap();
    let statement = key.assertion("2026-01-02T03:04:05Z".parse().unwrap()).unwrap();
    let (signed, signature) = statement.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let decoded = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    assert_eq!(decoded(header), json!({"alg": "RS256", "typ": "JWT", "kid": "kid-1"}));
    assert_eq!(
        decoded(claims),
        json!({
            "iss": "agent@my-project.iam.gserviceaccount.com", "scope": SCOPE, "aud": "https://oauth2.googleapis.com/token",
            "iat": 1_767_323_045, "exp": 1_767_326_645,
        })
    );
    let der = STANDARD.decode(KEY.lines().filter(|line| !line.starts_with("--")).collect::<String>()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(&der).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key());
    public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
}

#[tokio::test]
async fn a_token_is_fetched_once_for_many_and_kept() {
    let (address, asked) = serve("200 OK", r#"{"access_token": "ya29.token", "expires_in": 3599, "token_type": "Bearer"}"#).await;
    let (_file, credentials) = file(&key(&format!("http://{address}/token")).to_string());
    let (one, two) = tokio::join!(credentials.token(), credentials.token());
    assert_eq!(one.unwrap().as_bytes(), b"Bearer ya29.token");
    assert!(two.unwrap().is_sensitive());
    let asked = asked.lock().await;
    assert_eq!(asked.len(), 1);
    assert!(asked[0].starts_with("POST /token HTTP/1.1\r\n") && asked[0].contains("grant_type=urn%3Aietf%3A"), "{}", asked[0]);
    assert_eq!(credentials.project().await.unwrap(), "my-project");
}

#[tokio::test]
async fn a_token_about_to_expire_is_fetched_anew() {
    let (address, asked) = serve("200 OK", r#"{"access_token": "ya29.token", "expires_in": 60}"#).await;
    let (_file, credentials) = file(&key(&format!("http://{address}/token")).to_string());
    credentials.token().await.unwrap();
    credentials.token().await.unwrap();
    assert_eq!(asked.lock().await.len(), 2);
}

#[tokio::test]
async fn a_key_that_was_deleted_is_unauthorized() {
    // An error of RFC 6749, section 5.2.
    let (address, _) = serve("400 Bad Request", r#"{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}"#).await;
    let (_file, credentials) = file(&key(&format!("http://{address}/token")).to_string());
    let fault = credentials.token().await.unwrap_err();
    assert_eq!(*fault.kind(), FaultKind::Unauthorized);
    assert!(fault.message().contains(FILE_VARIABLE), "{fault}");
}

#[tokio::test]
async fn files_that_are_no_keys_are_refused_without_being_quoted() {
    let nowhere = key("nowhere").to_string();
    for (content, words) in [
        ("hunter2", "not a JSON object"),
        (r#"{"type": "authorized_user", "refresh_token": "hunter2"}"#, "only service_account"),
        (r#"{"type": "external_account", "private_key": "hunter2"}"#, "missing field `audience`"),
        (r#"{"type": "service_account", "private_key": {"a": "hunter2"}}"#, "no texts"),
        (r#"{"type": "service_account", "private_key": "hunter2", "token_uri": "http://localhost/"}"#, "private_key"),
        (&nowhere, "token_uri"),
    ] {
        let (_file, credentials) = file(content);
        let fault = credentials.token().await.unwrap_err();
        assert_eq!(*fault.kind(), FaultKind::Misconfigured, "{content}");
        assert!(fault.message().contains(words) && !fault.message().contains("hunter2"), "{fault}");
        assert_eq!(format!("{credentials:?}"), "GoogleCredentials");
    }
}

#[tokio::test]
async fn without_a_file_the_metadata_server_is_asked() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (address, asked) = serve("200 OK", r#"{"access_token": "ya29.token", "expires_in": 3599, "token_type": "Bearer"}"#).await;
    let at = |host: String| GoogleCredentials::of(&move |name| (name == "GCE_METADATA_HOST").then(|| host.clone())).unwrap();
    assert_eq!(at(address).token().await.unwrap().as_bytes(), b"Bearer ya29.token");
    let asked = asked.lock().await;
    assert!(asked[0].starts_with("GET /computeMetadata/v1/instance/service-accounts/default/token "), "{}", asked[0]);
    assert!(asked[0].contains("metadata-flavor: Google\r\n"), "{}", asked[0]);

    let fault = at("127.0.0.1:1".to_owned()).token().await.unwrap_err();
    assert_eq!(*fault.kind(), FaultKind::MissingKey);
    assert!(fault.message().contains(FILE_VARIABLE), "{fault}");
}
