//! The API server of the environment by way of one `kubectl proxy`, which lives as long as the test's process: what tests ask
//! again and again is no process each. What is not understood here, or is answered with a fault, is kubectl's own to ask.

use std::io::BufRead;
use std::net::TcpStream;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::api::Api;
use crate::http::{Reply, UnreadReply};

/// Where our kinds are.
pub(crate) const OURS: &str = "/apis/agents.slipway.dev/v1";

/// Begun by who first needs it.
fn door() -> &'static Api {
    static DOOR: OnceLock<Api> = OnceLock::new();
    DOOR.get_or_init(|| Api::kubernetes(None))
}

fn read(path: &str) -> Option<Reply> {
    door().whole("GET", path).try_send().ok()
}

/// What kubectl with these arguments prints, where they are understood and the API server answers well.
pub(crate) fn answer(args: &[String]) -> Option<String> {
    if let [get, raw, path] = args
        && get == "get"
        && raw == "--raw"
        && is_of(path, "/.:-_?=&")
    {
        return read(path).filter(|reply| reply.status == 200).map(|reply| reply.body);
    }
    let line = Line::of(args)?;
    if let Some(patch) = line.patch {
        return patched(&line, patch);
    }
    if !line.has_format() {
        return None;
    }
    let resource = named(line.kind)?;
    let reply = read(&line.path(resource)?)?;
    let answer: Value = serde_json::from_str(&reply.body).ok()?;
    match reply.status {
        200 => line.shown(resource, answer),
        404 if line.may_be_missing && line.name.is_some() && answer["details"]["name"].as_str() == line.name => Some(String::new()),
        _ => None,
    }
}

fn patched(line: &Line, patch: &str) -> Option<String> {
    let (resource, name) = (named(line.kind)?, line.name?);
    let patch: Value = serde_json::from_str(patch).ok()?;
    let call = door().whole("PATCH", &format!("{}?fieldManager=kubectl-patch", line.path(resource)?));
    let reply = call.body("application/merge-patch+json", patch.to_string()).try_send().ok()?;
    (reply.status == 200).then(|| format!("{}/{name} patched\n", resource.label()))
}

/// What a watch tells.
pub(crate) type Events = Box<dyn Iterator<Item = Value> + Send>;

/// The events of the objects of `kubectl get QUERY`, with those that are there first, and the connection, to hang up.
pub(crate) fn watch(query: &str) -> Option<(TcpStream, Events)> {
    let args: Vec<String> = std::iter::once("get").chain(query.split_whitespace()).map(str::to_owned).collect();
    let line = Line::of(&args).filter(|line| line.name.is_none() && line.format.is_empty())?;
    let path = line.path(named(line.kind)?)?;
    let reply = read(&path).filter(|reply| reply.status == 200)?;
    let mut list: Value = serde_json::from_str(&reply.body).ok()?;
    let mark = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{mark}watch=1&resourceVersion={}", list["metadata"]["resourceVersion"].as_str()?);
    let connection = TcpStream::connect(door().address()).ok()?;
    let answer = UnreadReply::ask(connection, "GET", &path, &[], &[]).ok().filter(|answer| answer.status == 200)?;
    // Where nothing changes, nothing is heard.
    answer.body.get_ref().set_read_timeout(None).ok()?;
    let connection = answer.body.get_ref().try_clone().ok()?;
    let there = items(&mut list).into_iter().map(|object| json!({"type": "ADDED", "object": object}));
    let coming = answer.body.lines().map_while(|line| serde_json::from_str::<Value>(&line.ok()?).ok());
    Some((connection, Box::new(there.chain(coming))))
}

/// Makes an object as `kubectl apply` makes one that is not there yet, and answers what it would print.
pub(crate) fn make(namespace: &str, manifest: &Value) -> Option<String> {
    let (group, version) = manifest["apiVersion"].as_str()?.rsplit_once('/').unwrap_or(("", manifest["apiVersion"].as_str()?));
    let is_it = |resource: &&Resource| resource.group == group && resource.version == version && manifest["kind"] == resource.kind;
    let resource = resources().iter().find(is_it)?;
    let name = manifest["metadata"]["name"].as_str()?;
    let mut object = manifest.clone();
    let metadata = object["metadata"].as_object_mut()?;
    if resource.is_namespaced && metadata.entry("namespace").or_insert_with(|| json!(namespace)) != namespace {
        return None;
    }
    metadata.entry("annotations").or_insert_with(|| json!({}));
    let applied = format!("{object}\n");
    object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(applied);
    let path = Line { namespace: Some(namespace), ..Line::default() }.path(resource)?;
    let call = door().whole("POST", &format!("{path}?fieldManager=kubectl-client-side-apply&fieldValidation=Strict")).json(&object);
    call.try_send().is_ok_and(|reply| reply.status == 201).then(|| format!("{}/{name} created\n", resource.label()))
}

/// A token of an account, for the API server itself where no audience is named.
pub(crate) fn token(namespace: &str, account: &str, audiences: &[&str]) -> Option<String> {
    let spec = if audiences.is_empty() { json!({}) } else { json!({"audiences": audiences}) };
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let call = door().whole("POST", &format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token")).json(&request);
    let reply = call.try_send().ok().filter(|reply| reply.status == 201)?;
    Some(serde_json::from_str::<Value>(&reply.body).ok()?["status"]["token"].as_str()?.to_owned())
}

/// Deletes what is at this path, an object or all of a list, if it is there, and does not wait.
pub(crate) fn delete(path: &str) -> Option<()> {
    let reply = door().whole("DELETE", path).json(&json!({"propagationPolicy": "Background"})).try_send().ok()?;
    matches!(reply.status, 200 | 202 | 404).then_some(())
}

/// The arguments of a `kubectl get`, or of a `kubectl patch --type=merge`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Line<'a> {
    kind: &'a str,
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    is_everywhere: bool,
    labels: Option<&'a str>,
    fields: Option<&'a str>,
    may_be_missing: bool,
    format: &'a str,
    is_merge: bool,
    patch: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn of(args: &'a [String]) -> Option<Self> {
        let (mut line, mut words) = (Self::default(), Vec::new());
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            match arg {
                "-n" => line.namespace = Some(args.next()?),
                "-A" | "--all-namespaces" => line.is_everywhere = true,
                "-l" => line.labels = Some(args.next()?),
                "--field-selector" => line.fields = Some(args.next()?),
                "--ignore-not-found" => line.may_be_missing = true,
                "-o" => line.format = args.next()?,
                "--type=merge" => line.is_merge = true,
                "-p" => line.patch = Some(args.next()?),
                option if option.starts_with('-') => return None,
                word => words.push(word),
            }
        }
        let (verb, kind, name) = match words[..] {
            [verb, word] => word.split_once('/').map_or((verb, word, None), |(kind, name)| (verb, kind, Some(name))),
            [verb, kind, name] => (verb, kind, Some(name)),
            _ => return None,
        };
        (line.kind, line.name) = (kind, name);
        let is_known = match verb {
            "get" => line.patch.is_none() && !line.is_merge,
            "patch" => line.patch.is_some() && line.is_merge && line.name.is_some() && line.format.is_empty(),
            _ => false,
        };
        let selectors = [line.labels, line.fields];
        let is_plain = [Some(line.kind), line.name, line.namespace].into_iter().flatten().all(|text| is_of(text, ".-_:"));
        let is_simple = selectors.into_iter().flatten().all(|text| is_of(text, ".-_:/=,!"));
        let is_one = line.name.is_none() || (selectors == [None, None] && !line.is_everywhere);
        (is_known && is_plain && is_simple && is_one).then_some(line)
    }

    /// Where the object or the list is.
    fn path(&self, resource: &Resource) -> Option<String> {
        let Resource { group, version, plural, .. } = resource;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let within = match self.namespace {
            _ if !resource.is_namespaced || self.is_everywhere => String::new(),
            Some(namespace) => format!("/namespaces/{namespace}"),
            // The kubeconfig may say which.
            None => return None,
        };
        let name = self.name.map(|name| format!("/{name}")).unwrap_or_default();
        let selectors = [("labelSelector", self.labels), ("fieldSelector", self.fields)];
        let selectors: Vec<_> = selectors.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?))).collect();
        let mark = if selectors.is_empty() { "" } else { "?" };
        Some(format!("{root}{within}/{plural}{name}{mark}{}", selectors.join("&")))
    }

    fn has_format(&self) -> bool {
        matches!(self.format, "json" | "name") || (self.name.is_some() && field(self.format).is_some())
    }

    /// The API server's answer as kubectl prints it, but for blanks.
    fn shown(&self, resource: &Resource, mut answer: Value) -> Option<String> {
        if let Some(path) = field(self.format) {
            return match path.split('.').fold(&answer, |value, key| &value[key]) {
                Value::Null => Some(String::new()),
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            };
        }
        let is_list = self.name.is_none();
        let mut objects = if is_list { items(&mut answer) } else { vec![answer] };
        for object in &mut objects {
            strip(object);
        }
        if self.format == "name" {
            let name = |object: &Value| format!("{}/{}\n", resource.label(), object["metadata"]["name"].as_str().unwrap_or_default());
            return Some(objects.iter().map(name).collect::<Vec<_>>().concat());
        }
        match objects.pop() {
            None if self.may_be_missing => Some(String::new()),
            Some(object) if !is_list => Some(object.to_string()),
            last => {
                objects.extend(last);
                let metadata = json!({"resourceVersion": ""});
                Some(json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": objects}).to_string())
            }
        }
    }
}

/// The path in `jsonpath={.a.b}`.
fn field(format: &str) -> Option<&str> {
    let path = format.strip_prefix("jsonpath={.")?.strip_suffix('}')?;
    is_of(path, ".").then_some(path)
}

/// Whether it is letters and digits, and some of these.
fn is_of(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

/// The objects of a list, with the kind that the list tells of all.
fn items(list: &mut Value) -> Vec<Value> {
    let Value::Array(mut items) = list["items"].take() else { return Vec::new() };
    let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).unwrap_or_default();
    for item in &mut items {
        if item["kind"].is_null() {
            item["apiVersion"] = list["apiVersion"].clone();
            item["kind"] = json!(kind);
        }
    }
    items
}

/// What kubectl does not show.
fn strip(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

/// What the API server serves.
#[derive(Debug)]
struct Resource {
    group: String,
    version: String,
    plural: String,
    singular: String,
    kind: String,
    is_namespaced: bool,
}

impl Resource {
    /// What kubectl calls its objects.
    fn label(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.kind.to_lowercase(), self.group)
    }
}

/// All that was served when somebody first asked, in the order in which kubectl looks for a name.
fn resources() -> &'static [Resource] {
    static KNOWN: OnceLock<Vec<Resource>> = OnceLock::new();
    KNOWN.get_or_init(|| ["/api", "/apis"].into_iter().flat_map(|path| listed(&discovered(path))).collect())
}

fn discovered(path: &str) -> Value {
    let call = door().whole("GET", path).header("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    call.try_send().ok().and_then(|reply| serde_json::from_str(&reply.body).ok()).unwrap_or_default()
}

fn listed(groups: &Value) -> Vec<Resource> {
    let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for group in each(&groups["items"]) {
        for version in each(&group["versions"]) {
            found.extend(each(&version["resources"]).iter().map(|resource| Resource {
                group: text(&group["metadata"]["name"]),
                version: text(&version["version"]),
                plural: text(&resource["resource"]),
                singular: text(&resource["singularResource"]),
                kind: text(&resource["responseKind"]["kind"]),
                is_namespaced: resource["scope"] == "Namespaced",
            }));
        }
    }
    found
}

/// The resource that kubectl means by `pods`, `pod` or `canaries.flagger.app`.
fn named(name: &str) -> Option<&'static Resource> {
    let (name, group) = name.split_once('.').map_or((name, None), |(name, group)| (name, Some(group)));
    let here = || resources().iter().filter(move |resource| group.is_none_or(|group| group == resource.group));
    here().find(|resource| resource.plural == name).or_else(|| here().find(|resource| resource.singular == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource() -> Resource {
        let groups = json!({"items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [{
            "resource": "deployments", "singularResource": "deployment", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced",
        }]}]}]});
        listed(&groups).pop().unwrap()
    }

    fn path(line: &str) -> Option<String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Line::of(&args)?.path(&resource())
    }

    #[test]
    fn a_line_is_the_path_that_kubectl_asks_for() {
        let table = [
            ("-n a get deployment/b -o json", Some("/apis/apps/v1/namespaces/a/deployments/b")),
            ("get deployment b -n a --ignore-not-found", Some("/apis/apps/v1/namespaces/a/deployments/b")),
            ("get deployments -A", Some("/apis/apps/v1/deployments")),
            (
                "get deployments -n a -l x.dev/y=z,u=v --field-selector metadata.name=b",
                Some("/apis/apps/v1/namespaces/a/deployments?labelSelector=x.dev/y=z,u=v&fieldSelector=metadata.name=b"),
            ),
            ("-n a patch deployment b --type=merge -p {}", Some("/apis/apps/v1/namespaces/a/deployments/b")),
            // kubectl's own to answer.
            ("-n a patch deployment b --type=merge --dry-run=server -p {}", None),
            ("-n a patch deployment b -p {}", None),
            ("-n a get deployment b -p {}", None),
            ("get deployments", None),
            ("get deployments,pods -n a", None),
            ("get deployment/b deployment/c -n a", None),
            ("get deployment/b -n a -l u=v", None),
            ("get deployment/b -n a --as=somebody", None),
            ("get deployment/ -n a", None),
            ("get deployment/b/c -n a", None),
            ("wait deployment/b -n a", None),
        ];
        for (line, expected) in table {
            assert_eq!(path(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn an_answer_is_shown_as_kubectl_shows_it() {
        let object = json!({"metadata": {"name": "b", "managedFields": [{}]}, "spec": {"replicas": 2, "x": {"y": "z"}}});
        let list = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [object]});
        let whole = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b"}, "spec": object["spec"]});
        let empty = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": []});
        let show = |line: &str, answer: &Value| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Line::of(&args).filter(Line::has_format)?.shown(&resource(), answer.clone())
        };
        let shown =
            |items: &[&Value]| json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}).to_string();
        assert_eq!(show("get deployments -A -o json", &list), Some(shown(&[&whole])));
        assert_eq!(show("get deployments -A -o json", &empty), Some(shown(&[])));
        assert_eq!(show("get deployments -A --ignore-not-found -o json", &empty).as_deref(), Some(""));
        assert_eq!(show("get deployments -A -o name", &list).as_deref(), Some("deployment.apps/b\n"));
        assert_eq!(show("get deployment b -o json", &whole), Some(whole.to_string()));
        assert_eq!(show("get deployment b -o jsonpath={.spec.x.y}", &object).as_deref(), Some("z"));
        assert_eq!(show("get deployment b -o jsonpath={.spec.replicas}", &object).as_deref(), Some("2"));
        assert_eq!(show("get deployment b -o jsonpath={.spec.none.such}", &object).as_deref(), Some(""));
        assert_eq!(show("get deployment b -o jsonpath={.spec.x}", &object), None);
        assert_eq!(show("get deployment b -o jsonpath={.items[0]}", &object), None);
        assert_eq!(show("get deployments -A -o wide", &list), None);
        assert_eq!(show("get deployments -A", &list), None);
    }
}
