//! Conversations of agents without pods, from a real PostgreSQL.

use reqwest::Method;
use serde_json::{Value, json};
use slipway_database::{Category, NewMemory, NewMessage, Options, PodRun, Role, Store, Turn, migrate};
use slipway_peers::Postgres;
use slipway_rest::{Authentication, PlatformSettings, RestSettings};

use crate::{Api, ApiAnswer, settings};

async fn with(postgres: &Postgres) -> Api {
    let platform = PlatformSettings::new(None, Some(&postgres.url()));
    Api::start(RestSettings { platform, ..settings() }, Authentication::Off).await
}

/// Writes an agent's rows: one turn of one conversation, and one memory.
async fn talk(postgres: &Postgres, team: &str, agent: &str, text: &str) {
    let (url, team, agent_id) = (postgres.url(), team.to_owned(), agent.to_owned());
    let store = Store::open(&Options {
        url,
        password: None,
        sslmode: None,
        team,
        agent_id,
        migrate: false,
        prepared_statements: false,
        run: PodRun::default(),
    })
    .unwrap();
    let turn = Turn::new("conv_1");
    store.begin_turn(&turn, text, NewMessage::new(Role::User, text), 0).await.unwrap();
    store.finish_turn(&turn, vec![NewMessage::new(Role::Assistant, "yes").with_trace("tr_1")]).await.unwrap();
    let memory = NewMemory { content: text.to_owned(), category: Category::Fact, source: "conv_1".to_owned(), embedding: None };
    store.remember(memory).await.unwrap();
}

async fn get(api: &Api, path: &str) -> ApiAnswer {
    api.call(Method::GET, path, &[], None).await
}

async fn agent(api: &Api, name: &str, more: &[(&str, Value)]) -> String {
    let mut body = json!({"name": name, "framework": "custom"});
    body.as_object_mut().unwrap().extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let made = api.call(Method::POST, "/agents", &[], Some(body)).await;
    assert_eq!(made.status, 201, "{}", made.body);
    made.body["data"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_agent_that_rests_shows_its_own_words_and_nobody_elses() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let api = with(&postgres).await;
    let helper = agent(&api, "Helper", &[]).await;
    let quiet = agent(&api, "Quiet", &[]).await;
    talk(&postgres, "tk_a", &helper, "Do you know tea?").await;
    talk(&postgres, "tk_b", &helper, "another team").await;
    talk(&postgres, "tk_b", &quiet, "another team").await;

    for named in ["helper", &helper] {
        let listed = get(&api, &format!("/agents/{named}/conversations?limit=5&search=TEA")).await;
        let data = &listed.body["data"];
        assert_eq!((listed.status.as_u16(), data.as_array().unwrap().len()), (200, 1), "{}", listed.body);
        assert_eq!(
            (&data[0]["id"], &data[0]["title"], &data[0]["message_count"]),
            (&json!("conv_1"), &json!("Do you know tea?"), &json!(2))
        );
    }
    let one = get(&api, "/agents/helper/conversations/conv_1").await.body;
    let said: Vec<_> = one["data"]["messages"].as_array().unwrap().iter().map(|message| (&message["role"], &message["content"])).collect();
    assert_eq!(said, [(&json!("user"), &json!("Do you know tea?")), (&json!("assistant"), &json!("yes"))], "{one}");
    assert_eq!(get(&api, "/agents/helper/memory").await.body["data"][0]["content"], "Do you know tea?");

    assert_eq!(get(&api, "/agents/quiet/conversations").await.body["data"], json!([]));
    assert_eq!(get(&api, "/agents/quiet/memory").await.body["data"], json!([]));
    let none = get(&api, "/agents/quiet/conversations/conv_1").await;
    assert_eq!((none.status.as_u16(), none.body["message"].as_str()), (404, Some("there is no conversation conv_1")));
    for wrong in ["conversations?limit=201", "conversations?limti=1", "conversations?cursor=x", "memory?search=x"] {
        assert_eq!(get(&api, &format!("/agents/helper/{wrong}")).await.status, 400, "{wrong}");
    }
    let chat = api.call(Method::POST, "/agents/helper/chat", &[], Some(json!({"message": "hello"}))).await;
    assert_eq!(chat.status, 503, "{}", chat.body);

    postgres.stop();
    let away = get(&api, "/agents/helper/conversations").await;
    assert_eq!((away.status.as_u16(), away.headers["retry-after"].to_str().unwrap()), (503, "2"), "{}", away.body);
    postgres.restart();
    assert_eq!(get(&api, "/agents/helper/conversations").await.status, 200);
}

#[tokio::test]
async fn what_is_not_in_the_platforms_database_is_said_not_to_be() {
    let postgres = Postgres::start();
    migrate(&postgres.url(), None, None).await.unwrap();
    let (api, without) = (with(&postgres).await, Api::open().await);
    for (api, storage, own, says) in [
        (&api, "memory", None, "storage is memory"),
        (&api, "postgresql", Some("postgres://db.example.com/x"), "a database of its own"),
        (&without, "postgresql", None, "no connection to the database"),
    ] {
        let more = [Some(("storage", json!(storage))), own.map(|url| ("database_url", json!(url)))];
        agent(api, &format!("Agent {}", says.len()), &more.into_iter().flatten().collect::<Vec<_>>()).await;
        for path in ["conversations", "conversations/conv_1", "memory"] {
            let refused = get(api, &format!("/agents/agent-{}/{path}", says.len())).await;
            let message = refused.body["message"].as_str().unwrap();
            assert!(refused.status == 503 && message.contains(says) && message.contains("never been deployed"), "{path}: {message}");
        }
    }
}
