//! Against MiniLake, which plays Databricks' files and SQL statements.

use slipway_peers::Server;

use super::scripted::{Scripted, ScriptedAnswer};
use super::*;

struct Lake {
    server: Server,
    client: reqwest::Client,
}

impl Lake {
    fn new() -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        Self { server: slipway_peers::minilake(), client: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    async fn put(&self, path: &str, content: &str) {
        let request = self.client.put(format!("{}/api/2.0/fs/files/Volumes/main/default/docs/{path}", self.server.url()));
        assert!(request.body(content.to_owned()).send().await.unwrap().status().is_success(), "{path}");
    }

    async fn delete(&self, path: &str) {
        let request = self.client.delete(format!("{}/api/2.0/fs/files/Volumes/main/default/docs/{path}", self.server.url()));
        assert!(request.send().await.unwrap().status().is_success(), "{path}");
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(format!("{}/api/{path}", self.server.url())).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

fn config(host: &str, path: &str, warehouse: Option<&str>) -> Value {
    let mut config = json!({"type": "databricks", "host": host, "path": path, "credentials_secret": "s"});
    if let Some(warehouse) = warehouse {
        config["warehouse_id"] = json!(warehouse);
    }
    config
}

#[tokio::test]
async fn a_change_a_rename_and_a_deletion_in_a_volume() {
    let lake = Lake::new();
    let mounts = Mounts::with(&[("token", "dapi1")]);
    for path in ["a%20b.txt", "sub/c.txt", "sub/deep/d%23.txt", "e.txt"] {
        lake.put(path, path).await;
    }
    let source = mounts.open(config(lake.server.url(), "/Volumes/main/default/docs/", None));
    let before = listed(&*source).await;
    let root = "/Volumes/main/default/docs";
    let expected = |names: &[&str]| names.iter().map(|name| format!("{root}/{name}")).collect::<Vec<_>>();
    assert_eq!(keys(&before), expected(&["a b.txt", "e.txt", "sub/c.txt", "sub/deep/d#.txt"]));
    let item = &before[&format!("{root}/sub/deep/d#.txt")];
    assert_eq!(content(&*source, item).await.unwrap(), b"sub/deep/d%23.txt");
    lake.put("e.txt", "changed").await;
    lake.put("sub/f.txt", "sub/c.txt").await;
    lake.delete("sub/c.txt").await;
    lake.delete("a%20b.txt").await;
    let after = listed(&*source).await;
    assert_eq!(keys(&after), expected(&["e.txt", "sub/deep/d#.txt", "sub/f.txt"]));
    let key = format!("{root}/e.txt");
    assert_ne!(before[&key].version, after[&key].version);
    assert_eq!(content(&*source, &before[&format!("{root}/a b.txt")]).await.unwrap_err().kind(), SourceErrorKind::Gone);
    let error = traversed(&*mounts.open(config(lake.server.url(), "/Volumes/main/default/absent", None))).await.unwrap_err();
    assert_eq!(error.wrong_field(), Some("path"), "{error}");
}

#[tokio::test]
async fn a_table_becomes_a_csv_file() {
    let lake = Lake::new();
    let mounts = Mounts::with(&[("token", "dapi1")]);
    let warehouse = lake.post("2.0/sql/warehouses", &json!({"name": "w"})).await["id"].as_str().unwrap().to_owned();
    lake.post("2.1/unity-catalog/catalogs", &json!({"name": "trade"})).await;
    lake.post("2.1/unity-catalog/schemas", &json!({"name": "shop", "catalog_name": "trade"})).await;
    for statement in [
        "CREATE TABLE trade.shop.prices (tier STRING, price INT)",
        "INSERT INTO trade.shop.prices VALUES ('Small, but fine', 12), ('Large', 480)",
    ] {
        lake.post("2.0/sql/statements", &json!({"warehouse_id": warehouse, "statement": statement})).await;
    }
    let source = mounts.open(config(lake.server.url(), "trade.shop.prices", Some(&warehouse)));
    let items = listed(&*source).await;
    let item = &items["trade.shop.prices"];
    assert_eq!((item.filename.as_str(), &item.version), ("trade.shop.prices.csv", &None));
    let csv = String::from_utf8(content(&*source, item).await.unwrap()).unwrap();
    assert_eq!(csv.replace('\r', ""), "tier,price\n\"Small, but fine\",12\nLarge,480\n");
    for (path, warehouse, field) in
        [("trade.shop.prices", Some("absent"), "path"), ("trade.shop.prices", None, "warehouse_id"), ("trade.shop", Some("w"), "path")]
    {
        let opened = open(&serde_json::from_value(config(lake.server.url(), path, warehouse)).unwrap(), &mounts.surroundings());
        let error = match opened {
            Ok(source) => traversed(&*source).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.wrong_field(), Some(field), "{path} {warehouse:?}: {error}");
    }
}

#[tokio::test]
async fn a_result_in_pieces_is_put_together_without_the_token() {
    let storage = Scripted::start(|asked, _| {
        ScriptedAnswer("200 OK".into(), if asked.target == "/0" { b"a,b\n1,2\n".to_vec() } else { b"3,4\n".to_vec() })
    })
    .await;
    let url = storage.url.clone();
    let piece =
        move |at: u64| json!({"external_links": [{"external_link": format!("{url}/{at}"), "next_chunk_index": (at == 0).then_some(1)}]});
    let server = Scripted::start(move |asked, before| match (before, asked.target.as_str()) {
        (0, _) => ScriptedAnswer::json(&json!({"statement_id": "01ab-c", "status": {"state": "PENDING"}})),
        (1, "/api/2.0/sql/statements/01ab-c") => {
            ScriptedAnswer::json(&json!({"statement_id": "01ab-c", "status": {"state": "SUCCEEDED"}, "result": piece(0)}))
        }
        (2, "/api/2.0/sql/statements/01ab-c/result/chunks/1") => ScriptedAnswer::json(&piece(1)),
        _ => ScriptedAnswer::status("404 Not Found"),
    })
    .await;
    let source = Mounts::with(&[("token", "dapi1")]).open(config(&server.url, "a.b.c", Some("w")));
    let item =
        Item { key: "a.b.c".into(), uri: String::new(), filename: "a.b.c.csv".into(), content_type: None, version: None, size: None };
    assert_eq!(content(&*source, &item).await.unwrap(), b"a,b\n1,2\n3,4\n");
    assert!(server.asked().iter().all(|asked| asked.headers["authorization"] == "Bearer dapi1"));
    assert!(storage.asked().iter().all(|asked| !asked.headers.contains_key("authorization")));
}
