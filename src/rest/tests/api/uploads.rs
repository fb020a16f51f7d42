//! Uploads of several teams at once. A shell script stands for the program that unpacks.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::json;
use slipway_rest::Authentication;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::{Api, settings};

/// Prints a skill that is named after the length of the archive.
const UNPACKS: &str = r#"echo "{\"skill\": {\"name\": \"of-$2\", \"description\": \"d\", \"instructions\": \"x\"}}""#;

async fn begun(api: &Api, team: &str) -> TcpStream {
    let mut stream = TcpStream::connect(api.address).await.unwrap();
    let head = format!(
        "POST /api/v1/skills/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada@example.com\r\nX-Team: {team}\r\nContent-Type: application/zip\r\nContent-Length: 1000\r\n\r\nPK"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn import(api: &Api, team: &str, archive: &str) -> (StatusCode, String) {
    let request = api.http.post(format!("http://{}/api/v1/skills/import", api.address)).body(archive.to_owned());
    let request = request.bearer_auth("ada@example.com").header("x-team", team).header("content-type", "application/zip");
    let answer = request.send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test]
async fn unfinished_uploads_of_one_team_hold_up_no_other() {
    let importer = ["/bin/sh", "-c", UNPACKS].map(Into::into).to_vec();
    let api = Api::start(slipway_rest::RestSettings { importer, ..settings() }, Authentication::On(None)).await;
    let made = api.call(Method::POST, "/teams", &[("authorization", "Bearer ada@example.com")], Some(json!({"name": "b"}))).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let mut held = Vec::new();
    for _ in 0..12 {
        held.push(begun(&api, "a").await);
    }
    // Once the other uploads have begun, the team is refused at once.
    let told = async {
        loop {
            let (status, body) = import(&api, "a", "x").await;
            if status == StatusCode::TOO_MANY_REQUESTS {
                return body;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let told = timeout(Duration::from_secs(8), told).await.expect("it is told, and does not wait");
    assert!(told.contains("team team-a sends 8 archives"), "{told}");
    let other = timeout(Duration::from_secs(8), import(&api, "b", "xyz")).await.expect("another team waits for nobody");
    assert_eq!(other.0, StatusCode::CREATED, "{}", other.1);
    let made = api.cluster.objects("/namespaces/team-b/skills/");
    assert_eq!(made.iter().map(|skill| skill["spec"]["name"].as_str().unwrap()).collect::<Vec<_>>(), ["of-3"]);
    // Interrupted uploads return their permits.
    drop(held);
    let again = async {
        while import(&api, "a", "four").await.0 == StatusCode::TOO_MANY_REQUESTS {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(8), again).await.expect("there is room again");
}
