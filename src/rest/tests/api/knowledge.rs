//! Knowledge bases: the way to a team's worker, uploads, and jobs. The worker is another server on a port of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use slipway_http::{BodyLimits, Error, Reply, Request, ServerLimits};
use slipway_rest::{Authentication, RestSettings, Sign};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::{Api, settings};

const MIB: usize = 1024 * 1024;
const FILE_HEAD: &str = "Content-Disposition: form-data; name=\"file\"; filename=\"Größe.pdf\"\r\nContent-Type: application/pdf";

/// What a worker was asked: method and path, file name, token, and the bytes of a body that was whole.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    line: String,
    filename: String,
    token: String,
    bytes: Option<usize>,
}

#[derive(Clone, Default)]
struct Worker(Arc<Mutex<Vec<Asked>>>);

impl Worker {
    fn asked(&self) -> Vec<Asked> {
        self.0.lock().unwrap().clone()
    }

    async fn answer(&self, request: Request) -> Result<Reply, Error> {
        let mut query = request.query()?;
        let source = query.text("source").map(|source| format!("?source={source}")).unwrap_or_default();
        let line = format!("{} {}{source}", request.method(), request.path());
        let header = |name: &str| request.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let (filename, token) = (header("x-filename"), header("x-slipway-token"));
        let limits = BodyLimits { bytes: 101 << 20, pause: Duration::from_secs(20), total: Duration::from_mins(1) };
        let mut body = request.into_body(limits);
        let mut length = 0;
        let bytes = loop {
            match body.next().await {
                Ok(Some(piece)) => length += piece.len(),
                Ok(None) => break Some(length),
                Err(_) => break None,
            }
        };
        self.0.lock().unwrap().push(Asked { line: line.clone(), filename, token, bytes });
        match line.as_str() {
            "POST /knowledge-bases/kb_docs/search" => Reply::json(&json!({"results": [{
                "content": "Open the lid.", "score": 0.9,
                "metadata": {"source": "s3://docs/a.pdf", "page": 3, "chunk_id": "chunk_1", "document_id": "doc_1", "filename": "a.pdf", "section": ["Care"]},
            }]})),
            "GET /knowledge-bases/kb_docs/documents" => Reply::json(&json!({"documents": [{
                "id": "doc_1", "filename": "a.pdf", "content_type": "application/pdf", "status": "ready", "pages": 3, "chunk_count": 7,
                "error": null, "source": "manuals", "created_at": "2026-01-01T00:00:00Z",
            }], "next": "doc_1"})),
            "DELETE /knowledge-bases/kb_docs/documents?source=manuals" => Reply::json(&json!({"removed": 7})),
            "DELETE /knowledge-bases/kb_docs/documents/doc_1" => Ok(Reply::text("").with_status(StatusCode::NO_CONTENT)),
            "GET /readyz" => Ok(Reply::text("ok\n")),
            "POST /knowledge-bases/kb_docs/uploads" => Ok(Reply::json(&json!({"upload": "up_1"}))?.with_status(StatusCode::CREATED)),
            _ => Err(Error::not_found("there is no such document")),
        }
    }
}

/// An API with knowledge base `docs` of team `a`, and a worker on a port.
async fn api() -> (Api, Worker) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agent_address = Some(format!("http://{}", listener.local_addr().unwrap()));
    let worker = Worker::default();
    let serving = worker.clone();
    let handler = move |request| {
        let worker = serving.clone();
        async move { worker.answer(request).await }
    };
    tokio::spawn(slipway_http::serve(listener, ServerLimits::default(), handler, std::future::pending()));
    let sign = Some(Sign::new(|audience| Some(format!("for-{audience}"))));
    let api = Api::start(RestSettings { agent_address, sign, ..settings() }, Authentication::Off).await;
    let made = api.call(Method::POST, "/knowledge-bases", &[], Some(json!({"name": "Docs"}))).await;
    assert_eq!(made.status, 201, "{}", made.body);
    (api, worker)
}

/// The Service that the operator would create, owned by the object with this UID.
fn service(api: &Api, uid: &Value) {
    let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "name": "a", "uid": uid, "controller": true});
    let service = json!({
        "metadata": {"name": "slipway-worker", "ownerReferences": [owner]},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "selector": {"app.kubernetes.io/name": "slipway-worker"}},
    });
    api.cluster.make("/api/v1/namespaces/team-a/services", service);
}

async fn with_worker() -> (Api, Worker) {
    let (api, worker) = api().await;
    service(&api, &api.cluster.objects("/teams/a")[0]["metadata"]["uid"].clone());
    (api, worker)
}

fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let part = |(head, data): &(&str, &[u8])| [b"--b\r\n", head.as_bytes(), b"\r\n\r\n", data, b"\r\n"].concat();
    [parts.iter().flat_map(part).collect(), b"--b--\r\n".to_vec()].concat()
}

async fn send(api: &Api, body: Vec<u8>) -> (StatusCode, Value) {
    send_with(api, body, &[]).await
}

async fn send_with(api: &Api, body: Vec<u8>, headers: &[(&str, &str)]) -> (StatusCode, Value) {
    let mut request = api.http.post(format!("http://{}/api/v1/knowledge-bases/docs/ingest", api.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.header("content-type", "multipart/form-data; boundary=b").body(body).send().await.unwrap();
    (answer.status(), serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

fn ingestions(api: &Api) -> Vec<Value> {
    api.cluster.objects("/namespaces/team-a/ingestions/")
}

#[tokio::test]
async fn a_test_of_the_platform_asks_the_worker_of_each_team() {
    let (api, worker) = api().await;
    let tested = async |wanted: &str| {
        // The list of bases is told of the one that was made in a moment.
        for _ in 0..100 {
            let found = api.call(Method::POST, "/platform/config/test", &[], None).await.body["data"]["workers"].clone();
            if found["status"] == wanted {
                return found["message"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no test finds the workers to be {wanted}")
    };
    let none = tested("error").await;
    assert!(none.starts_with("0 of 1 workers are ready; the worker of team a") && none.contains("no Service"), "{none}");
    service(&api, &api.cluster.objects("/teams/a")[0]["metadata"]["uid"].clone());
    assert_eq!(tested("ok").await, "1 of 1 workers are ready");
    assert!(worker.asked().iter().all(|asked| asked.line == "GET /readyz" && asked.token.is_empty()), "{:?}", worker.asked());
}

#[tokio::test]
async fn a_knowledge_base_is_made_replaced_and_deleted() {
    let (api, _) = api().await;
    let got = api.call(Method::GET, "/knowledge-bases/kb_docs", &[], None).await;
    let data = &got.body["data"];
    for (field, value) in [
        ("id", json!("kb_docs")),
        ("slug", json!("docs")),
        ("status", json!("empty")),
        ("embedding_dim", json!(null)),
        ("document_count", json!(0)),
        ("chunk_count", json!(0)),
        ("chunk_size", json!(512)),
        ("chunk_overlap", json!(50)),
    ] {
        assert_eq!(data[field], value, "{field}: {data}");
    }
    let source = json!({"name": "wiki", "type": "google-drive", "folder_id": "f1"});
    let body = json!({"name": "Docs", "chunk_size": 256, "sources": [source]});
    let changed = api.call(Method::PUT, "/knowledge-bases/docs", &[], Some(body)).await;
    assert_eq!((changed.status.as_u16(), &changed.body["data"]["sources"]), (200, &json!([source])), "{}", changed.body);
    let version = changed.headers["x-resource-version"].to_str().unwrap().to_owned();
    let listed = api.call(Method::GET, "/knowledge-bases?search=docs", &[("x-resource-version", &version)], None).await;
    assert_eq!(listed.body["data"], json!([changed.body["data"]]));
    let deleted = api.call(Method::DELETE, "/knowledge-bases/kb_docs", &[], None).await;
    assert_eq!(deleted.body["data"], json!({"id": "kb_docs", "deleted": true}));
    assert_eq!(api.call(Method::GET, "/knowledge-bases/docs", &[], None).await.status, 404);
}

#[tokio::test]
async fn without_a_worker_of_the_team_content_is_a_503() {
    let (api, worker) = api().await;
    let search = || api.call(Method::POST, "/knowledge-bases/docs/search", &[], Some(json!({"query": "lid"})));
    let refused = search().await;
    assert!(
        refused.status == 503 && refused.body["message"].as_str().unwrap().contains("no Service slipway-worker yet"),
        "{}",
        refused.body
    );
    service(&api, &json!("another team's"));
    let refused = search().await;
    assert!(refused.status == 503 && refused.body["message"].as_str().unwrap().contains("does not belong to the Team"), "{}", refused.body);
    let (status, refused) = send(&api, form(&[(FILE_HEAD, b"x")])).await;
    assert_eq!(status, 503, "{refused}");
    assert_eq!((worker.asked(), ingestions(&api).len()), (Vec::new(), 0));
    // What needs no worker goes on.
    let begun = api.call(Method::POST, "/knowledge-bases/docs/ingest", &[], Some(json!({"source": {"type": "local", "path": "."}}))).await;
    assert_eq!(begun.status, 202, "{}", begun.body);
}

#[tokio::test]
async fn content_is_what_the_worker_answers() {
    let (api, worker) = with_worker().await;
    let found = api.call(Method::POST, "/knowledge-bases/docs/search", &[], Some(json!({"query": "lid", "top_k": 3}))).await;
    assert_eq!((found.status.as_u16(), &found.body["data"]["results"][0]["metadata"]["page"]), (200, &json!(3)), "{}", found.body);
    let listed = api.call(Method::GET, "/knowledge-bases/kb_docs/documents?limit=1", &[], None).await;
    assert_eq!((&listed.body["data"][0]["id"], &listed.body["next_cursor"]), (&json!("doc_1"), &json!("doc_1")), "{}", listed.body);
    assert_eq!(listed.body["data"][0]["notes"], json!([]), "a worker of a former version tells none: {}", listed.body);
    let deleted = api.call(Method::DELETE, "/knowledge-bases/docs/documents/doc_1", &[], None).await;
    assert_eq!(deleted.body["data"], json!({"id": "doc_1", "deleted": true}));
    assert_eq!(api.call(Method::DELETE, "/knowledge-bases/docs/documents/doc_2", &[], None).await.status, 404);
    let deleted = api.call(Method::DELETE, "/knowledge-bases/docs/documents?source=manuals", &[], None).await;
    assert_eq!(deleted.body["data"], json!({"source": "manuals", "deleted_count": 7}), "{}", deleted.body);
    let asked = worker.asked().len();
    for query in ["", "?source=", "?source=No%20name", "?source=manuals&all=true", "?source=manuals&source=notes"] {
        let refused = api.call(Method::DELETE, &format!("/knowledge-bases/docs/documents{query}"), &[], None).await;
        assert_eq!(refused.status, 400, "{query}: {}", refused.body);
    }
    assert_eq!(worker.asked().len(), asked, "no worker was asked for what is no source");
    assert!(worker.asked().iter().all(|asked| asked.token == "for-tk_a"), "{:?}", worker.asked());
    let before = worker.asked().len();
    for (path, body, status) in [
        ("/knowledge-bases/docs/search", json!({"query": ""}), 400),
        ("/knowledge-bases/docs/search", json!({"query": "x", "top_k": 0}), 400),
        ("/knowledge-bases/other/search", json!({"query": "x"}), 404),
    ] {
        assert_eq!(api.call(Method::POST, path, &[], Some(body)).await.status, status, "{path}");
    }
    assert_eq!(worker.asked().len(), before);
}

#[tokio::test]
async fn a_file_is_passed_on_and_becomes_a_job() {
    let (api, worker) = with_worker().await;
    let data: Vec<u8> = (0..3 * MIB).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let (status, begun) = send(&api, form(&[(FILE_HEAD, &data)])).await;
    assert_eq!((status.as_u16(), &begun["data"]["status"]), (202, &json!("pending")), "{begun}");
    let asked = worker.asked();
    let whole = Asked {
        line: "POST /knowledge-bases/kb_docs/uploads".to_owned(),
        filename: "Gr%C3%B6%C3%9Fe%2Epdf".to_owned(),
        token: "for-tk_a".to_owned(),
        bytes: Some(data.len()),
    };
    assert_eq!(asked, [whole]);
    let job = &ingestions(&api)[0];
    assert_eq!((&job["spec"]["upload"], &job["spec"]["knowledgeBase"]), (&json!("up_1"), &json!("docs")), "{job}");
    assert_eq!(begun["data"]["job_id"], job["metadata"]["name"]);
}

#[tokio::test]
async fn an_upload_that_is_repeated_makes_one_job() {
    let (api, worker) = with_worker().await;
    let (first, again) = {
        let send = || send_with(&api, form(&[(FILE_HEAD, b"a,b")]), &[("idempotency-key", "upload-1")]);
        (send().await, send().await)
    };
    assert_eq!((first.0.as_u16(), again.0.as_u16()), (202, 202), "{} {}", first.1, again.1);
    assert_eq!(first.1["data"]["job_id"], again.1["data"]["job_id"]);
    assert_eq!((worker.asked().len(), ingestions(&api).len()), (1, 1));
}

#[tokio::test]
async fn a_form_without_exactly_one_file_becomes_no_job() {
    let (api, worker) = with_worker().await;
    let other = "Content-Disposition: form-data; name=\"note\"";
    let large = vec![b'x'; MIB];
    let broken = |from: &str, to: &str| {
        let whole = String::from_utf8(form(&[(FILE_HEAD, b"some text")])).unwrap();
        whole.replace(from, to).into_bytes()
    };
    for (name, body, says) in [
        ("no part", form(&[]), "no file"),
        ("another part", form(&[(other, b"x")]), "\"note\""),
        ("no filename", form(&[("Content-Disposition: form-data; name=\"file\"", b"x")]), "no filename"),
        ("two files", form(&[(FILE_HEAD, &large), (FILE_HEAD, b"y")]), "one part only"),
        ("a part besides", form(&[(FILE_HEAD, &large), (other, b"y")]), "one part only"),
        ("an empty file", form(&[(FILE_HEAD, b"")]), "empty"),
        ("another boundary", broken("--b", "--c"), "boundary"),
        ("no last boundary", broken("--b--", "--c--"), "last boundary"),
        ("an endless head", [b"--b\r\nX: ", &large[..]].concat(), "at most 8192 bytes"),
        ("a long name", broken("Größe", &"x".repeat(300)), "at most 255 bytes"),
        ("a name that is a path alone", broken("Größe.pdf", "../.."), "no name"),
    ] {
        let (status, refused) = send(&api, body).await;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(says), "{name}: {status} {refused}");
    }
    assert!(worker.asked().iter().all(|asked| asked.bytes.is_none()), "a worker took a form that was refused: {:?}", worker.asked());
    assert_eq!(ingestions(&api).len(), 0);
}

#[tokio::test]
async fn a_file_of_100_mib_is_taken_and_one_byte_more_is_not() {
    let (api, worker) = with_worker().await;
    for (length, status) in [(100 * MIB, 202), (100 * MIB + 1, 413)] {
        assert_eq!(send(&api, form(&[(FILE_HEAD, &vec![b'x'; length])])).await.0.as_u16(), status, "{length} bytes");
    }
    let bytes: Vec<_> = worker.asked().iter().map(|asked| asked.bytes).collect();
    // Where its length says so, the larger one does not get as far as the worker.
    assert!(bytes[0] == Some(100 * MIB) && bytes[1..].iter().all(Option::is_none), "{bytes:?}");
    // What is known to be too large is refused before it is sent.
    let mut stream = begun(&api, 101 * MIB).await;
    let mut head = [0; 12];
    timeout(Duration::from_secs(10), stream.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&head), "HTTP/1.1 413");
    assert_eq!(ingestions(&api).len(), 1);
}

/// An upload whose body is still to come.
async fn begun(api: &Api, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(api.address).await.unwrap();
    let head = format!(
        "POST /api/v1/knowledge-bases/docs/ingest HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn slow_uploads_hold_up_nobody_and_may_break_off() {
    let (api, worker) = with_worker().await;
    let whole = form(&[(FILE_HEAD, b"a,b\n1,2")]);
    let (first, rest) = whole.split_at(whole.len() - 10);
    let mut slow = begun(&api, whole.len()).await;
    slow.write_all(first).await.unwrap();
    let mut gone = begun(&api, whole.len()).await;
    gone.write_all(first).await.unwrap();
    let found = api.call(Method::POST, "/knowledge-bases/docs/search", &[], Some(json!({"query": "lid"}))).await;
    assert_eq!(found.status, 200, "{}", found.body);
    drop(gone);
    let told = async {
        while !worker.asked().iter().any(|asked| asked.line.ends_with("/uploads")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), told).await.expect("the worker hears that an upload broke off");
    slow.write_all(rest).await.unwrap();
    let mut head = [0; 12];
    timeout(Duration::from_secs(10), slow.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&head), "HTTP/1.1 202");
    let uploads: Vec<_> = worker.asked().into_iter().filter(|asked| asked.line.ends_with("/uploads")).map(|asked| asked.bytes).collect();
    assert_eq!(uploads, [None, Some(7)]);
    assert_eq!(ingestions(&api).len(), 1);
}

#[tokio::test]
async fn jobs_belong_to_their_knowledge_base_and_can_be_cancelled() {
    let (api, _) = api().await;
    let sources = json!([{"name": "wiki", "type": "local", "path": "wiki"}]);
    let made = api.call(Method::POST, "/knowledge-bases", &[], Some(json!({"name": "Other", "sources": sources}))).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let ingest = async |base: &'static str, body: Value| api.call(Method::POST, base, &[("idempotency-key", base)], Some(body)).await;
    let first = ingest("/knowledge-bases/docs/ingest", json!({"source": {"type": "s3", "bucket": "docs", "prefix": "a/"}})).await;
    let again = ingest("/knowledge-bases/docs/ingest", json!({"source": {"type": "s3", "bucket": "docs", "prefix": "a/"}})).await;
    let other = ingest("/knowledge-bases/other/ingest", json!({"source_name": "wiki"})).await;
    assert_eq!([first.status, again.status, other.status], [StatusCode::ACCEPTED; 3], "{} {}", first.body, other.body);
    assert_eq!(first.body["data"], again.body["data"]);
    let id = first.body["data"]["job_id"].as_str().unwrap().to_owned();
    let version = other.headers["x-resource-version"].to_str().unwrap().to_owned();
    let listed = api.call(Method::GET, "/knowledge-bases/kb_docs/jobs?status=pending", &[("x-resource-version", &version)], None).await;
    let jobs = listed.body["data"].as_array().unwrap();
    assert_eq!((jobs.len(), &jobs[0]["job_id"]), (1, &json!(id)), "{}", listed.body);
    assert_eq!(jobs[0]["source"], json!({"type": "s3", "bucket": "docs", "prefix": "a/"}));
    let path = format!("/knowledge-bases/docs/jobs/{id}");
    let documents = json!({"seen": 9, "changed": 2, "unchanged": 6, "failed": 1, "removed": 0});
    let status = json!({"phase": "Running", "documents": documents, "errors": [{"document": "b.pdf", "message": "it is encrypted"}]});
    api.cluster.set(&format!("/apis/agents.slipway.dev/v1/namespaces/team-a/ingestions/{id}"), json!({"status": status}));
    let got = api.call(Method::GET, &path, &[], None).await;
    assert_eq!(got.body["data"]["status"], "running");
    assert_eq!((&got.body["data"]["documents"], &got.body["data"]["errors"]), (&documents, &status["errors"]), "{}", got.body);
    assert_eq!(api.call(Method::GET, &format!("/knowledge-bases/other/jobs/{id}"), &[], None).await.status, 404);
    let cancelled = api.call(Method::POST, &format!("{path}/cancel"), &[], None).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.body);
    assert!(ingestions(&api).iter().any(|job| job["metadata"]["name"] == id.as_str() && job["spec"]["cancel"] == true));
    api.cluster.set(&format!("/apis/agents.slipway.dev/v1/namespaces/team-a/ingestions/{id}"), json!({"status": {"phase": "Completed"}}));
    assert_eq!(api.call(Method::POST, &format!("{path}/cancel"), &[], None).await.status, 409);
}

#[tokio::test]
async fn content_takes_the_right_on_what_it_comes_down_to() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    let ada = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];
    for (lacks, method, path, body) in [
        (("get", "knowledgebases"), Method::POST, "/knowledge-bases/docs/search", Some(json!({"query": "x"}))),
        (("get", "knowledgebases"), Method::GET, "/knowledge-bases/docs/documents", None),
        (("patch", "knowledgebases"), Method::DELETE, "/knowledge-bases/docs/documents/doc_1", None),
        (("patch", "knowledgebases"), Method::DELETE, "/knowledge-bases/docs/documents?source=manuals", None),
        (("create", "ingestions"), Method::POST, "/knowledge-bases/docs/ingest", Some(json!({"source_name": "x"}))),
        (("list", "ingestions"), Method::GET, "/knowledge-bases/docs/jobs", None),
    ] {
        api.cluster.refuse(&[lacks]);
        let refused = api.call(method, path, &ada, body).await;
        assert_eq!(refused.status, 403, "{path} without {lacks:?}: {}", refused.body);
    }
}
