//! Marks in a real PostgreSQL, sent to a real MLflow server and read back by MLflow's own client.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use slipway_api::ids;
use slipway_database::{Marked, NewMessage, Options, PodRun, Reader, Role, Store, Turn};
use slipway_mlflow::trace_id;
use slipway_peers::{Postgres, Server};
use tokio::time::timeout;

use super::*;
use crate::database::DatabaseUrl;
use crate::tenancy::Wanted;
use crate::testing::{context_with, send_spans};

const OWN: &str = "tr_01ARZ3NDEKTSV4RRFFQ69G5FAV";
const OTHERS: &str = "tr_01ARZ3NDEKTSV4RRFFQ69G5FAW";
const NO_ULID: &str = "tr_1";

/// A new manager, which remembers nothing.
async fn delivery(postgres: &Postgres) -> FeedbackDelivery {
    let tenancy = Tenancy::open(&DatabaseUrl::parse(&postgres.url()).unwrap(), Wanted::Shared, b"a key").unwrap();
    tenancy.migrate().await.unwrap();
    let nobody =
        tower::service_fn(async |_: http::Request<Body>| Err::<http::Response<Body>, _>(std::io::Error::other("there is no cluster")));
    FeedbackDelivery::new(context_with(Client::new(nobody, "default"), Some(tenancy)))
}

impl FeedbackDelivery {
    fn configure(&self, uri: &str) {
        let data = Some([("mlflow_uri".to_owned(), uri.to_owned())].into());
        self.context.caches.platform.note(Some(&ConfigMap { data, ..ConfigMap::default() }));
    }

    async fn once(&self) -> Result<bool, Trouble> {
        self.batch(self.context.tenancy.as_ref().unwrap()).await
    }

    /// MLflow may be at work still on what a killed manager has sent, and fails then.
    async fn in_the_end(&self, postgres: &Postgres) {
        for _ in 0..20 {
            wait_is_over(postgres);
            match self.once().await {
                Ok(is_full) => return assert!(!is_full),
                Err(_) => sleep(Duration::from_millis(300)).await,
            }
        }
        panic!("MLflow takes nothing");
    }

    fn counted(&self, outcome: &'static str) -> u64 {
        self.context.metrics.feedback_deliveries.get_or_create(&ByOutcome { outcome }).get()
    }
}

async fn talk(postgres: &Postgres, trace: &str) {
    let (url, team, agent_id) = (postgres.url(), ids::team("a"), ids::agent("team-a", "helper"));
    let (password, sslmode, run) = (None, None, PodRun::default());
    let store = Store::open(&Options { url, password, sslmode, team, agent_id, migrate: false, prepared_statements: false, run }).unwrap();
    let turn = Turn::new(trace);
    store.begin_turn(&turn, "t", NewMessage::new(Role::User, "what?").with_trace(trace), 0).await.unwrap();
    store.finish_turn(&turn, vec![NewMessage::new(Role::Assistant, "yes").with_trace(trace)]).await.unwrap();
}

async fn mark(postgres: &Postgres, trace: &str, value: f64, comment: &str) {
    let records = Reader::open(&postgres.url(), None, None).unwrap().of(&ids::team("a"), &ids::agent("team-a", "helper"), "a").unwrap();
    let (user, name, comment) = ("user_1".to_owned(), "helpful".to_owned(), Some(comment.to_owned()));
    let given = Feedback { user, trace: Some(trace.to_owned()), name, value, comment, ..Feedback::default() };
    assert!(matches!(records.give_feedback(&given).await, Ok(Marked::Recorded { .. })));
}

/// As if the time for which marks wait were over.
fn wait_is_over(postgres: &Postgres) {
    postgres.psql("UPDATE slipway.feedback SET due_at = now() - interval '1 min' WHERE due_at IS NOT NULL");
}

fn due(postgres: &Postgres) -> String {
    postgres.psql("SELECT string_agg(trace_id, ' ' ORDER BY trace_id) FROM slipway.feedback WHERE due_at IS NOT NULL").trim().to_owned()
}

/// The assessments of a trace: name, value, rationale and source.
fn seen(server: &Server, trace: &str) -> Value {
    let script = slipway_peers::repository().join("src/mlflow/tests/read.py");
    let output = slipway_peers::python(&script, &[server.url(), "helper"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = seen["traces"][trace_id(trace).unwrap()].as_array().unwrap().clone();
    of.iter().map(|one| json!([one["name"], one["value"], one["rationale"], one["source"]])).collect()
}

#[tokio::test]
async fn a_mark_reaches_mlflow_once_whatever_is_away_or_killed() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (postgres, server) = (Postgres::start(), slipway_peers::mlflow());
    let address = server.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let first = delivery(&postgres).await;
    for trace in [OWN, OTHERS, NO_ULID] {
        talk(&postgres, trace).await;
        mark(&postgres, trace, 0.5, "vague").await;
    }
    let all = format!("{OWN} {OTHERS} {NO_ULID}");
    wait_is_over(&postgres);

    // There is no server, or it is away.
    assert!(matches!(first.once().await, Ok(false)));
    first.configure(&format!("http://127.0.0.1:{}", slipway_peers::free_port()));
    assert!(matches!(first.once().await, Err(Trouble::Mlflow(Fault::Unreachable(_)))));
    assert_eq!(due(&postgres), all);

    // The traces are not there, or another agent's.
    let experiment = Mlflow::new(server.url(), None).unwrap().experiment("helper").await.unwrap();
    send_spans(&address, &experiment, &ids::agent("team-b", "helper"), &[OTHERS]).await;
    first.configure(server.url());
    assert!(matches!(first.once().await, Ok(false)));
    assert_eq!((first.counted("no_trace"), first.counted("delivered"), due(&postgres)), (3, 0, all));
    assert!(matches!(first.once().await, Ok(false)));
    assert_eq!(first.counted("no_trace"), 3, "they wait");
    send_spans(&address, &experiment, &ids::agent("team-a", "helper"), &[OWN]).await;

    // Managers are killed at every point of it.
    wait_is_over(&postgres);
    for milliseconds in [5, 10, 20, 40, 60, 80] {
        let killed = delivery(&postgres).await;
        killed.configure(server.url());
        drop(timeout(Duration::from_millis(milliseconds), killed.once()).await);
    }
    let rest = format!("{OTHERS} {NO_ULID}");
    first.in_the_end(&postgres).await;
    assert_eq!(due(&postgres), rest);
    assert_eq!(seen(&server, OWN), json!([["helpful", 0.5, "vague", ["HUMAN", "user_1"]]]));
    assert_eq!(seen(&server, OTHERS), json!([]));

    // What MLflow has is not sent again, and what has changed is.
    let delivered = first.counted("delivered");
    first.in_the_end(&postgres).await;
    assert_eq!(first.counted("delivered"), delivered);
    mark(&postgres, OWN, 1.0, "better").await;
    first.in_the_end(&postgres).await;
    assert_eq!((first.counted("delivered"), due(&postgres)), (delivered + 1, rest));
    assert_eq!(seen(&server, OWN), json!([["helpful", 1.0, "better", ["HUMAN", "user_1"]]]));
}
