use std::pin::Pin;

use futures::stream;
use serde_json::json;
use slipway_database::{Generation, StoredMessage};
use slipway_guards::Guards;
use slipway_models::{Answer, Content, Message, Model, ModelRequest, Piece, Provider, ToolResult};
use slipway_peers::Postgres;

use super::*;
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::record::Recorder;
use crate::settings::{self, Refusal};
use crate::telemetry::Telemetry;
use crate::turn::{CallerTrace, Order, Said, TurnEvent, begin};

/// An agent with the store that these variables ask for.
fn agent(variables: &[(&str, &str)]) -> Arc<Agent> {
    let settings = settings::read(variables).unwrap();
    let (telemetry, policies) = (Telemetry::off(), Policies::fixed(Guards::default()));
    let meters = Metrics::new(&telemetry).meters.clone();
    let recorder = Recorder::new(telemetry, meters, settings.model.clone(), Arc::clone(&policies));
    Agent::open(settings, policies, recorder, Refusal(Vec::new())).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn in_postgresql(url: &str) -> [(&str, &str); 3] {
    [("RUNTIME_STORAGE", "postgresql"), ("RUNTIME_DATABASE_URL", url), ("RUNTIME_DATABASE_MIGRATE", "true")]
}

fn order(message: &str) -> Order {
    Order {
        said: Said::InConversation { id: "conv_1".into(), message: message.into() },
        trace_id: "tr_1".into(),
        caller: CallerTrace::default(),
        cancel_with_client: false,
        is_streamed: true,
        max_output_tokens: None,
        temperature: None,
        stop: Vec::new(),
        rehearsal: None,
    }
}

async fn said(agent: &Agent) -> Vec<StoredMessage> {
    agent.store.history("conv_1", 10).await.unwrap()
}

async fn let_go(agent: &Agent) {
    for _ in 0..500 {
        if agent.store.generation("conv_1").await.unwrap() == Some(Generation::Idle) {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the conversation is still held");
}

/// Says something and breaks.
struct Breaks;

impl Model for Breaks {
    fn answer(&self, _: ModelRequest) -> Answer {
        Box::pin(stream::unfold(true, |first| async move {
            assert!(first, "this model breaks, as it should");
            Some((Ok(Piece::Text("so far".into())), false))
        }))
    }

    fn provider(&self) -> Provider {
        Provider::Stub
    }

    fn id(&self) -> &'static str {
        "breaks"
    }

    fn window(&self) -> u32 {
        1000
    }
}

#[tokio::test]
async fn a_turn_that_panics_leaves_its_words_and_lets_the_conversation_go() {
    let postgres = Postgres::start();
    let url = postgres.url();
    for variables in [&[][..], &in_postgresql(&url)] {
        let mut agent = agent(variables);
        Arc::get_mut(&mut agent).unwrap().model = Arc::new(Breaks);
        let mut turn_events = begin(&agent, order("hello")).await.unwrap();
        while let Some(turn_event) = turn_events.recv().await {
            assert!(matches!(turn_event, TurnEvent::Text(_)), "{turn_event:?}");
        }
        let_go(&agent).await;
        let kept: Vec<_> = said(&agent).await.into_iter().map(|said| (said.content, said.interrupted)).collect();
        assert_eq!(kept, [("hello".to_owned(), false), ("so far".to_owned(), true)]);
        agent.turns.close();
        assert!(tokio::time::timeout(Duration::from_secs(5), agent.turns.ended()).await.is_ok(), "nothing keeps the process from ending");
    }
}

#[tokio::test]
async fn a_turn_begins_though_its_client_leaves_at_once() {
    let postgres = Postgres::start();
    let url = postgres.url();
    for variables in [&[][..], &in_postgresql(&url)] {
        let agent = agent(variables);
        agent.store.memory_count().await.unwrap();
        {
            let mut begun: Pin<Box<dyn Future<Output = _>>> = Box::pin(begin(&agent, order("hello")));
            // As far as its first wait, and no further.
            assert!(futures::poll!(&mut begun).is_pending());
        }
        for _ in 0..500 {
            if said(&agent).await.len() == 2 {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        let kept: Vec<_> = said(&agent).await.into_iter().map(|said| said.content).collect();
        assert_eq!(kept, ["hello", "Echo: hello"]);
        let_go(&agent).await;
    }
}

#[tokio::test]
async fn an_answer_is_kept_however_much_its_tools_brought() {
    let postgres = Postgres::start();
    let url = postgres.url();
    for variables in [&[][..], &in_postgresql(&url)] {
        let agent = agent(variables);
        let running = agent.turns.begin().ok().unwrap();
        let lease = Lease::take(&agent, running, "conv_1", "look it up", "tr_1").await.unwrap();
        lease.partial.lock().unwrap().push_str(&"x".repeat(LONGEST_MESSAGE + 1));
        assert_eq!(lease.due(&Pace::new(Instant::now())).map(|text| text.len()), Some(LONGEST_MESSAGE));
        let result = ToolResult { id: "call_1".into(), name: "look".into(), content: "x".repeat(6 << 20), is_error: false };
        let parts = json!([Message { role: slipway_models::Role::User, content: vec![Content::ToolResult(result)] }]);
        let answer = NewMessage::new(Role::Assistant, "Found.").with_parts(parts);
        assert!(lease.end(vec![answer]).await);
        let kept = said(&agent).await;
        assert_eq!((kept.len(), kept[1].content.as_str()), (2, "Found."));
        let parts = kept[1].parts.as_ref().unwrap().to_string();
        assert!(parts.len() < 1 << 20 && parts.contains("of 6291456 bytes]"), "{}", parts.len());
    }
}

#[test]
fn an_answer_is_written_when_it_begins_then_now_and_then_and_renewed_in_time() {
    // For each second, the bytes that there are.
    let writes = |bytes: &dyn Fn(u64) -> usize, available: &dyn Fn(u64) -> bool| {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut writes = Vec::new();
        for second in 1..=40 {
            let now = start + Duration::from_secs(second);
            if pace.is_due(bytes(second), now) {
                writes.push(second);
                if available(second) { pace.written(bytes(second), now) } else { pace.failed(now) }
            }
        }
        writes
    };
    let always = |_| true;
    assert_eq!(writes(&|second| usize::try_from(second).unwrap(), &always), [1, 6, 11, 16, 21, 26, 31, 36]);
    assert_eq!(writes(&|_| 0, &always), [10, 20, 30, 40], "a model that thinks");
    assert_eq!(writes(&|second| if second < 13 { 0 } else { 7 }, &always), [10, 13, 23, 33], "first words after a while");
    assert_eq!(writes(&|_| 7, &|second| second > 12), [1, 6, 11, 16, 26, 36], "a database that was away");
}
