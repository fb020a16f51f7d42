//! Settings, tokens, probes and the end.

use std::fs;
use std::io::Write;
use std::time::SystemTime;

use serde_json::json;
use slipway_http::token::{RELAY_LIFE, Signer};

use crate::support::{BASE, Platform, answer, binary};

#[test]
fn settings_that_cannot_work_are_refused_all_at_once() {
    let output = binary("serve").env("RUNTIME_PORT", "many").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    for name in ["SLIPWAY_KNOWLEDGE_URL", "RUNTIME_TEAM", "RUNTIME_PORT"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    for (arguments, code) in [("--version", 0), ("--help", 0), ("dance", 2)] {
        assert_eq!(binary(arguments).output().unwrap().status.code(), Some(code), "{arguments}");
    }
}

#[tokio::test]
async fn only_the_platform_is_answered_where_there_is_a_key() {
    let team = Platform::new().await.team("tk_a").await;
    let signer = Signer::from_pkcs8(&Signer::generate().unwrap()).unwrap();
    let worker = team.worker_with(&[("RUNTIME_ACCESS_PUBLIC_KEY", &signer.public_key())]);
    let path = format!("GET /knowledge-bases/{BASE}/documents");
    let token = |team: &str| format!("x-slipway-token: {}\r\n", signer.token(team, RELAY_LIFE, SystemTime::now()).unwrap());
    for (headers, status) in [(String::new(), 401), ("x-slipway-token: x\r\n".to_owned(), 401), (token("tk_b"), 421), (token("tk_a"), 200)] {
        assert_eq!(worker.send(&path, &headers, b"").0, status, "{headers}");
    }
    for probe in ["GET /healthz", "GET /readyz", "GET /metrics"] {
        assert_eq!(worker.send(probe, "", b"").0, 200, "{probe}");
    }
}

#[tokio::test]
async fn nobody_of_its_user_reads_its_environment() {
    let team = Platform::new().await.team("tk_a").await;
    let worker = team.worker();
    let status = fs::read_to_string(format!("/proc/{}/status", worker.id())).unwrap();
    assert!(status.contains("slipway-worker"), "{status}");
    // What is not dumpable belongs to root, whoever runs it. Root itself reads everything.
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{}/environ", worker.id())).unwrap());
    assert_eq!(owner, 0);
}

#[tokio::test]
async fn requests_are_counted_and_a_running_one_is_finished() {
    let team = Platform::new().await.team("tk_a").await;
    let mut worker = team.worker();
    worker.search(&json!({"query": "x"}));
    worker.search(&json!({"query": ""}));
    let (_, metrics) = worker.send("GET /metrics", "", b"");
    for line in [
        r#"slipway_worker_requests_total{route="/knowledge-bases/*/search",status="200"} 1"#,
        r#"slipway_worker_requests_total{route="/knowledge-bases/*/search",status="400"} 1"#,
        "slipway_worker_uploads 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let mut stream = worker.connect();
    let head = format!("POST /knowledge-bases/{BASE}/uploads HTTP/1.1\r\nhost: w\r\ncontent-length: 6\r\nx-filename: a.csv\r\n\r\na,b");
    stream.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    worker.terminate();
    std::thread::sleep(std::time::Duration::from_millis(300));
    stream.write_all(b"\n1,").unwrap();
    assert_eq!(answer(stream).0, 201);
    assert!(worker.wait().success());
}
