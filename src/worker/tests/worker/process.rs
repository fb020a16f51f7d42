//! Settings, tokens, probes and the end.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use serde_json::json;
use slipway_http::token::{RELAY_LIFE, Signer};
use slipway_peers::is_root;

use crate::support::{BASE, PROGRAM, Platform, answer, binary};

const NOBODY: u32 = 65_534;

#[test]
fn settings_that_cannot_work_are_refused_all_at_once() {
    let output = binary("serve").env("RUNTIME_PORT", "many").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    for name in ["RUNTIME_TEAM", "RUNTIME_PORT"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    // Without a database there is nothing to fill.
    let ingestion = json!({"uid": "u", "name": "i", "kb_id": BASE, "source_name": "s", "embedding": {"model": "m", "chunk_size": 1, "chunk_overlap": 0}});
    let output = binary("ingest").env("RUNTIME_TEAM", "tk_a").env("SLIPWAY_INGESTION", ingestion.to_string()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("SLIPWAY_KNOWLEDGE_URL"), "{said}");
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
    for (headers, status) in [(String::new(), 401), ("x-slipway-token: x\r\n".to_owned(), 401), (token("tk_b"), 421), (token("tk_a"), 200)]
    {
        assert_eq!(worker.send(&path, &headers, b"").0, status, "{headers}");
    }
    for probe in ["GET /healthz", "GET /readyz", "GET /metrics"] {
        assert_eq!(worker.send(probe, "", b"").0, 200, "{probe}");
    }
}

#[tokio::test]
async fn nobody_of_its_user_reads_its_environment() {
    let team = Platform::new().await.team("tk_a").await;
    // Root reads everything, so that it runs as somebody else, in a folder that is open to them.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("slipway-worker");
    fs::copy(PROGRAM, &program).unwrap();
    let mut command = Command::new(program);
    command.env_clear().arg("serve").current_dir("/");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let worker = team.start(command, &[]);
    let owner = |part: &str| fs::metadata(format!("/proc/{}{part}", worker.id())).unwrap().uid();
    assert_ne!(
        fs::read_to_string(format!("/proc/{}/status", worker.id())).unwrap().lines().find(|line| line.starts_with("Uid:")),
        Some("Uid:\t0\t0\t0\t0")
    );
    // What may not be dumped belongs to root.
    assert_eq!(owner("/environ"), 0);
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
    sleep(Duration::from_millis(300));
    worker.terminate();
    sleep(Duration::from_millis(300));
    stream.write_all(b"\n1,").unwrap();
    assert_eq!(answer(stream).0, 201);
    assert!(worker.wait().success());
}
