//! `POST /scaffold`: a project for an agent, as a zip archive. Nothing is made in the cluster, and the same request is the same
//! bytes.

mod request;

use kube::api::Api;
use serde_json::{Map, Value};
use slipway_api::Tool;
use slipway_api::agent::Framework;
use slipway_http::{Error, HeaderName, HeaderValue, header};
use slipway_scaffold::{ARCHIVE_BYTES_MAX, VERSION, WantedProject, WantedTool, archive, project};

pub use request::ScaffoldSettings;
use request::{Request, WantedToolFields};

use crate::answer::Archive;
use crate::call::{Call, Json};
use crate::permission::Right;
use crate::tools::Fields;
use crate::{cluster_error, tools};

/// The version of the templates.
const SCAFFOLD: HeaderName = HeaderName::from_static("x-slipway-scaffold");
/// How much the Tools of a project may have together.
const TOOLS_BYTES_MAX: usize = 256 * 1024;
const READ_TOOL: Right = Right::on("get", "tools");

pub(crate) async fn create(call: Call<Json<Request>>) -> Result<Archive, Error> {
    let (call, Json(request)) = call.split();
    let framework = request.framework;
    let (mut wanted, named) = request.read(&call.context.settings.scaffold, &call.namespace())?;
    let mut bytes = 0_usize;
    for (at, tool) in named.into_iter().enumerate() {
        let tool = match tool {
            WantedToolFields::Name(slug) => present(&call, at, slug).await?,
            WantedToolFields::Fields(Fields(fields)) => given(at, fields)?,
        };
        bytes += serde_json::to_vec(&tool.spec).map_or(TOOLS_BYTES_MAX, |json| json.len());
        if bytes > TOOLS_BYTES_MAX {
            return Err(Error::bad_request(format!("tools: must have at most {TOOLS_BYTES_MAX} bytes as JSON together")));
        }
        if wanted.tools.iter().any(|other| other.slug == tool.slug) {
            return Err(Error::bad_request(format!("tools[{at}]: tool {} is there twice", tool.slug)));
        }
        wanted.tools.push(tool);
    }
    let answer = packed(&wanted)?;
    call.context.metrics.scaffold(Framework::as_str(framework));
    Ok(answer)
}

/// A Tool of the team, which the caller has to be allowed to read.
async fn present(call: &Call, at: usize, slug: String) -> Result<WantedTool, Error> {
    let namespace = call.namespace();
    let missing = || Error::bad_request(format!("tools[{at}]: there is no tool {slug} in this team; give its fields"));
    if !slipway_api::names::is_name(&slug) || !call.context.access.allows(&call.caller, READ_TOOL, &namespace, Some(&slug)).await? {
        return Err(missing());
    }
    let api: Api<Tool> = Api::namespaced(call.client(), &namespace);
    let found = api.get_opt(&slug).await.map_err(|error| cluster_error::from_kube(error, &format!("tool {slug}")))?;
    let spec = found.ok_or_else(missing)?.spec;
    Ok(WantedTool { slug, spec })
}

/// A Tool by its fields, as `POST /tools` takes them.
fn given(at: usize, fields: Map<String, Value>) -> Result<WantedTool, Error> {
    let (slug, spec) = tools::read(fields).map_err(|error| Error::bad_request(format!("tools[{at}]: {}", error.message())))?;
    Ok(WantedTool { slug, spec })
}

fn packed(wanted: &WantedProject) -> Result<Archive, Error> {
    let content = archive(&wanted.slug, &project(wanted)).map_err(Error::internal)?;
    if content.len() > ARCHIVE_BYTES_MAX {
        return Err(Error::bad_request(format!(
            "the archive would have more than {ARCHIVE_BYTES_MAX} bytes; give less text, or fewer tools"
        )));
    }
    let file = HeaderValue::try_from(format!("attachment; filename=\"{}.zip\"", wanted.slug)).map_err(Error::internal)?;
    let headers = vec![(header::CONTENT_DISPOSITION, file), (SCAFFOLD, HeaderValue::from_static(VERSION))];
    Ok(Archive { content, headers })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_scaffold::File;

    use super::*;
    use crate::validate;

    fn read(body: Value) -> Result<WantedProject, String> {
        let request: Request = serde_json::from_value(body).map_err(|error| error.to_string())?;
        let (mut wanted, tools) = request.read(&ScaffoldSettings::default(), "team-a").map_err(|error| error.message().to_owned())?;
        for (at, tool) in tools.into_iter().enumerate() {
            let WantedToolFields::Fields(Fields(fields)) = tool else { panic!("the test has no cluster") };
            wanted.tools.push(given(at, fields).map_err(|error| error.message().to_owned())?);
        }
        Ok(wanted)
    }

    fn tool() -> Value {
        json!({"name": "Get Weather", "slug": "weather", "type": "http", "endpoint": "https://a.example/{city}", "parameters": [{"name": "city", "type": "string"}]})
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let wanted = read(json!({"name": "My Helper", "framework": "custom"})).unwrap();
        assert_eq!((wanted.slug.as_str(), wanted.image.as_str(), wanted.namespace.as_str()), ("my-helper", "my-helper:0.1.0", "team-a"));
        assert_eq!((wanted.model_type.as_str(), wanted.model_id.as_str()), ("stub", "stub-echo"));
        let words: Vec<_> = wanted.capabilities.iter().map(|capability| capability.as_str()).collect();
        assert_eq!(words, ["streaming", "guardrails", "evaluation", "ci"]);
        let with_tools = read(json!({"name": "x", "framework": "adk", "tools": [tool()]})).unwrap();
        assert!(with_tools.capabilities.iter().any(|capability| capability.as_str() == "tools"));
        assert_eq!(with_tools.tools[0].slug, "weather");
    }

    #[test]
    fn the_image_lies_in_the_charts_registry_if_it_has_one() {
        let settings = ScaffoldSettings { registry: "registry.example.com/agents".to_owned(), ..ScaffoldSettings::default() };
        let image = |body: Value| {
            let request: Request = serde_json::from_value(body).unwrap();
            request.read(&settings, "team-a").unwrap().0.image
        };
        assert_eq!(image(json!({"name": "x", "framework": "custom"})), "registry.example.com/agents/a/x:0.1.0");
        assert_eq!(image(json!({"name": "x", "framework": "custom", "image": "mine/x:2"})), "mine/x:2");
    }

    #[test]
    fn what_does_not_fit_is_named_with_what_would() {
        let with = |more: Value| {
            let mut body = json!({"name": "x", "framework": "custom"});
            for (field, value) in more.as_object().unwrap() {
                body[field.as_str()] = value.clone();
            }
            read(body)
        };
        for (more, words) in [
            (json!({"framework": "spring"}), "custom"),
            (json!({"name": " ", "slug": "x"}), "name: must not be empty"),
            (json!({"name": "!!!"}), "name: "),
            (json!({"name": "x".repeat(60)}), "name: "),
            (json!({"slug": "x-canary"}), "slug: "),
            (json!({"delivery": "git"}), "delivery: must be zip"),
            (json!({"capabilities": ["flying"]}), "streaming"),
            (json!({"capabilities": ["ci", "ci"]}), "capabilities: ci is there twice"),
            (json!({"capabilities": ["ci"], "tools": [tool()]}), "capabilities: must have tools"),
            (json!({"tools": vec![tool(); 17]}), "tools: "),
            (json!({"tools": [{"name": "x"}]}), "tools[0]: "),
            (json!({"image": "x; rm -rf /"}), "image: "),
            (json!({"model_type": "bedrock", "model_id": "x"}), "model_type: "),
            (json!({"model_type": "openai"}), "model_id: "),
            (json!({"system_prompt": "x".repeat(122_881)}), "system_prompt: "),
            (json!({"description": "x".repeat(2049)}), "description: "),
            (json!({"colour": "red"}), "colour"),
        ] {
            let error = with(more.clone()).unwrap_err();
            assert!(error.contains(words), "{more}: {error}");
        }
    }

    #[test]
    fn every_manifest_is_one_that_the_schema_takes() {
        let all: Vec<_> = slipway_scaffold::Capability::ALL.iter().map(|capability| capability.as_str()).collect();
        for framework in Framework::ALL {
            let body = json!({"name": "x".repeat(52), "description": "y".repeat(2048), "framework": framework, "capabilities": all, "tools": [tool()]});
            let files = project(&read(body).unwrap());
            let mut kinds = Vec::new();
            for File { path, content, .. } in
                files.iter().filter(|file| file.path.starts_with("deploy/") && !file.path.contains("own-image"))
            {
                let manifest: Value = serde_yaml::from_str(content).unwrap();
                if path.ends_with("kustomization.yaml") {
                    continue;
                }
                validate::object(&manifest).unwrap_or_else(|error| panic!("{path}: {}", error.message()));
                assert!(manifest["metadata"]["name"].as_str().unwrap().len() <= 63, "{path}");
                kinds.push(manifest["kind"].as_str().unwrap().to_owned());
            }
            kinds.sort_unstable();
            assert_eq!(kinds, ["Agent", "Dataset", "EvaluationRun", "GuardrailPolicy", "KnowledgeBase", "Tool"]);
        }
    }

    #[test]
    fn the_largest_project_fits_into_an_archive() {
        // Text that cannot be made smaller.
        let prompt: String = (0_u32..30_000).map(|at| char::from_u32(0x4e00 + at.wrapping_mul(7919) % 20_000).unwrap()).collect();
        let wanted = read(json!({"name": "x", "framework": "adk", "system_prompt": prompt, "tools": [tool()]})).unwrap();
        assert!(packed(&wanted).unwrap().content.starts_with(b"PK"));
    }
}
