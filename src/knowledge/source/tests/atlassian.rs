//! Jira against Backlot, whose answers were measured at Jira Cloud. Confluence's searches too; its REST v2 is played by a script,
//! because no server is to be had that speaks it; a client that was made from Atlassian's OpenAPI document checks the script.

use slipway_peers::Server;

use super::scripted::{Scripted, ScriptedAnswer, ScriptedRequest};
use super::*;

fn issue(at: usize, title: &str, content: &str, comments: &[&str]) -> Value {
    let comments: Vec<Value> = comments
        .iter()
        .map(|text| json!({"content": text, "author_email": "bob@acme.com", "author_name": "Bob", "created_ts": "2026-02-18T00:00:00Z"}))
        .collect();
    json!({"source_type": "jira", "doc_id": format!("i{at}"), "project": "platform", "title": title, "content": content, "comments": comments,
        "issuetype": "Task", "status": "Done", "created": "2026-02-17T02:20:00Z", "updated": "2026-02-17T03:00:00Z", "visibility": "public",
        "labels": ["reliability"], "author_email": "ava@acme.com", "key": format!("PLAT-{at}")})
}

fn backlot(documents: &[Value]) -> Server {
    slipway_peers::backlot(&documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"))
}

fn mounts(token: &str) -> Mounts {
    Mounts::with(&[("token", token)])
}

fn jira(server: &Server) -> Value {
    json!({"type": "jira", "base_url": format!("{}/atlassian", server.url()), "project_key": "PLAT", "credentials_secret": "s"})
}

#[tokio::test]
async fn issues_are_listed_in_pages_and_read_with_comments() {
    let mut issues: Vec<Value> = (2..=250).map(|at| issue(at, &format!("Issue {at}"), "Nothing.", &[])).collect();
    issues.push(issue(1, "Ingest <lag>", "Lag peaked at 21 minutes.", &["First comment.", "Second comment."]));
    let server = backlot(&issues);
    let source = mounts("admin-service-token").open(jira(&server));
    let items = listed(&*source).await;
    assert_eq!(items.len(), 250);
    let item = items.values().find(|item| item.filename == "PLAT-1.html").unwrap();
    assert!(item.uri.ends_with("/atlassian/browse/PLAT-1") && item.version.as_ref().unwrap().starts_with("2026-02-17"), "{item:?}");
    let page = String::from_utf8(content(&*source, item).await.unwrap()).unwrap();
    for expected in [
        "<h1>PLAT-1: Ingest &lt;lag&gt;</h1>",
        "Lag peaked at 21 minutes.",
        "First comment.",
        "Second comment.",
        "Bob, 2026-02-18",
        "reliability",
    ] {
        assert!(page.contains(expected), "{expected} in {page}");
    }
    let gone = content(&*source, &Item { key: "99999".into(), ..item.clone() }).await.unwrap_err();
    assert_eq!(gone.kind(), SourceErrorKind::Gone, "{gone}");

    let feed = source.incremental().unwrap();
    let changes = feed.changes(&feed.now().await.unwrap()).await.unwrap();
    assert!(!feed.tells_deletions() && changes.removed.is_empty() && changes.more, "{changes:?}");
}

/// An issue whose comments, `count` to an answer, all have this text and are without end.
async fn talkative(count: usize, text: String) -> (Scripted, Box<dyn Source>, Item) {
    let server = Scripted::start(move |asked, _| {
        if !asked.target.contains("/comment?") {
            return ScriptedAnswer::json(&json!({"id": "1", "key": "PLAT-1", "fields": {"summary": "Talk"}}));
        }
        let paragraph = json!({"type": "paragraph", "content": [{"type": "text", "text": text}]});
        let comment = json!({"author": {"displayName": "Bob"}, "created": "2026-02-18T00:00:00Z", "body": {"content": [paragraph]}});
        ScriptedAnswer::json(&json!({"comments": vec![comment; count], "total": 9000}))
    })
    .await;
    let source = mounts("t").open(json!({"type": "jira", "base_url": server.url, "project_key": "PLAT", "credentials_secret": "s"}));
    let (key, uri, filename) = ("1".to_owned(), "https://x/browse/PLAT-1".to_owned(), "PLAT-1.html".to_owned());
    (server, source, Item { key, uri, filename, content_type: None, version: None, size: None })
}

#[tokio::test]
async fn an_issue_of_endless_comments_ends_where_its_page_may() {
    // Sixteen of 2 MB fit into what is read of HTML.
    for (count, text, kept, requests) in [(4, "word ".repeat(400_000), 16, 6), (50, "word".to_owned(), 5000, 101)] {
        let (server, source, item) = talkative(count, text).await;
        let page = String::from_utf8(content(&*source, &item).await.unwrap()).unwrap();
        assert!(page.len() <= 32 << 20, "{} bytes", page.len());
        assert_eq!((page.matches("<h3>Bob").count(), server.asked().len()), (kept, requests));
        let end = format!("<p>Of 9000 comments, the first {kept} are on this page; the rest was left out.</p>\n</body></html>\n");
        assert!(page.ends_with(&end), "{}", &page[page.len() - 200..]);
    }
}

#[tokio::test]
async fn credentials_that_jira_forgets_do_not_empty_the_index() {
    let server = backlot(&[issue(1, "One", "Nothing.", &[])]);
    // Jira answers strangers with what anybody may see: 200, and no issues.
    let error = traversed(&*mounts("expired").open(jira(&server))).await.unwrap_err();
    assert!(matches!(error.wrong_field(), Some("credentials_secret" | "project_key")), "{error}");
    assert!(!error.to_string().contains("expired"), "{error}");

    let forgets = |header: &'static str| {
        move |asked: &ScriptedRequest, before: usize| match before {
            0 => ScriptedAnswer::json(&json!({"values": [{"id": "1", "key": "PLAT"}]})),
            1 => ScriptedAnswer::json(
                &json!({"issues": [{"id": "1", "key": "PLAT-1", "fields": {}}], "nextPageToken": "t", "isLast": false}),
            ),
            _ if asked.target.contains("/project/search?keys=PLAT") => ScriptedAnswer::json(&json!({"values": []})),
            _ => ScriptedAnswer(format!("200 OK{header}"), json!({"issues": [], "isLast": true}).to_string().into_bytes()),
        }
    };
    for (header, field) in [("\r\nX-Seraph-LoginReason: AUTHENTICATED_FAILED", "credentials_secret"), ("", "project_key")] {
        let server = Scripted::start(forgets(header)).await;
        let source = mounts("t").open(json!({"type": "jira", "base_url": server.url, "project_key": "PLAT", "credentials_secret": "s"}));
        let error = traversed(&*source).await.unwrap_err();
        assert_eq!(error.wrong_field(), Some(field), "{error}");
    }
}

#[tokio::test]
async fn jira_is_asked_as_it_documents() {
    let server = Scripted::start(|asked, _| match asked.target.as_str() {
        "/rest/api/3/myself" => ScriptedAnswer::json(&json!({"accountId": "1"})),
        _ => ScriptedAnswer::json(&json!({"issues": [], "isLast": true})),
    })
    .await;
    let mounts = Mounts::with(&[("email", "ava@acme.com"), ("api_token", "abc")]);
    let source = mounts.open(json!({"type": "jira", "base_url": server.url, "jql": "labels = x", "credentials_secret": "s"}));
    assert_eq!(listed(&*source).await.len(), 0);
    source.incremental().unwrap().changes(&ChangeCursor(r#"{"since":{"from":0}}"#.into())).await.unwrap();
    let asked = server.asked();
    let targets: Vec<(&str, &str)> = asked.iter().map(|asked| (asked.method.as_str(), asked.target.as_str())).collect();
    let search = ("POST", "/rest/api/3/search/jql");
    let user = ("GET", "/rest/api/3/myself");
    assert_eq!(targets, [user, search, user, search, user]);
    assert_eq!(asked[1].headers["authorization"], "Basic YXZhQGFjbWUuY29tOmFiYw==");
    let jql = |at: usize| serde_json::from_str::<Value>(&asked[at].body).unwrap()["jql"].as_str().unwrap().to_owned();
    assert_eq!(jql(1), "(labels = x) ORDER BY created ASC, key ASC");
    assert!(jql(3).starts_with("(labels = x) AND updated >= \"-") && jql(3).contains("m\" ORDER BY"), "{}", jql(3));
}

fn page(id: usize, version: u64) -> Value {
    json!({"id": id.to_string(), "status": "current", "title": format!("Page {id}"), "spaceId": "77", "version": {"number": version},
        "_links": {"webui": format!("/spaces/ENG/pages/{id}/Page")}})
}

/// Confluence's REST v2 with a space of `pages`, 50 to an answer, the first with two attachments.
fn confluence(pages: usize, media: String) -> impl Fn(&ScriptedRequest, usize) -> ScriptedAnswer {
    move |asked, _| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        match path.strip_prefix("/wiki/api/v2/").unwrap_or(path) {
            "spaces" if query.contains("keys=ENG") => ScriptedAnswer::json(&json!({"results": [{"id": "77", "key": "ENG"}], "_links": {}})),
            "spaces" => ScriptedAnswer::json(&json!({"results": [], "_links": {}})),
            "spaces/77/pages" => {
                let start = query.split("cursor=c").nth(1).and_then(|at| at.split('&').next()?.parse().ok()).unwrap_or(1);
                let results: Vec<Value> = (start..=pages).take(50).map(|id| page(id, 1)).collect();
                let next = (start + 50 <= pages).then(|| format!("/wiki/api/v2/spaces/77/pages?limit=50&cursor=c{}", start + 50));
                ScriptedAnswer::json(&json!({"results": results, "_links": {"next": next, "base": "https://x/wiki"}}))
            }
            "pages/1/attachments" => ScriptedAnswer::json(&json!({"results": [
                {"id": "att9", "title": "plan.pdf", "mediaType": "application/pdf", "fileSize": 4, "version": {"number": 3}, "webuiLink": "/x",
                    "downloadLink": "/rest/api/content/1/child/attachment/att9/download"},
                {"id": "att10", "title": "logo.png", "mediaType": "image/png", "fileSize": 4, "version": {"number": 1}}], "_links": {}})),
            "attachments/att9" => ScriptedAnswer::json(&json!({"id": "att9", "title": "plan.pdf", "mediaType": "application/pdf",
                "downloadLink": "/rest/api/content/1/child/attachment/att9/download"})),
            "/wiki/rest/api/content/1/child/attachment/att9/download" => {
                ScriptedAnswer::status(&format!("302 Found\r\nLocation: {media}/file"))
            }
            "pages/1" => ScriptedAnswer::json(
                &json!({"id": "1", "title": "Page & 1", "body": {"view": {"value": "<p>Text</p>", "representation": "view"}}}),
            ),
            path if path.ends_with("/attachments") => ScriptedAnswer::json(&json!({"results": [], "_links": {}})),
            _ => ScriptedAnswer::status("404 Not Found"),
        }
    }
}

#[tokio::test]
async fn pages_of_a_space_come_with_their_documents() {
    let media = Scripted::start(|_, _| ScriptedAnswer("200 OK\r\nContent-Type: application/pdf".into(), b"%PDF".to_vec())).await;
    let server = Scripted::start(confluence(120, media.url.clone())).await;
    let config = |space: &str| json!({"type": "confluence", "space_key": space, "base_url": server.url, "credentials_secret": "s"});
    let source = mounts("t").open(config("ENG"));
    let items = listed(&*source).await;
    assert_eq!(items.len(), 121);
    let (one, plan) = (&items["1"], &items["att9"]);
    assert_eq!((one.filename.as_str(), one.version.as_deref()), ("Page 1.html", Some("1")));
    assert_eq!(one.uri, format!("{}/wiki/spaces/ENG/pages/1/Page", server.url));
    assert_eq!((plan.filename.as_str(), plan.version.as_deref(), plan.size), ("plan.pdf", Some("3"), Some(4)));
    let html = String::from_utf8(content(&*source, one).await.unwrap()).unwrap();
    assert!(html.contains("<h1>Page &amp; 1</h1>\n<p>Text</p>"), "{html}");
    assert_eq!(content(&*source, plan).await.unwrap(), b"%PDF");
    assert!(!media.asked()[0].headers.contains_key("authorization"), "the media host gets no credentials");
    assert_eq!(content(&*source, &items["2"]).await.unwrap_err().kind(), SourceErrorKind::Gone);
    let error = traversed(&*mounts("t").open(config("NONE"))).await.unwrap_err();
    assert_eq!(error.wrong_field(), Some("space_key"), "{error}");
}

#[tokio::test]
async fn a_search_of_confluence_tells_changed_pages() {
    let page = |at: usize| {
        json!({"source_type": "confluence", "doc_id": format!("c{at}"), "space": "handbook", "title": format!("Page {at}"), "content": "Text.",
            "subtype": "page", "created": "2026-01-06T09:00:00Z", "updated": "2026-01-06T09:00:00Z", "version_number": 2, "visibility": "public", "author_email": "ava@acme.com"})
    };
    let server = backlot(&(0..130).map(page).collect::<Vec<_>>());
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let spaces =
        client.get(format!("{}/atlassian/wiki/rest/api/space", server.url())).header("authorization", "Bearer admin-service-token");
    let spaces: Value = serde_json::from_str(&spaces.send().await.unwrap().text().await.unwrap()).unwrap();
    let key = spaces["results"][0]["key"].as_str().unwrap();
    let base = format!("{}/atlassian", server.url());
    let source =
        mounts("admin-service-token").open(json!({"type": "confluence", "space_key": key, "base_url": base, "credentials_secret": "s"}));
    let feed = source.incremental().unwrap();
    let (mut seen, mut at) = (BTreeMap::new(), feed.now().await.unwrap());
    loop {
        let changes = feed.changes(&at).await.unwrap();
        seen.extend(changes.changed.into_iter().map(|item| (item.key.clone(), item)));
        at = changes.next;
        if !changes.more {
            break;
        }
    }
    assert_eq!(seen.len(), 130);
    assert!(seen.values().all(|item| item.version.as_deref() == Some("2") && item.filename.starts_with("Page ")), "{seen:?}");
}

#[tokio::test]
async fn a_change_and_a_deletion_of_issues_are_seen() {
    let before = backlot(&[issue(1, "One", "Text.", &[]), issue(2, "Two", "Text.", &[]), issue(3, "Three", "Text.", &[])]);
    let mut changed = issue(1, "One, renamed", "Text.", &[]);
    changed["updated"] = json!("2026-03-01T00:00:00Z");
    let after = backlot(&[changed, issue(3, "Three", "Text.", &[])]);
    let mounts = mounts("admin-service-token");
    let (before, after) = (listed(&*mounts.open(jira(&before))).await, listed(&*mounts.open(jira(&after))).await);
    let by_name = |items: &BTreeMap<String, Item>| -> BTreeMap<String, (String, Option<String>)> {
        items.values().map(|item| (item.filename.clone(), (item.key.clone(), item.version.clone()))).collect()
    };
    let (before, after) = (by_name(&before), by_name(&after));
    assert_eq!(after.keys().collect::<Vec<_>>(), ["PLAT-1.html", "PLAT-3.html"]);
    assert_eq!(before["PLAT-3.html"], after["PLAT-3.html"]);
    assert_eq!(before["PLAT-1.html"].0, after["PLAT-1.html"].0, "the same issue");
    assert_ne!(before["PLAT-1.html"].1, after["PLAT-1.html"].1, "another version");
}

/// The script that plays REST v2 answers as Atlassian's OpenAPI document says: a client that checks each answer takes them.
#[tokio::test(flavor = "multi_thread")]
async fn what_plays_confluence_speaks_as_its_vendor_says() {
    let server = Scripted::start(confluence(120, String::new())).await;
    let output = slipway_peers::confluence_client(&server.url, "ENG", "1", "att9");
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let expected = json!([50, "<p>Text</p>", 2, "/rest/api/content/1/child/attachment/att9/download"]);
    assert_eq!(serde_json::from_str::<Value>(&said).ok(), Some(expected), "{said}{failed}");
    // It is asked what the source asks.
    let asked = server.asked();
    assert!(asked.iter().all(|asked| asked.target.starts_with("/wiki/api/v2/")), "{asked:?}");
}
