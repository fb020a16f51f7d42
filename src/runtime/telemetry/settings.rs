//! What the environment says about telemetry. The `OTEL_*` variables are the ones of OpenTelemetry's
//! own specification, often set for a whole cluster: as it demands, a value that cannot be used is
//! warned of and passed over. A fault in a `RUNTIME_*` variable is refused. Neither a message nor
//! `Debug` shows headers or a URL's userinfo.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::mlflow;
use super::sampler::{self, Sampler};

/// The source of the spans. Empty fields are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    pub(crate) agent_id: String,
    pub(crate) agent_name: String,
    pub(crate) agent_version: String,
    pub(crate) team: String,
    pub(crate) track: String,
    pub(crate) run_hash: String,
}

#[derive(Debug)]
pub(crate) struct TelemetrySettings {
    pub(super) identity: Identity,
    /// Attributes of the resource, in order; a later one of the same key has been dropped.
    pub(super) resource: Vec<(String, String)>,
    pub(super) sampler: Sampler,
    pub(super) capture: bool,
    pub(super) batching: Batching,
    pub(super) destinations: Vec<Destination>,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Batching {
    pub(super) delay: Duration,
    pub(super) most_spans: usize,
    pub(super) queue_spans: usize,
}

/// Where spans go.
pub(super) struct Destination {
    pub(super) name: &'static str,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    /// The experiment whose id must be in a header: MLflow.
    pub(super) experiment: Option<String>,
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.place())
    }
}

impl Destination {
    /// Host and port: all of the URL that may be shown.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.url.host_str().unwrap_or_default(), self.url.port_or_known_default().unwrap_or_default())
    }
}

impl TelemetrySettings {
    pub(crate) fn read(identity: Identity, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let mut form = Form { lookup, warnings: Vec::new(), faults: Vec::new() };
        let mut destinations = Vec::new();
        if !form.flag("OTEL_SDK_DISABLED") {
            destinations.extend(form.collector());
            destinations.extend(form.mlflow(&identity));
        }
        let settings = Self {
            resource: form.resource(&identity),
            identity,
            sampler: form.sampler(),
            capture: form.capture(),
            batching: form.batching(),
            destinations,
            warnings: form.warnings,
        };
        if form.faults.is_empty() { Ok(settings) } else { Err(form.faults) }
    }
}

struct Form<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
    faults: Vec<String>,
}

impl Form<'_> {
    fn value(&self, name: &str) -> Option<String> {
        (self.lookup)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The variable for traces alone, else the one for all signals; with the name that was found.
    fn either(&self, end: &str) -> Option<(String, String)> {
        ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"].into_iter().find_map(|start| {
            let name = format!("{start}{end}");
            self.value(&name).map(|value| (name, value))
        })
    }

    fn flag(&mut self, name: &str) -> bool {
        match self.value(name) {
            Some(value) if value.eq_ignore_ascii_case("true") => true,
            Some(value) if !value.eq_ignore_ascii_case("false") => {
                self.warnings.push(format!("{name} is neither true nor false; it counts as false"));
                false
            }
            _ => false,
        }
    }

    fn number(&mut self, name: &str, default: u64) -> u64 {
        let Some(value) = self.value(name) else { return default };
        value.parse().ok().filter(|number| *number > 0).unwrap_or_else(|| {
            self.warnings.push(format!("{name} is not a whole number over 0; {default} is used"));
            default
        })
    }

    fn collector(&mut self) -> Option<Destination> {
        if let Some(exporter) = self.value("OTEL_TRACES_EXPORTER").filter(|exporter| exporter != "otlp") {
            if exporter != "none" {
                self.warnings.push("OTEL_TRACES_EXPORTER: only otlp and none are supported; no collector is sent spans".into());
            }
            return None;
        }
        let (name, value) = self.either("ENDPOINT")?;
        let Some(mut url) = http_url(&value) else {
            self.warnings.push(format!("{name} is not an http or https URL; no collector is sent spans"));
            return None;
        };
        // The general endpoint is a base, the one for traces is used as it is.
        if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
            url = below(url, "v1/traces");
        }
        for (end, supported) in [("PROTOCOL", "http/protobuf"), ("COMPRESSION", "none")] {
            if let Some((name, _)) = self.either(end).filter(|(_, value)| value != supported) {
                self.warnings.push(format!("{name}: only {supported} is supported, and is used"));
            }
        }
        for end in ["CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"] {
            if let Some((name, _)) = self.either(end) {
                self.warnings.push(format!("{name} is not supported; the system's certificates count, or SSL_CERT_FILE"));
            }
        }
        let headers = self.headers();
        let timeout = self.timeout();
        Some(Destination { name: "otlp", url, headers, timeout, experiment: None })
    }

    fn timeout(&mut self) -> Duration {
        let name = self.either("TIMEOUT").map_or_else(|| "OTEL_EXPORTER_OTLP_TIMEOUT".to_owned(), |(name, _)| name);
        Duration::from_millis(self.number(&name, 10_000))
    }

    /// `key=value` pairs with percent-encoded values. What is wrong is not quoted: it may be a secret.
    fn headers(&mut self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some((variable, value)) = self.either("HEADERS") else { return headers };
        for (place, pair) in value.split(',').enumerate().filter(|(_, pair)| !pair.trim().is_empty()) {
            let read = pair.split_once('=').and_then(|(key, value)| {
                let value: Vec<u8> = percent_decode_str(value.trim()).collect();
                let mut value = HeaderValue::from_bytes(&value).ok()?;
                value.set_sensitive(true);
                Some((key.trim().parse::<HeaderName>().ok()?, value))
            });
            match read {
                Some((key, value)) => drop(headers.insert(key, value)),
                None => self.warnings.push(format!("{variable}: pair {} is not key=value as a header has it; it is left out", place + 1)),
            }
        }
        headers
    }

    fn mlflow(&mut self, identity: &Identity) -> Option<Destination> {
        let uri = self.value("RUNTIME_MLFLOW_URI")?;
        let Some(url) = http_url(&uri) else {
            self.faults.push("RUNTIME_MLFLOW_URI must be the http or https URL of an MLflow server".into());
            return None;
        };
        let named = [self.value("RUNTIME_MLFLOW_EXPERIMENT"), Some(identity.agent_name.clone())];
        let experiment = named.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or_else(|| SERVICE.to_owned());
        let mut headers = HeaderMap::new();
        if let Some(value) = self.authorization() {
            headers.insert(AUTHORIZATION, value);
        }
        let timeout = self.timeout();
        Some(Destination { name: mlflow::NAME, url, headers, timeout, experiment: Some(experiment) })
    }

    /// The login that MLflow's own clients would use.
    fn authorization(&mut self) -> Option<HeaderValue> {
        use base64::Engine as _;
        let [user, password, token] = ["USERNAME", "PASSWORD", "TOKEN"].map(|end| self.value(&format!("MLFLOW_TRACKING_{end}")));
        let text = match (user, token) {
            (Some(user), _) => {
                let pair = format!("{user}:{}", password.unwrap_or_default());
                format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
            }
            (None, Some(token)) => format!("Bearer {token}"),
            (None, None) => return None,
        };
        let mut value = HeaderValue::from_str(&text).ok();
        match &mut value {
            Some(value) => value.set_sensitive(true),
            None => self.warnings.push("MLFLOW_TRACKING_TOKEN has characters that no header may have; MLflow is asked without it".into()),
        }
        value
    }

    fn sampler(&mut self) -> Sampler {
        let Some(name) = self.value("OTEL_TRACES_SAMPLER") else { return Sampler::default() };
        let ratio = self.value("OTEL_TRACES_SAMPLER_ARG").filter(|_| name.ends_with("traceidratio")).and_then(|text| {
            let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            if ratio.is_none() {
                self.warnings.push("OTEL_TRACES_SAMPLER_ARG is not a number from 0 to 1; 1 is used".into());
            }
            ratio
        });
        Sampler::new(&name, ratio).unwrap_or_else(|| {
            let names = sampler::NAMES.join(", ");
            self.warnings.push(format!("OTEL_TRACES_SAMPLER is none of {names}; parentbased_always_on is used"));
            Sampler::default()
        })
    }

    fn capture(&self) -> bool {
        let value = self.value("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT").unwrap_or_default();
        ["true", "span_only", "span_and_event"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
    }

    fn batching(&mut self) -> Batching {
        let mut size = |name, default| usize::try_from(self.number(name, default)).unwrap_or(usize::MAX);
        let queue_spans = size("OTEL_BSP_MAX_QUEUE_SIZE", 2048);
        let most_spans = size("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512).min(queue_spans);
        Batching { delay: Duration::from_millis(self.number("OTEL_BSP_SCHEDULE_DELAY", 5000)), most_spans, queue_spans }
    }

    fn resource(&mut self, identity: &Identity) -> Vec<(String, String)> {
        let instance = self.value("HOSTNAME").unwrap_or_default();
        let mut pairs = vec![("service.name".to_owned(), self.value("OTEL_SERVICE_NAME").unwrap_or_default())];
        pairs.extend(self.resource_attributes());
        let ours = [
            ("service.name", if identity.agent_name.is_empty() { SERVICE } else { &identity.agent_name }),
            ("service.namespace", &identity.team),
            ("service.version", &identity.agent_version),
            ("service.instance.id", &instance),
            ("slipway.team", &identity.team),
            ("slipway.agent.track", &identity.track),
            ("slipway.run.hash", &identity.run_hash),
            ("telemetry.sdk.name", "slipway"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        pairs.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let mut kept: Vec<(String, String)> = Vec::new();
        for (key, value) in pairs {
            if !value.is_empty() && kept.iter().all(|(other, _)| *other != key) {
                kept.push((key, value));
            }
        }
        kept
    }

    /// `OTEL_RESOURCE_ATTRIBUTES`: all of it, or nothing where one pair is wrong.
    fn resource_attributes(&mut self) -> Vec<(String, String)> {
        let value = self.value("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8().ok().map(std::borrow::Cow::into_owned);
        let pairs = value.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((decoded(key).filter(|key| !key.is_empty())?, decoded(value)?))
        });
        pairs.collect::<Option<_>>().unwrap_or_else(|| {
            self.warnings.push("OTEL_RESOURCE_ATTRIBUTES is not a list of key=value; all of it is left out".into());
            Vec::new()
        })
    }
}

/// The service where the agent has no name.
const SERVICE: &str = "slipway-runtime";

fn http_url(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// The URL of something below a base, whether or not the base ends with a slash.
pub(super) fn below(mut base: Url, path: &str) -> Url {
    let joined = format!("{}/{path}", base.path().trim_end_matches('/'));
    base.set_path(&joined);
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<TelemetrySettings, Vec<String>> {
        let identity = Identity { agent_name: "helper".into(), team: "blue".into(), ..Identity::default() };
        TelemetrySettings::read(identity, &|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn spans_go_nowhere_until_somebody_says_where() {
        for variables in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "x"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_SDK_DISABLED", "TRUE"), ("RUNTIME_MLFLOW_URI", "http://m")],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            let settings = read(variables).unwrap();
            assert!(settings.destinations.is_empty() && settings.warnings.is_empty(), "{variables:?}: {settings:?}");
        }
    }

    #[test]
    fn the_general_endpoint_is_a_base_and_the_one_for_traces_is_not() {
        for (name, value, url) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "http://c:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/", "http://c:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/", "https://c/otlp/v1/traces"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318", "http://c:4318/"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/in", "http://c:4318/in"),
            ("RUNTIME_MLFLOW_URI", "http://m:5000/sub/", "http://m:5000/sub/"),
        ] {
            assert_eq!(read(&[(name, value)]).unwrap().destinations[0].url.as_str(), url, "{name}={value}");
        }
    }

    #[test]
    fn the_variable_for_traces_wins() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/v1/traces"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=general"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", " Api-Key = s%20e,cret , x=%C3%A9,broken"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
        ])
        .unwrap();
        let [collector] = &settings.destinations[..] else { panic!("{settings:?}") };
        assert_eq!((collector.place().as_str(), collector.timeout.as_millis()), ("traces:80", 2500));
        let headers: Vec<_> = collector.headers.iter().map(|(key, value)| (key.as_str(), value.as_bytes())).collect();
        assert_eq!(headers, [("api-key", &b"s e"[..]), ("x", "é".as_bytes())]);
        assert_eq!((settings.batching.delay.as_millis(), settings.batching.queue_spans, settings.batching.most_spans), (100, 10, 10));
        assert_eq!(settings.warnings.len(), 2, "{:?}", settings.warnings);
    }

    #[test]
    fn who_the_spans_come_from() {
        let named = |variables| {
            let settings = read(variables).unwrap();
            settings.resource.into_iter().filter(|(key, _)| key.starts_with("service.") || key == "k").collect::<Vec<_>>()
        };
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(named(&[]), [pair("service.name", "helper"), pair("service.namespace", "blue")]);
        let set = named(&[
            ("OTEL_SERVICE_NAME", "first"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=second, k=a%2Cb ,service.namespace=ns"),
            ("HOSTNAME", "pod-1"),
        ]);
        let expected = [("service.name", "first"), ("k", "a,b"), ("service.namespace", "ns"), ("service.instance.id", "pod-1")];
        assert_eq!(set, expected.map(|(key, value)| pair(key, value)));
        assert_eq!(named(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=second")])[0], pair("service.name", "second"));
        assert_eq!(named(&[("OTEL_RESOURCE_ATTRIBUTES", "k=v,oops")])[0], pair("service.name", "helper"));
    }

    #[test]
    fn what_cannot_be_used_is_warned_of_and_passed_over() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "hunter2"),
            ("OTEL_SDK_DISABLED", "hunter2"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/hunter2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization hunter2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=%0Ahunter2"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "hunter2"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_BSP_SCHEDULE_DELAY", "0"),
            ("OTEL_RESOURCE_ATTRIBUTES", "hunter2"),
        ] {
            let settings = read(&[(name, value), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/v1/traces")]);
            // The endpoint for traces shadows a bad general one.
            let settings = if name.ends_with("_ENDPOINT") { read(&[(name, value)]) } else { settings };
            let warnings = settings.unwrap().warnings;
            assert!(warnings.len() == 1 && warnings[0].contains(name) && !warnings[0].contains("hunter2"), "{name}={value}: {warnings:?}");
        }
        for argument in ["2", "x", "NaN"] {
            let warnings = read(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", argument)]).unwrap().warnings;
            assert_eq!(warnings, ["OTEL_TRACES_SAMPLER_ARG is not a number from 0 to 1; 1 is used"], "{argument}");
        }
    }

    #[test]
    fn mlflow_needs_a_url() {
        for uri in ["databricks", "sqlite:///m.db", "file:///tmp/mlruns", "http://", "m:5000"] {
            let faults = read(&[("RUNTIME_MLFLOW_URI", uri)]).unwrap_err();
            assert_eq!(faults, ["RUNTIME_MLFLOW_URI must be the http or https URL of an MLflow server"], "{uri}");
        }
        for (variables, experiment) in [(&[][..], "helper"), (&[("RUNTIME_MLFLOW_EXPERIMENT", "other")], "other")] {
            let settings = read(&[variables, &[("RUNTIME_MLFLOW_URI", "http://m:5000")]].concat()).unwrap();
            assert_eq!(settings.destinations[0].experiment.as_deref(), Some(experiment));
        }
    }

    #[test]
    fn mlflow_is_given_the_login_of_its_own_clients() {
        for (variables, expected) in [
            (&[][..], None),
            (&[("MLFLOW_TRACKING_USERNAME", "a"), ("MLFLOW_TRACKING_PASSWORD", "b")], Some("Basic YTpi")),
            (&[("MLFLOW_TRACKING_TOKEN", "t")], Some("Bearer t")),
            (&[("MLFLOW_TRACKING_TOKEN", "t\nu")], None),
        ] {
            let settings = read(&[variables, &[("RUNTIME_MLFLOW_URI", "http://m:5000")]].concat()).unwrap();
            let sent = settings.destinations[0].headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap());
            assert_eq!(sent, expected, "{variables:?}");
        }
    }

    #[test]
    fn content_is_captured_only_on_demand() {
        for (value, captured) in
            [("", false), ("false", false), ("true", true), ("True", true), ("SPAN_ONLY", true), ("EVENT_ONLY", false), ("yes", false)]
        {
            let settings = read(&[("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)]).unwrap();
            assert_eq!(settings.capture, captured, "{value}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://u:hunter2@c/hunter2?hunter2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "k=hunter2"),
            ("RUNTIME_MLFLOW_URI", "https://u:hunter2@m"),
            ("MLFLOW_TRACKING_TOKEN", "hunter2"),
        ])
        .unwrap();
        let shown = format!("{settings:?} {:?}", settings.destinations);
        assert!(!shown.contains("hunter2") && shown.contains("mlflow at m:443"), "{shown}");
    }
}
