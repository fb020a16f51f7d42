//! An agent with an image of its own, as its evaluator asks it: a case is a message to `/chat/stream`, or to `/chat` where there are no
//! streams. What `heard` makes of the answer is scored. While the agent is away a case waits, so that a pod of it that is killed costs
//! no case; the platform says where else the agent is then.

mod heard;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::{Value, json};
use slipway_api::contract::{EVALUATION_HEADER, EVENTS_HEADER};
use slipway_models::EventReader;
use tokio::time::{Instant, sleep, timeout_at};

use crate::settings::{ModelId, is_plain};
use crate::turn::Unanswered;
pub(super) use heard::Heard;
use heard::{Listening, Unheard, whole};

/// Of one answer, with all that comes before it.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// Of a refusal, and how much of its words is told.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
const MAX_WORDS: usize = 512;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses before an agent that is away is asked again; the last one is repeated.
const BACKOFF: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];
/// The longest pause that an agent may ask for.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How often a case is put again whose answer broke off.
const MAX_BREAKS: u32 = 2;

/// How long a case may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Until the answer is whole.
    pub(super) answer: Duration,
    /// Of these, for an agent that is away.
    pub(super) away: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { answer: Duration::from_mins(5), away: Duration::from_mins(2) }
    }
}

/// Where the agent is. The platform may turn it to another pod while a run is under way.
#[derive(Debug)]
pub(super) struct RemoteAgent(RwLock<Url>);

impl RemoteAgent {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let is_address = |host: &str| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let url = Url::parse(text)
            .ok()
            .filter(|url| url.scheme() == "http" && url.host_str().is_some_and(is_address) && url.path() == "/" && is_plain(url));
        url.map(|url| Self(RwLock::new(url))).ok_or_else(|| "target: must be http://, the address of a pod and a port".to_owned())
    }

    /// From now on the agent is where the other one is.
    pub(super) fn turn(&self, other: &Self) {
        let url = other.url();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = url;
    }

    fn url(&self) -> Url {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.url();
        url.set_path(path);
        url
    }
}

/// The agent that is evaluated.
pub(super) struct Remote {
    client: Client,
    target: Arc<RemoteAgent>,
    run_id: String,
    patience: Patience,
    /// By which its answers are priced, if that is known.
    pub(super) model: Option<ModelId>,
}

/// Why an attempt gave no answer.
enum Fault {
    /// Nobody is there, or not yet; with the pause that was asked for.
    Away(String, Option<Duration>),
    /// The answer ended before it was whole.
    Broken(String),
    /// The agent says so, and nobody knows whether it would say so again.
    Failed(String),
    /// Asking again would change nothing.
    Final(String),
}

impl From<Unheard> for Fault {
    fn from(unheard: Unheard) -> Self {
        match unheard {
            Unheard::Broken(why) => Self::Broken(why),
            Unheard::Failed(why) => Self::Failed(why),
        }
    }
}

impl Remote {
    pub(super) fn open(target: Arc<RemoteAgent>, run_id: &str, model: Option<ModelId>, patience: Patience) -> Result<Self, String> {
        let client = Client::builder()
            .user_agent(concat!("slipway-evaluator/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // Both would lead elsewhere than to the agent's pod.
            .redirect(Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| format!("the agent cannot be asked: {error}"))?;
        Ok(Self { client, target, run_id: run_id.to_owned(), patience, model })
    }

    /// The answer to a message, or why there is none.
    pub(super) async fn answer(&self, message: &str) -> Result<Heard, Unanswered> {
        let unanswered = |why: String, is_final: bool| Err(Unanswered { why, is_final });
        let (began, mut attempts, mut breaks) = (Instant::now(), 0, 0);
        let deadline = began + self.patience.answer;
        loop {
            let Ok(asked) = timeout_at(deadline, self.ask(message)).await else {
                return unanswered(format!("it gave no whole answer within {} s", self.patience.answer.as_secs()), true);
            };
            let (why, pause, until) = match asked {
                Ok(heard) => return Ok(heard),
                Err(Fault::Final(why)) => return unanswered(why, true),
                Err(Fault::Failed(why)) => return unanswered(why, false),
                Err(Fault::Broken(why)) if breaks == MAX_BREAKS => return unanswered(why, false),
                Err(Fault::Broken(why)) => {
                    breaks += 1;
                    (why, None, deadline)
                }
                Err(Fault::Away(why, pause)) => (why, pause, began + self.patience.away),
            };
            let pause = pause.unwrap_or(BACKOFF[attempts.min(BACKOFF.len() - 1)]);
            attempts += 1;
            if Instant::now() + pause >= until {
                return unanswered(why, false);
            }
            sleep(pause).await;
        }
    }

    async fn ask(&self, message: &str) -> Result<Heard, Fault> {
        let response = self.post("/chat/stream", message).await?;
        match response.status() {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_ACCEPTABLE => {
                let response = self.post("/chat", message).await?;
                if response.status().is_success() { read_whole(response).await } else { Err(refusal(response).await) }
            }
            status if !status.is_success() => Err(refusal(response).await),
            _ if is_json(response.headers()) => read_whole(response).await,
            _ => read_stream(response).await,
        }
    }

    async fn post(&self, path: &str, message: &str) -> Result<Response, Fault> {
        let request = self
            .client
            .post(self.target.at(path))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json")
            .header(EVALUATION_HEADER, &self.run_id)
            .body(json!({"message": message}).to_string());
        request.send().await.map_err(|error| Fault::Away(format!("it cannot be reached: {}", error.without_url()), None))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

async fn read_whole(response: Response) -> Result<Heard, Fault> {
    let body = read(response, MAX_ANSWER_BYTES).await?;
    Ok(whole(&body)?)
}

async fn read_stream(mut response: Response) -> Result<Heard, Fault> {
    let told = response.headers().get(EVENTS_HEADER).and_then(|told| told.to_str().ok()).unwrap_or_default();
    let (mut listening, mut reader, mut bytes) = (Listening::to(told), EventReader::default(), 0);
    let too_long = || Fault::Final("an event of its answer is longer than 4 MiB".to_owned());
    while !listening.has_ended()
        && let Some(chunk) = response.chunk().await.map_err(broke_off)?
    {
        bytes += chunk.len();
        if bytes > MAX_ANSWER_BYTES {
            return Err(too_much(MAX_ANSWER_BYTES));
        }
        reader.feed(&chunk, &mut |data| listening.hear(data)).map_err(|_| too_long())?;
    }
    reader.finish(&mut |data| listening.hear(data)).map_err(|_| too_long())?;
    Ok(listening.end()?)
}

async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(broke_off)? {
        if body.len() + chunk.len() > most {
            return Err(too_much(most));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn broke_off(error: reqwest::Error) -> Fault {
    Fault::Broken(format!("its answer broke off: {}", error.without_url()))
}

fn too_much(most: usize) -> Fault {
    Fault::Final(format!("its answer has more than {most} bytes"))
}

/// Why the agent did not take the message, in its own words.
async fn refusal(response: Response) -> Fault {
    let status = response.status();
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let pause = asked.map(|seconds| Duration::from_secs(seconds).min(MAX_PAUSE));
    let body = read(response, MAX_REFUSAL_BYTES).await.unwrap_or_default();
    let said = serde_json::from_slice::<Value>(&body).ok();
    let words = said.as_ref().and_then(|said| said.get("message")?.as_str()).unwrap_or_default();
    let words = &words[..words.floor_char_boundary(MAX_WORDS)];
    let why =
        if words.is_empty() { format!("it answered with status {status}") } else { format!("it answered with status {status}: {words}") };
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Fault::Away(why, pause),
        status if status.is_client_error() => Fault::Final(why),
        _ => Fault::Failed(why),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use slipway_http::{Reply, ServerLimits, serve};
    use tokio::net::TcpListener;

    use super::*;

    const HASTE: Patience = Patience { answer: Duration::from_secs(4), away: Duration::from_secs(3) };
    const DONE: &str = "data: {\"type\":\"done\",\"content\":\"yes\"}\n\n";

    /// What an agent was asked: path, run and body.
    type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

    /// An agent that gives these answers, one after the other and the last one again and again: status, type and text.
    async fn agent(answers: &[(u16, &'static str, &str)]) -> (RemoteAgent, Asked) {
        rustls::crypto::ring::default_provider().install_default().ok();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = RemoteAgent::read(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let answers: VecDeque<_> = answers.iter().map(|(status, kind, text)| (*status, *kind, (*text).to_owned())).collect();
        let (answers, asked) = (Arc::new(Mutex::new(answers)), Asked::default());
        let heard = Arc::clone(&asked);
        let handler = move |request: slipway_http::Request| {
            let (answers, heard) = (Arc::clone(&answers), Arc::clone(&heard));
            async move {
                let run = request.headers().get(EVALUATION_HEADER).and_then(|run| run.to_str().ok()).unwrap_or_default().to_owned();
                let path = request.path().to_owned();
                let body: Value = request.json().await?;
                heard.lock().unwrap().push((path, run, body));
                let mut answers = answers.lock().unwrap();
                let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
                let (status, kind, text) = answer.unwrap();
                Ok::<_, slipway_http::Error>(Reply::bytes(kind, text.into_bytes()).with_status(StatusCode::from_u16(status).unwrap()))
            }
        };
        // One answer is longer than a control port's.
        let limits = ServerLimits { memory: 64 << 20, ..ServerLimits::small() };
        tokio::spawn(serve(listener, limits, handler, std::future::pending()));
        (target, asked)
    }

    async fn answer(target: RemoteAgent) -> Result<Heard, Unanswered> {
        Remote::open(Arc::new(target), "ev_1", None, HASTE).unwrap().answer("well?").await
    }

    #[tokio::test]
    async fn an_answer_is_read_as_a_stream_or_whole() {
        const STREAM: &str = "text/event-stream";
        const JSON: &str = "application/json";
        let whole = "{\"output\": \"yes\"}";
        for (answers, paths) in [
            (&[(200, STREAM, DONE)][..], &["/chat/stream"][..]),
            (&[(200, JSON, whole)], &["/chat/stream"]),
            (&[(404, JSON, "{}"), (200, JSON, whole)], &["/chat/stream", "/chat"]),
            // What is away or breaks off is asked again.
            (&[(503, JSON, "{}"), (429, JSON, "{}"), (200, STREAM, DONE)], &["/chat/stream"; 3]),
            (&[(200, STREAM, "data: {\"type\":\"token\",\"content\":\"ye\"}\n\n"), (200, STREAM, DONE)], &["/chat/stream"; 2]),
        ] {
            let (target, asked) = agent(answers).await;
            assert_eq!(answer(target).await.map(|heard| heard.output), Ok("yes".to_owned()), "{answers:?}");
            let asked = asked.lock().unwrap().clone();
            assert_eq!(asked.iter().map(|(path, ..)| path.as_str()).collect::<Vec<_>>(), paths, "{answers:?}");
            assert!(asked.iter().all(|(_, run, body)| run == "ev_1" && *body == json!({"message": "well?"})), "{asked:?}");
        }
    }

    #[tokio::test]
    async fn an_agent_that_gives_no_answer_says_why() {
        let long = format!("data: {{\"type\":\"token\",\"content\":\"{}\"}}\n\n", "x".repeat(1 << 20)).repeat(5);
        for (status, text, why, calls, is_final) in [
            (500, "{\"message\": \"no model\"}", "it answered with status 500 Internal Server Error: no model", 1, false),
            (401, "", "it answered with status 401 Unauthorized", 1, true),
            (200, "data: {\"type\":\"error\",\"content\":\"broken\"}\n\n", "broken", 1, false),
            (200, "data: {\"type\":\"token\"}\n\n", "its answer ended before the event done", 3, false),
            (200, &long, "its answer has more than 4194304 bytes", 1, true),
        ] {
            let (target, asked) = agent(&[(status, "text/event-stream", text)]).await;
            assert_eq!(answer(target).await, Err(Unanswered { why: why.to_owned(), is_final }));
            assert_eq!(asked.lock().unwrap().len(), calls, "{why}");
        }
    }

    #[tokio::test]
    async fn a_case_waits_for_the_agent_and_finds_it_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gone = Arc::new(RemoteAgent::read(&format!("http://{}", listener.local_addr().unwrap())).unwrap());
        drop(listener);
        let remote = Remote::open(Arc::clone(&gone), "ev_1", None, HASTE).unwrap();
        let away = Remote::open(Arc::clone(&gone), "ev_1", None, Patience { away: Duration::from_millis(100), ..HASTE }).unwrap();
        assert!(away.answer("well?").await.unwrap_err().why.starts_with("it cannot be reached: "));
        let (elsewhere, asked) = agent(&[(200, "text/event-stream", DONE)]).await;
        let turned = async {
            sleep(Duration::from_millis(200)).await;
            gone.turn(&elsewhere);
        };
        let (heard, ()) = tokio::join!(remote.answer("well?"), turned);
        assert_eq!((heard.map(|heard| heard.output), asked.lock().unwrap().len()), (Ok("yes".to_owned()), 1));
    }

    #[test]
    fn a_target_is_a_pod() {
        for good in ["http://10.0.0.7:8000", "http://[fd00::7]:8000/"] {
            assert!(RemoteAgent::read(good).is_ok(), "{good}");
        }
        for bad in
            ["https://10.0.0.7:8000", "http://helper:8000", "http://10.0.0.7:8000/chat", "http://a:b@10.0.0.7", "http://10.0.0.7/?a", ""]
        {
            assert!(RemoteAgent::read(bad).is_err(), "{bad}");
        }
    }
}
