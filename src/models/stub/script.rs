//! `stub-script`: a model that runs the script in the message, for testing tools, long streams and failures. A script has one
//! command per line; a blank line ends a round:
//!
//! | line | what happens |
//! | --- | --- |
//! | `call TOOL {json}` | the tool is called; several in one round are parallel calls |
//! | `text WORDS`, `say WORDS` | answers with the words; `{results}` in them is replaced by the results of the previous round's tools, one per line |
//! | `tokens N` | N tokens are answered, one a fragment |
//! | `sleep MS` | delays each further fragment of this round by MS milliseconds |
//! | `fail KIND` | the answer ends with that fault: `overloaded`, `rate_limited`, `timeout`, `broken`, … |
//!
//! A round with a call stops for its tools; when their results come back, the next round is played,
//! and after the last round the answer ends. Which round is due is counted in the messages: the model
//! remembers nothing.

use std::time::Duration;

use futures::stream;
use serde_json::Value;
use tokio::time::sleep;

use super::words;
use crate::answer::{Answer, Model, Piece, Stop, Usage};
use crate::fault::{FaultKind, ModelFault};
use crate::message::{Content, Message, ModelRequest, Role, ToolCall};
use crate::provider::Provider;

pub(super) const ID: &str = "stub-script";

const MAX_TOKENS: u64 = 1_000_000;
const MAX_SLEEP_MS: u64 = 600_000;
/// The token of the command `tokens`.
const TOKEN: &str = "word ";

pub(super) struct Script {
    pub(super) window: u32,
}

impl Model for Script {
    fn answer(&self, request: ModelRequest) -> Answer {
        let steps = match round(&request.messages) {
            Ok(steps) => steps,
            Err(fault) => vec![Step::Fail(fault)],
        };
        let input_tokens = request.messages.iter().map(|message| words(&message.text())).sum();
        let playing = Playing {
            steps: steps.into_iter(),
            tokens: 0,
            pause: Duration::ZERO,
            called: false,
            usage: Usage { input_tokens, ..Usage::default() },
            over: false,
        };
        Box::pin(stream::unfold(playing, |mut playing| async move { playing.next().await.map(|piece| (piece, playing)) }))
    }

    fn provider(&self) -> Provider {
        Provider::Stub
    }

    fn id(&self) -> &'static str {
        ID
    }

    fn window(&self) -> u32 {
        self.window
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    Text(String),
    Tokens(u64),
    Sleep(Duration),
    Call(ToolCall),
    Fail(ModelFault),
    /// The end of a round.
    End,
}

/// The steps of the current round.
fn round(messages: &[Message]) -> Result<Vec<Step>, ModelFault> {
    let said = |message: &Message| message.role == Role::User && results(message).is_empty();
    let at = messages.iter().rposition(said).unwrap_or_default();
    let script = messages.get(at).map(Message::text).unwrap_or_default();
    let answered: Vec<_> = messages.iter().skip(at + 1).map(results).filter(|results| !results.is_empty()).collect();
    let due = answered.len();
    let newest = answered.last().map(|results| results.join("\n")).unwrap_or_default();

    let lines: Vec<&str> = script.lines().map(str::trim).collect();
    let rounds = lines.split(|line| line.is_empty()).filter(|round| !round.is_empty());
    let mut steps = Vec::new();
    for line in rounds.into_iter().nth(due).unwrap_or_default() {
        let id = format!("call_{at}_{due}_{}", steps.len());
        steps.push(step(line, id, &newest)?);
    }
    steps.push(Step::End);
    Ok(steps)
}

fn results(message: &Message) -> Vec<&str> {
    let results = message.content.iter().filter_map(|content| match content {
        Content::ToolResult(result) => Some(result.content.as_str()),
        Content::Text { .. } | Content::ToolCall(_) => None,
    });
    results.collect()
}

fn step(line: &str, id: String, results: &str) -> Result<Step, ModelFault> {
    let wrong = |why: &str| Err(ModelFault::new(FaultKind::Refused, format!("stub-script cannot play `{line}`: {why}")));
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    let number = |most: u64| rest.trim().parse().ok().filter(|number| *number <= most);
    Ok(match command {
        "text" | "say" => Step::Text(rest.replace("{results}", results)),
        "tokens" => match number(MAX_TOKENS) {
            Some(count) => Step::Tokens(count),
            None => return wrong("`tokens` takes a number up to 1000000"),
        },
        "sleep" => match number(MAX_SLEEP_MS) {
            Some(milliseconds) => Step::Sleep(Duration::from_millis(milliseconds)),
            None => return wrong("`sleep` takes milliseconds up to 600000"),
        },
        "fail" => match KINDS.into_iter().find(|kind| kind.name() == rest.trim()) {
            Some(kind) => Step::Fail(ModelFault::new(kind, format!("the script says `{line}`"))),
            None => return wrong(&format!("a fault is one of {}", KINDS.map(|kind| kind.name()).join(", "))),
        },
        "call" => {
            let (name, arguments) = rest.trim().split_once(' ').unwrap_or((rest.trim(), "{}"));
            match serde_json::from_str::<Value>(arguments) {
                _ if name.is_empty() => return wrong("`call` takes the name of a tool and its arguments"),
                Ok(arguments) => Step::Call(ToolCall { id, name: name.to_owned(), arguments, signature: None }),
                Err(error) => return wrong(&format!("the arguments are not JSON: {error}")),
            }
        }
        _ => return wrong("a line begins with call, text, say, tokens, sleep or fail"),
    })
}

const KINDS: [FaultKind; 11] = [
    FaultKind::Misconfigured,
    FaultKind::MissingKey,
    FaultKind::Unauthorized,
    FaultKind::UnknownModel,
    FaultKind::ContextOverflow,
    FaultKind::RateLimited { retry_after: None },
    FaultKind::Overloaded,
    FaultKind::Timeout,
    FaultKind::Refused,
    FaultKind::Broken,
    FaultKind::Unreachable,
];

struct Playing {
    steps: std::vec::IntoIter<Step>,
    /// The remaining tokens of a `tokens` line.
    tokens: u64,
    pause: Duration,
    called: bool,
    usage: Usage,
    over: bool,
}

impl Playing {
    async fn next(&mut self) -> Option<Result<Piece, ModelFault>> {
        if self.over {
            return None;
        }
        if self.tokens > 0 {
            self.tokens -= 1;
            return self.fragment(TOKEN.to_owned()).await;
        }
        loop {
            match self.steps.next() {
                Some(Step::Sleep(pause)) => self.pause = pause,
                Some(Step::Tokens(0)) => {}
                Some(Step::Tokens(count)) => {
                    self.tokens = count - 1;
                    return self.fragment(TOKEN.to_owned()).await;
                }
                Some(Step::Text(text)) => return self.fragment(text).await,
                Some(Step::Call(call)) => {
                    self.called = true;
                    self.usage.output_tokens += 1;
                    sleep(self.pause).await;
                    return Some(Ok(Piece::ToolCall(call)));
                }
                Some(Step::Fail(fault)) => {
                    self.over = true;
                    return Some(Err(fault));
                }
                Some(Step::End) => return Some(Ok(Piece::Usage(self.usage))),
                None => {
                    self.over = true;
                    return Some(Ok(Piece::Stopped(if self.called { Stop::ToolUse } else { Stop::EndTurn })));
                }
            }
        }
    }

    async fn fragment(&mut self, text: String) -> Option<Result<Piece, ModelFault>> {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
        }
        self.usage.output_tokens += words(&text);
        Some(Ok(Piece::Text(text)))
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::message::ToolResult;

    async fn play(messages: Vec<Message>) -> Vec<Result<Piece, ModelFault>> {
        Script { window: 1000 }
            .answer(ModelRequest { messages, ..ModelRequest::default() })
            .filter(|piece| std::future::ready(!matches!(piece, Ok(Piece::Usage(_)))))
            .collect()
            .await
    }

    fn answered(contents: &[&str]) -> Message {
        let results = contents.iter().map(|content| {
            Content::ToolResult(ToolResult { id: "1".into(), name: "t".into(), content: (*content).into(), is_error: false })
        });
        Message { role: Role::User, content: results.collect() }
    }

    fn call(id: &str, name: &str, arguments: Value) -> Piece {
        Piece::ToolCall(ToolCall { id: id.into(), name: name.into(), arguments, signature: None })
    }

    fn text(text: &str) -> Piece {
        Piece::Text(text.into())
    }

    #[tokio::test]
    async fn a_script_is_played_round_by_round() {
        let end = Piece::Stopped(Stop::EndTurn);
        let tools = Piece::Stopped(Stop::ToolUse);
        let model = Message::assistant("");
        for (script, rounds, expected) in [
            ("say hello", vec![], vec![text("hello"), end.clone()]),
            ("tokens 2", vec![], vec![text(TOKEN), text(TOKEN), end.clone()]),
            ("tokens 0", vec![], vec![end.clone()]),
            ("", vec![], vec![end.clone()]),
            ("call t", vec![], vec![call("call_1_0_0", "t", json!({})), tools.clone()]),
            (
                "say look\ncall t {\"x\": 1}\ncall u {\"y\": [2]}\n\ntext it is {results}.",
                vec![],
                vec![text("look"), call("call_1_0_1", "t", json!({"x": 1})), call("call_1_0_2", "u", json!({"y": [2]})), tools.clone()],
            ),
            ("call t {}\n\ntext it is {results}.", vec![&["a", "b"][..]], vec![text("it is a\nb."), end.clone()]),
            ("call t {}\n\n\n call u {}\n\nsay {results}", vec![&["a"][..]], vec![call("call_1_1_0", "u", json!({})), tools]),
            ("call t {}\n\ncall u {}\n\nsay {results}", vec![&["a"][..], &["b"]], vec![text("b"), end.clone()]),
            ("call t {}", vec![&["a"][..]], vec![end]),
        ] {
            let mut messages = vec![Message::user("an older message"), Message::user(script)];
            for contents in rounds {
                messages.extend([model.clone(), answered(contents)]);
            }
            let played: Vec<_> = play(messages).await.into_iter().map(Result::unwrap).collect();
            assert_eq!(played, expected, "{script:?}");
        }
    }

    #[tokio::test]
    async fn faults_come_as_the_script_says_and_for_what_is_no_script() {
        for (script, before, kind, words) in [
            ("fail overloaded", 0, FaultKind::Overloaded, "fail overloaded"),
            ("say a\nfail rate_limited", 1, FaultKind::RateLimited { retry_after: None }, ""),
            ("fail badly", 0, FaultKind::Refused, "context_overflow"),
            ("hello there", 0, FaultKind::Refused, "call, text, say"),
            ("call t {", 0, FaultKind::Refused, "not JSON"),
            ("call", 0, FaultKind::Refused, "name of a tool"),
            ("tokens many", 0, FaultKind::Refused, "number"),
            ("tokens 1000001", 0, FaultKind::Refused, "number"),
            ("sleep -1", 0, FaultKind::Refused, "milliseconds"),
        ] {
            let mut played = play(vec![Message::user(script)]).await;
            let fault = played.pop().unwrap().unwrap_err();
            assert_eq!((played.len(), fault.kind()), (before, &kind), "{script}");
            assert!(fault.message().contains(words), "{script}: {fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_passes_between_tokens() {
        let started = Instant::now();
        play(vec![Message::user("say at once\nsleep 50\ntokens 40")]).await;
        assert_eq!(started.elapsed().as_millis(), 2000);
    }

    #[tokio::test]
    async fn usage_counts_words() {
        let messages = vec![Message::user("say three little words\ntokens 2")];
        let pieces: Vec<_> = Script { window: 1000 }.answer(ModelRequest { messages, ..ModelRequest::default() }).collect().await;
        let usage = Usage { input_tokens: 6, output_tokens: 5, cached_input_tokens: 0 };
        assert!(pieces.contains(&Ok(Piece::Usage(usage))), "{pieces:?}");
    }
}
