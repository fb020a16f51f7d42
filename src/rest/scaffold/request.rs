//! The body of `POST /scaffold`, and its conversion to a project.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use slipway_api::agent::{Framework, ModelType};
use slipway_api::names::{self, AgentName};
use slipway_http::Error;
use slipway_scaffold::{Capability, WantedProject};

use crate::fields::AGENT;
use crate::{tools, validate};

/// How many tools a project may have.
const TOOLS_MAX: usize = 16;
const IMAGE_MAX: usize = 512;
const STUB_MODEL: &str = "stub-echo";
/// The providers that a project's program can ask.
const PROVIDERS: [ModelType; 4] = [ModelType::Stub, ModelType::Ollama, ModelType::Openai, ModelType::Anthropic];

/// What images of projects are called, and what they are built on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScaffoldSettings {
    /// Registry and path: images are `{registry}/{team}/{slug}:0.1.0`. Empty: `{slug}:0.1.0`, which no node pulls.
    pub registry: String,
    /// The image that Containerfiles begin with.
    pub base_image: String,
}

impl Default for ScaffoldSettings {
    fn default() -> Self {
        Self { registry: String::new(), base_image: "docker.io/library/python:3.13-slim".to_owned() }
    }
}

/// A project that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Scaffold")]
pub(crate) struct Request {
    /// Display name of the agent.
    #[schemars(length(min = 1, max = 128))]
    name: String,
    /// What the agent and the project's folder are called. Default: the name in lower case, with hyphens.
    #[schemars(length(max = 52), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    slug: Option<String>,
    /// What the agent is for, in a sentence or two.
    #[schemars(length(max = 2048))]
    description: Option<String>,
    /// What the program is built with.
    pub(super) framework: Framework,
    /// What the project has. Default: streaming, guardrails, evaluation and ci, and tools if there are some.
    #[schemars(length(max = 8), extend("uniqueItems" = true))]
    capabilities: Option<Vec<Capability>>,
    /// Tools of the agent: those of the team by slug, whose manifests are copied, or fields as `POST /tools` takes them.
    #[schemars(length(max = 16))]
    tools: Option<Vec<WantedToolFields>>,
    /// How the project is handed over. Only zip.
    #[schemars(regex(pattern = r"^zip$"))]
    delivery: Option<String>,
    /// The image of the project's program. Default: one in the registry of the chart value scaffold.registry.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"))]
    image: Option<String>,
    /// The model's provider: stub, ollama, openai or anthropic. Default stub.
    #[serde(alias = "modelType")]
    model_type: Option<ModelType>,
    /// The provider's name for the model. Default stub-echo, of the stub.
    #[serde(alias = "modelId")]
    #[schemars(length(min = 1, max = 256))]
    model_id: Option<String>,
    /// The instructions that every conversation begins with. Default: a sentence of name and description.
    #[serde(alias = "systemPrompt")]
    #[schemars(length(max = 122_880))]
    system_prompt: Option<String>,
}

/// A tool of a project.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ScaffoldTool")]
pub(crate) enum WantedToolFields {
    /// The slug of a tool of the team.
    Name(String),
    /// A tool by its fields.
    Fields(tools::Fields),
}

impl Request {
    /// The project without its tools, and these.
    pub(super) fn read(self, settings: &ScaffoldSettings, namespace: &str) -> Result<(WantedProject, Vec<WantedToolFields>), Error> {
        let Self { name, slug, description, framework, capabilities, tools, delivery, image, model_type, model_id, system_prompt } = self;
        let slug = match slug {
            Some(slug) => AgentName::new(slug).map_err(|error| Error::bad_request(format!("slug: {error}")))?,
            None => names::slugify(&name)
                .and_then(AgentName::new)
                .map_err(|error| Error::bad_request(format!("name: {error}; `slug` can be given apart from it")))?,
        };
        if name.trim().is_empty() {
            return Err(Error::bad_request("name: must not be empty"));
        }
        if delivery.is_some_and(|delivery| delivery != "zip") {
            return Err(Error::bad_request("delivery: must be zip"));
        }
        let tools = tools.unwrap_or_default();
        if tools.len() > TOOLS_MAX {
            return Err(Error::bad_request(format!("tools: must have at most {TOOLS_MAX} items, and has {}", tools.len())));
        }
        let capabilities = chosen(capabilities, !tools.is_empty())?;
        let (model_type, model_id) = model(model_type, model_id)?;
        let spec = json!({"name": name, "description": description, "modelId": model_id, "systemPrompt": system_prompt});
        validate::spec(&AGENT, &spec)?;
        let image = image_of(image, settings, namespace, slug.as_str())?;
        let wanted = WantedProject {
            name,
            slug: slug.as_str().to_owned(),
            description: description.filter(|about| !about.is_empty()),
            namespace: namespace.to_owned(),
            framework,
            capabilities,
            tools: Vec::new(),
            image,
            base_image: settings.base_image.clone(),
            model_type,
            model_id,
            system_prompt: system_prompt.filter(|prompt| !prompt.is_empty()),
        };
        Ok((wanted, tools))
    }
}

fn chosen(given: Option<Vec<Capability>>, has_tools: bool) -> Result<Vec<Capability>, Error> {
    let Some(given) = given else {
        let mut chosen = Capability::DEFAULT.to_vec();
        chosen.extend(has_tools.then_some(Capability::Tools));
        return Ok(chosen);
    };
    if let Some((_, twice)) = given.iter().enumerate().find(|(at, capability)| given[..*at].contains(capability)) {
        return Err(Error::bad_request(format!("capabilities: {} is there twice", twice.as_str())));
    }
    if has_tools && !given.contains(&Capability::Tools) {
        return Err(Error::bad_request("capabilities: must have tools, because there are some"));
    }
    Ok(given)
}

/// Provider and model, as the rules of the Agent have them.
fn model(model_type: Option<ModelType>, model_id: Option<String>) -> Result<(ModelType, String), Error> {
    let model_type = model_type.unwrap_or_default();
    if !PROVIDERS.contains(&model_type) {
        let words = PROVIDERS.map(ModelType::as_str).join(", ");
        return Err(Error::bad_request(format!("model_type: must be one of {words}, which the project's program can ask")));
    }
    let is_stub = model_type == ModelType::Stub;
    match model_id {
        None if is_stub => Ok((model_type, STUB_MODEL.to_owned())),
        None => Err(Error::bad_request(format!("model_id: is required with model_type {}", model_type.as_str()))),
        Some(id) if id.is_empty() => Err(Error::bad_request("model_id: must not be empty")),
        Some(id) if is_stub != (id == STUB_MODEL) => {
            Err(Error::bad_request("model_id: must name a model of the provider in model_type; the stub has stub-echo"))
        }
        Some(id) => Ok((model_type, id)),
    }
}

/// The image: as given, or one in the chart's registry. Its letters mean nothing to a shell.
fn image_of(given: Option<String>, settings: &ScaffoldSettings, namespace: &str, slug: &str) -> Result<String, Error> {
    let Some(image) = given else {
        let team = namespace.strip_prefix("team-").unwrap_or(namespace);
        let registry = settings.registry.trim_end_matches('/');
        return Ok(if registry.is_empty() { format!("{slug}:0.1.0") } else { format!("{registry}/{team}/{slug}:0.1.0") });
    };
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._:/@-".contains(letter);
    if image.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && image.chars().all(is_letter) && image.len() <= IMAGE_MAX {
        Ok(image)
    } else {
        Err(Error::bad_request("image: must be the name of an image, of at most 512 letters, digits and ._:/@-"))
    }
}
