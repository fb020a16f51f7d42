//! Against a real Prometheus with a day of known shape, and servers that are none.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;

/// As runtimes count, in minutes of 25 hours: each of two pods of `helper` has a turn a minute, of which every tenth fails,
/// every fifth is blocked, with many actions of guards; the second one was replaced at noon, so to speak; `idle` did nothing.
fn history() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut text = String::new();
    let mut family = |name: &str, series: &[(&str, f64)]| {
        let kind = name.strip_suffix("_total").unwrap_or(name);
        let _ = writeln!(text, "# TYPE {kind} {}", if kind == name { "unknown" } else { "counter" });
        for pod in ["helper-1", "helper-2", "idle-1"] {
            let agent = &pod[..pod.len() - 2];
            for (labels, each_minute) in series {
                for minute in 0..=1500_u32 {
                    let counted = match pod {
                        "idle-1" => 0,
                        "helper-2" if minute >= 700 => minute - 700,
                        _ => minute,
                    };
                    let time = now - u64::from(60 * (1500 - minute));
                    let value = f64::from(counted) * each_minute;
                    let _ = writeln!(text, "{name}{{namespace=\"team-a\",agent=\"{agent}\",pod=\"{pod}\"{labels}}} {value} {time}");
                }
            }
        }
    };
    let turns = [(",outcome=\"ok\"", 0.4), (",outcome=\"error\"", 0.1), (",outcome=\"blocked\"", 0.2), (",outcome=\"cancelled\"", 0.3)];
    family("slipway_runtime_turns_total", &turns);
    let tokens = [(",direction=\"input\"", 100.0), (",direction=\"output\"", 20.0), (",direction=\"cached_input\"", 50.0)];
    family("slipway_runtime_tokens_total", &tokens);
    family("slipway_runtime_cost_usd_total", &[("", 0.001)]);
    family("slipway_runtime_guard_actions_total", &[(",guard=\"g\",action=\"block\"", 5.0), (",guard=\"g\",action=\"mask\"", 1.0)]);
    family("slipway_runtime_pii_detections_total", &[("", 0.2)]);
    family("slipway_runtime_injection_attempts_total", &[("", 0.3)]);
    family(
        "slipway_runtime_policy_violations_total",
        &[(",policy=\"gp_a\",blocked=\"true\"", 0.25), (",policy=\"gp_b\",blocked=\"false\"", 0.25)],
    );
    let buckets = [(",le=\"0.5\"", 0.5), (",le=\"2.5\"", 0.75), (",le=\"+Inf\"", 1.0)];
    family("slipway_runtime_turn_seconds_bucket", &buckets);
    text + "# EOF\n"
}

#[tokio::test]
async fn a_day_is_what_was_counted_in_it() {
    let server = slipway_peers::Prometheus::with_history(&history());
    let day = Prometheus::new(&server.url()).unwrap().day().await.unwrap();
    let usage = |agent: &str| day.agents[&("team-a".to_owned(), agent.to_owned())].clone();
    let helper = usage("helper");
    let cost = helper.cost_micros.unwrap();
    // 1440 minutes and two pods.
    for (what, found, expected) in [
        ("requests", helper.requests, 2880),
        ("errors", helper.errors, 288),
        ("unknown", helper.unknown.unwrap(), 864),
        ("input", helper.input_tokens, 288_000),
        ("output", helper.output_tokens, 57_600),
        ("cost", cost, 2_880_000),
        ("blocks", helper.guard_blocks, 576),
        ("pii", helper.pii, 576),
        ("injections", helper.injections, 864),
        ("violations", helper.violations, 1440),
        ("fast", helper.latency[0], 1440),
        ("slow", helper.latency[1], 720),
        ("slower", helper.latency[2], 720),
    ] {
        let off = (found - expected).abs();
        assert!(off * 100 <= expected, "{what}: {found} and not {expected}");
    }
    assert_eq!(day.latency_bounds, [500, 2500]);
    let p95 = slipway_governance::quantile(&day.latency_bounds, &helper.latency, 0.95).unwrap();
    assert!(p95.at_least && (p95.value - 2500.0).abs() < 0.5, "{p95:?}");
    let idle = usage("idle");
    let nothing = MeasuredUsage { unknown: Some(0), latency: vec![0; 3], ..MeasuredUsage::default() };
    assert_eq!(idle, nothing, "scraped, and has done nothing; a cost of nothing is none");
    assert_eq!(day.agents.len(), 2);
}

#[tokio::test]
async fn a_server_without_agents_has_none() {
    let server = slipway_peers::Prometheus::start(&[], &[]);
    assert_eq!(Prometheus::new(&server.url()).unwrap().day().await, Ok(Day::default()));
}

/// Answers each call with this head and a body that is repeated so often.
fn server(head: &'static str, body: &'static str, times: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "HTTP/1.1 {head}\r\nconnection: close\r\n\r\n");
            // The client leaves when it has enough.
            let _ = (0..times).try_for_each(|_| stream.write_all(body.as_bytes()));
        }
    });
    url
}

#[tokio::test]
async fn what_is_no_prometheus_is_told_and_not_believed() {
    const AGENT: &str = r#"{"metric":{"namespace":"a","agent":"b"},"value":[0,"1"]},"#;
    let nobody = format!("http://127.0.0.1:{}", slipway_peers::free_port());
    for (url, says) in [
        (nobody, "could not be reached"),
        (server("200 OK", "<html>secret</html>", 1), "not as a Prometheus server does"),
        (server("200 OK", r#"{"status":"error","error":"secret","data":{"result":[]}}"#, 1), "not as a Prometheus server does"),
        (server("422 Unprocessable Entity", "secret", 1), "status 422"),
        (server("302 Found\r\nlocation: /secret", "", 1), "status 302"),
        (server("200 OK", AGENT, 200_000), "more than 8388608 bytes"),
        ("http://169.254.169.254".to_owned(), "link-local"),
        ("nowhere".to_owned(), "is no URL"),
    ] {
        let said = match Prometheus::new(&url) {
            Ok(server) => server.day().await.unwrap_err(),
            Err(said) => said,
        };
        assert!(said.contains(says) && !said.contains("secret"), "{url}: {said}");
    }
}

#[test]
fn runtimes_of_two_versions_may_have_other_buckets() {
    let sample = |agent: &str, le: &str, count: &str| Sample {
        metric: Labels { namespace: "a".into(), agent: agent.into(), outcome: String::new(), direction: String::new(), le: le.into() },
        value: (0.0, count.into()),
    };
    let mut day = Day::default();
    let samples = [
        sample("old", "1.0", "6"),
        sample("old", "+Inf", "10"),
        sample("new", "0.5", "3"),
        sample("new", "1.0", "5"),
        // An estimate may be below that of the bucket before.
        sample("new", "2.0", "4.6"),
        sample("new", "+Inf", "NaN"),
        sample("unknown", "1.0", "6"),
    ];
    for agent in ["old", "new"] {
        day.agents.insert(("a".into(), agent.into()), MeasuredUsage::default());
    }
    day.latencies(&samples).unwrap();
    assert_eq!(day.latency_bounds, [500, 1000, 2000]);
    let latency = |agent: &str| day.agents[&("a".to_owned(), agent.to_owned())].latency.clone();
    assert_eq!((latency("old"), latency("new")), (vec![0, 6, 0, 4], vec![3, 2, 0, 0]));
    assert_eq!(day.agents.len(), 2, "an agent that has no turns has no latency");
}
