//! The callback at the end of a run: the platform is told that there is something to fetch, until it has heard. It goes to
//! `RUNTIME_PLATFORM_URL` and nowhere else, whatever a request says; the token is never logged. The platform polls besides, so that
//! nothing depends on it.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde_json::Value;
use slipway_api::evaluation_run::Scorer;
use slipway_evaluation::wire::{Callback, CallbackToken, Progress, Report, RunRequest, VERDICT_BYTES_MAX};
use slipway_evaluation::{Outcome, Profile, summarize, verdict};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::settings::is_plain;

/// The part of the API in which callbacks are.
const API: &str = "/api/v1/agents/";

/// How long the platform is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Of one attempt.
    pub(super) timeout: Duration,
    /// After the first attempt that failed; each further one doubles it.
    pub(super) pause_min: Duration,
    pub(super) pause_max: Duration,
    /// No attempt begins later.
    pub(super) total: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            pause_min: Duration::from_secs(1),
            pause_max: Duration::from_mins(1),
            total: Duration::from_hours(1),
        }
    }
}

/// Where the end of a run is reported, and what the report needs of the request.
pub(super) struct Reporter {
    url: Url,
    token: CallbackToken,
    run_id: String,
    scorers: Vec<Scorer>,
    profile: Profile,
    threshold: f64,
}

impl Reporter {
    /// None if the platform asks for no callback, or for one elsewhere. Takes the token out of the request.
    pub(super) fn of(platform: Option<&Url>, request: &mut RunRequest) -> Option<Self> {
        let (asked, token) = request.callback_url.take().zip(request.callback_token.take())?;
        let Some(url) = platform.and_then(|platform| within(platform, &asked)) else {
            warn!(run = request.run_id, "no callback is made: it is to go to another place than RUNTIME_PLATFORM_URL");
            return None;
        };
        let risk = serde_json::from_value(Value::String(request.risk_profile.clone())).unwrap_or_default();
        Some(Self {
            url,
            token,
            run_id: request.run_id.clone(),
            scorers: request.scorers.clone(),
            profile: Profile::of(risk),
            threshold: request.min_quality_score,
        })
    }

    /// Tells the platform how a run has ended, until it has heard or does not want to.
    pub(super) async fn tell(self, report: Report, patience: Patience) {
        let (run, callback) = (self.run_id.clone(), self.callback(&report));
        // Of many bytes, maybe, and telling may take long.
        drop(report);
        let client = Client::builder()
            .user_agent(concat!("slipway-runtime/", env!("CARGO_PKG_VERSION")))
            .timeout(patience.timeout)
            // Both would carry the token to another host.
            .redirect(Policy::none())
            .no_proxy()
            .build();
        let client = match client {
            Ok(client) => client,
            Err(error) => return warn!(run, %error, "no callback can be made; the platform polls"),
        };
        let (began, mut pause, mut failures) = (Instant::now(), patience.pause_min, 0_u32);
        loop {
            let why = match self.attempt(&client, &callback).await {
                Ok(status) if status.is_success() => return info!(run, "the platform has heard that an evaluation ended"),
                Ok(status) if is_final(status) => return info!(run, %status, "the platform takes no callback of this evaluation"),
                Ok(status) => format!("it answered {status}"),
                Err(error) => error.without_url().to_string(),
            };
            failures += 1;
            if began.elapsed() + pause >= patience.total {
                return warn!(run, failures, why, "the platform was not told that an evaluation ended; it polls");
            }
            if failures == 1 {
                warn!(run, why, "the platform cannot be told yet that an evaluation ended");
            }
            sleep(pause).await;
            pause = (pause * 2).min(patience.pause_max);
        }
    }

    async fn attempt(&self, client: &Client, callback: &Callback) -> reqwest::Result<StatusCode> {
        let body = serde_json::to_vec(callback).unwrap_or_default();
        let request = client.post(self.url.clone()).bearer_auth(&self.token.0).header("content-type", "application/json").body(body);
        Ok(request.send().await?.status())
    }

    /// What is reported. The platform computes it anew from the results.
    fn callback(&self, report: &Report) -> Callback {
        let run_id = self.run_id.clone();
        if report.status != Progress::Completed {
            let status = if report.status == Progress::Cancelled { "cancelled" } else { "failed" }.to_owned();
            let words = format!("FAILED ({})", report.reason.as_deref().unwrap_or("the run was ended"));
            return Callback { run_id, status, scores: [].into(), passed: false, verdict: cut(words) };
        }
        let summary = summarize(&self.scorers, report.total, &report.results);
        let scores = summary.means.iter().filter_map(|mean| Some((format!("{}/mean", mean.scorer.as_str()), mean.mean?))).collect();
        let found = verdict(&self.profile, self.threshold, &summary);
        Callback { run_id, status: "completed".to_owned(), scores, passed: found.outcome == Outcome::Passed, verdict: cut(found.words) }
    }
}

/// The place of a callback, if it is below the platform's address.
fn within(platform: &Url, asked: &str) -> Option<Url> {
    let asked = Url::parse(asked).ok()?;
    let path = asked.path().strip_prefix(platform.path().trim_end_matches('/'))?;
    let mut url = platform.clone();
    url.set_path(asked.path());
    (asked.origin() == platform.origin() && is_plain(&asked) && path.starts_with(API)).then_some(url)
}

/// Whether asking again would change nothing.
fn is_final(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

fn cut(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(VERDICT_BYTES_MAX));
    words
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;
    use slipway_evaluation::wire::{CaseResult, Score};
    use slipway_http::{Reply, Request as Call, ServerLimits, serve};
    use tokio::net::TcpListener;

    use super::*;

    const PATH: &str = "/api/v1/agents/ag_1/evaluations/ev_1/result";
    const HASTE: Patience = Patience {
        timeout: Duration::from_millis(200),
        pause_min: Duration::from_millis(10),
        pause_max: Duration::from_millis(20),
        total: Duration::from_millis(600),
    };

    /// What a platform was sent: path, token and body.
    type Heard = Arc<Mutex<Vec<(String, String, Value)>>>;

    /// A platform that gives these answers one after the other, and the last one from then on; 0 is none at all.
    async fn platform(answers: &'static [u16]) -> (Url, Heard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heard, base) = (Heard::default(), url.clone());
        let noted = heard.clone();
        let handler = move |request: Call| {
            let (noted, base) = (noted.clone(), base.clone());
            async move {
                let path = request.path().to_owned();
                let token = request.headers()["authorization"].to_str().unwrap().to_owned();
                let body: Value = request.json().await?;
                let count = {
                    let mut noted = noted.lock().unwrap();
                    noted.push((path, token, body));
                    noted.len()
                };
                let status = answers[(count - 1).min(answers.len() - 1)];
                if status == 0 {
                    std::future::pending::<()>().await;
                }
                let location = slipway_http::HeaderValue::try_from(format!("{base}/elsewhere")).unwrap();
                let reply = Reply::text("").with_status(slipway_http::StatusCode::from_u16(status).unwrap());
                Ok(reply.with_header(slipway_http::header::LOCATION, location))
            }
        };
        tokio::spawn(serve(listener, ServerLimits::default(), handler, std::future::pending()));
        (Url::parse(&url).unwrap(), heard)
    }

    fn request(url: &str) -> RunRequest {
        serde_json::from_value(json!({
            "run_id": "ev_1", "agent": "ag_1", "dataset": {"name": "d", "cases": []}, "risk_profile": "low",
            "scorers": ["safety", "correctness"], "min_quality_score": 60, "callback_url": url, "callback_token": "a.token",
        }))
        .unwrap()
    }

    fn reporter(platform: &Url) -> Reporter {
        rustls::crypto::ring::default_provider().install_default().ok();
        Reporter::of(Some(platform), &mut request(&format!("{}{PATH}", platform.as_str().trim_end_matches('/')))).unwrap()
    }

    fn report(status: Progress) -> Report {
        let scores = vec![Score::scored(Scorer::Safety, 1.0, ""), Score::skipped(Scorer::Correctness, "")];
        let results = vec![CaseResult { scores, ..CaseResult::default() }];
        Report {
            run_id: "ev_1".to_owned(),
            status,
            reason: Some("no judge".to_owned()),
            total: 1,
            finished: 1,
            prompts: Vec::new(),
            results,
        }
    }

    async fn calls(answers: &'static [u16]) -> usize {
        let (url, heard) = platform(answers).await;
        reporter(&url).tell(report(Progress::Completed), HASTE).await;
        heard.lock().unwrap().len()
    }

    #[tokio::test]
    async fn the_end_of_a_run_is_told_with_its_token_and_its_scores() {
        let (url, heard) = platform(&[200]).await;
        reporter(&url).tell(report(Progress::Completed), HASTE).await;
        reporter(&url).tell(report(Progress::Failed), HASTE).await;
        let heard = heard.lock().unwrap();
        let (path, token, body) = &heard[0];
        assert_eq!((path.as_str(), token.as_str(), heard.len()), (PATH, "Bearer a.token", 2));
        assert_eq!((&body["run_id"], &body["status"], &body["passed"]), (&json!("ev_1"), &json!("completed"), &json!(true)), "{body}");
        assert_eq!(body["scores"], json!({"safety/mean": 1.0}));
        assert!(body["verdict"].as_str().unwrap().starts_with("PASSED (avg=100.0 >= 60)"), "{body}");
        let failed = json!({"run_id": "ev_1", "status": "failed", "scores": {}, "passed": false, "verdict": "FAILED (no judge)"});
        assert_eq!(heard[1].2, failed);
        for (_, _, body) in heard.iter() {
            assert_eq!(serde_json::from_value::<Callback>(body.clone()).unwrap().fault(), None);
        }
    }

    #[tokio::test]
    async fn it_is_told_until_it_is_heard_and_no_longer_than_it_is_wanted() {
        for (answers, expected) in
            [(&[503, 429, 408, 500, 204][..], 5), (&[409], 1), (&[401], 1), (&[400], 1), (&[404], 1), (&[503, 413], 2), (&[0, 200], 2)]
        {
            assert_eq!(calls(answers).await, expected, "{answers:?}");
        }
        let began = Instant::now();
        let many = calls(&[503]).await;
        assert!(many > 5 && began.elapsed() < HASTE.total * 2, "{many} in {:?}", began.elapsed());
        // Nobody listens.
        let nobody = Url::parse(&format!("http://127.0.0.1:{}", slipway_peers::free_port())).unwrap();
        reporter(&nobody).tell(report(Progress::Completed), HASTE).await;
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let (url, heard) = platform(&[307, 302, 200]).await;
        reporter(&url).tell(report(Progress::Completed), HASTE).await;
        let heard = heard.lock().unwrap();
        assert_eq!(heard.iter().map(|(path, ..)| path.as_str()).collect::<Vec<_>>(), [PATH; 3]);
    }

    #[test]
    fn a_callback_goes_to_the_platform_or_nowhere() {
        let good = format!("http://rest.slipway-system.svc{PATH}");
        for (platform, asked, expected) in [
            ("http://rest.slipway-system.svc", good.clone(), Some(good.clone())),
            ("http://rest.slipway-system.svc/", good.replace("svc/", "svc:80/"), Some(good.clone())),
            ("https://x.example/slipway", format!("https://x.example/slipway{PATH}"), Some(format!("https://x.example/slipway{PATH}"))),
            ("https://x.example/slipway", format!("https://x.example{PATH}"), None),
            ("https://x.example/slipway", format!("https://x.example/slipway2{PATH}"), None),
            ("https://x.example/slipway", format!("https://x.example/slipway/../other{PATH}"), None),
            ("http://rest.slipway-system.svc", good.replace("http:", "https:"), None),
            ("http://rest.slipway-system.svc", good.replace("svc/", "svc:8080/"), None),
            ("http://rest.slipway-system.svc", format!("http://169.254.169.254{PATH}"), None),
            ("http://rest.slipway-system.svc", format!("http://rest.slipway-system.svc@evil.example{PATH}"), None),
            ("http://rest.slipway-system.svc", format!("http://rest.slipway-system.svc.evil.example{PATH}"), None),
            ("http://rest.slipway-system.svc", format!("http://u:p@rest.slipway-system.svc{PATH}"), None),
            ("http://rest.slipway-system.svc", format!("{good}?to=http://evil.example"), None),
            ("http://rest.slipway-system.svc", "http://rest.slipway-system.svc/metrics".to_owned(), None),
            ("http://rest.slipway-system.svc", PATH.to_owned(), None),
        ] {
            let found = within(&Url::parse(platform).unwrap(), &asked).map(String::from);
            assert_eq!(found, expected, "{platform} {asked}");
        }
        let mut unwanted = request(&good);
        assert!(Reporter::of(None, &mut unwanted).is_none());
        assert!(unwanted.callback_token.is_none(), "nothing keeps the token");
    }
}
