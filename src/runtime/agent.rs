//! The agent itself: its model, tools, store, guards and memory, put together from the settings once
//! and shared by all turns.

use std::env;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slipway_api::contract::ToolConfig;
use slipway_api::tool::ToolType;
use slipway_database::Fault;
use slipway_guards::Guards;
use slipway_models::embedding::{self, Embedder};
use slipway_models::{Model, Provider, ToolSpec, tokens};
use slipway_tools::{Builtins, Toolbox};
use tokio::sync::mpsc;

use crate::background::Background;
use crate::memory::{self, Recall};
use crate::record::{Recorder, TurnRecord};
use crate::settings::{Budget, Identity, ModelId, Refusal, Settings, Strategy, Suggestions};
use crate::skills::Skills;
use crate::store::Store;
use crate::suggestions;

pub(crate) struct Agent {
    pub(crate) identity: Identity,
    pub(crate) strategy: Strategy,
    pub(crate) system_prompt: Option<String>,
    pub(crate) budget: Budget,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) toolbox: Toolbox,
    pub(crate) skills: Arc<Skills>,
    pub(crate) store: Arc<Store>,
    pub(crate) guards: Guards,
    pub(crate) recorder: Recorder,
    pub(crate) memory: Arc<Recall>,
    pub(crate) suggestions: Suggestions,
    /// A model that repeats what it hears is shown neither past nor memories.
    pub(crate) forgetful: bool,
    /// Whether texts by others than the caller reach the model.
    pub(crate) reads_data: bool,
    pub(crate) background: Background,
    running: Mutex<Option<Running>>,
}

/// Held by each turn under way; when the last is dropped, the receiver of the other end knows.
pub(crate) type Running = mpsc::Sender<()>;

/// Resolves when no turn is under way any more.
pub(crate) type Ended = mpsc::Receiver<()>;

impl Agent {
    /// Puts the agent together. Nothing is connected yet: keys and servers may come later, and are
    /// missed with words when they are needed.
    pub(crate) fn open(settings: Settings, recorder: Recorder) -> Result<(Arc<Self>, Ended), Refusal> {
        let mut faults = Vec::new();
        let mut keep = |fault: String| faults.push(fault);
        let model = open_model("RUNTIME_MODEL_TYPE and RUNTIME_MODEL_ID", &settings.model).map_err(&mut keep).ok();
        let background_model = match &settings.background_model {
            Some(id) => open_model("RUNTIME_BACKGROUND_MODEL", id).map_err(&mut keep).ok(),
            None => model.clone(),
        };
        let embedder = settings.embedding_model.as_deref().and_then(|uri| {
            embedding::open(uri, &variable).map_err(|fault| keep(format!("RUNTIME_EMBEDDING_MODEL: {}", fault.message()))).ok()
        });
        let guards = Guards::read(&settings.guards, &settings.policies).map_err(|all| all.into_iter().for_each(&mut keep)).ok();
        let tool_settings = slipway_tools::Settings::read(&variable).map_err(|all| all.into_iter().for_each(&mut keep)).ok();
        let store = Store::open(settings.storage, &settings.identity).map_err(|fault| keep(format!("RUNTIME_DATABASE_URL: {fault}"))).ok();
        let skills = Arc::new(Skills::new(settings.skills));
        let all = (model, background_model, guards, tool_settings, store);
        let (Some(model), Some(background_model), Some(guards), Some(tool_settings), Some(store)) = all else {
            return Err(Refusal(faults));
        };

        let store = Arc::new(store);
        let memory = Arc::new(Recall::new(Arc::clone(&store), embedder.map(Arc::<dyn Embedder>::from)));
        let mut builtins: Builtins = Vec::new();
        let own = settings.tools.iter().any(is_memory);
        let mut tools = settings.tools;
        if own {
            tools.retain(|tool| !is_memory(tool));
            builtins.extend(memory::tools(&memory));
        }
        builtins.extend(crate::skills::tools(&skills));
        let toolbox = Toolbox::open(tools, builtins, tool_settings, &variable)
            .map_err(|refusals| Refusal(refusals.into_iter().map(|refusal| format!("RUNTIME_TOOLS: {refusal}")).collect()))?;
        if !faults.is_empty() {
            return Err(Refusal(faults));
        }

        let forgetful = model.provider() == Provider::Stub && model.id() == "stub-echo";
        let (running, ended) = mpsc::channel(1);
        if store.persists() {
            tokio::spawn(recorder.clone().write_usage(Arc::clone(&store)));
        }
        let agent = Self {
            strategy: settings.strategy,
            reads_data: settings.strategy == Strategy::React || !skills.listed().is_empty(),
            system_prompt: settings.system_prompt,
            budget: settings.budget,
            suggestions: settings.suggestions,
            background: Background::start(background_model, Arc::clone(&store), Arc::clone(&memory), recorder.clone()),
            identity: settings.identity,
            running: Mutex::new(Some(running)),
            model,
            toolbox,
            skills,
            store,
            guards,
            recorder,
            memory,
            forgetful,
        };
        Ok((Arc::new(agent), ended))
    }

    /// A place for one more turn; none once the agent is shutting down.
    pub(crate) fn running(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes no more turns.
    pub(crate) fn close(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) async fn tool_specs(&self) -> Vec<ToolSpec> {
        let specs = self.toolbox.specs().await.into_iter();
        specs.map(|spec| ToolSpec { name: spec.name, description: spec.description, schema: spec.schema }).collect()
    }

    /// An upper bound where that is cheap, the count where it may matter.
    pub(crate) fn prompt_tokens(&self, text: &str) -> u64 {
        let limit = self.guards.tokens_left(0);
        let bytes = text.len() as u64;
        if limit.is_none_or(|limit| bytes <= limit) {
            bytes.div_ceil(4)
        } else {
            tokens::count(self.model.provider(), self.model.id(), text)
        }
    }

    /// What is remembered that may matter to `message`.
    pub(crate) async fn recall(&self, message: &str, record: &TurnRecord) -> Vec<String> {
        if self.forgetful || self.memory.is_empty() {
            return Vec::new();
        }
        let span = record.memory_search();
        let found = self.memory.relevant(message).await;
        span.finish(Some(found.len() as u64), None);
        found
    }

    /// What a person may want to say next.
    pub(crate) async fn suggest(&self, conversation: Option<&str>, message: &str, answer: &str) -> Vec<String> {
        match &self.suggestions {
            Suggestions::Static(given) => given.clone(),
            Suggestions::Model => {
                const PATIENCE: Duration = Duration::from_secs(3);
                let made = suggestions::make(self.background.model(), &self.recorder, message, answer);
                let made = tokio::time::timeout(PATIENCE, made).await.unwrap_or_default();
                if !made.is_empty() {
                    self.background.suggested(conversation, &made);
                }
                made
            }
        }
    }

    /// Suggestions for those who ask later: the ones of a conversation's last answer, or new ones.
    pub(crate) async fn suggestions_for(&self, conversation: Option<&str>) -> Result<Vec<String>, Fault> {
        let Suggestions::Static(given) = &self.suggestions else {
            let Some(id) = conversation else { return Ok(Vec::new()) };
            if let Some(known) = self.background.suggestions(id) {
                return Ok(known);
            }
            let last = self.store.history(id, 2).await?;
            let [message, answer] = &last[..] else { return Ok(Vec::new()) };
            let made = suggestions::make(self.background.model(), &self.recorder, &message.content, &answer.content).await;
            self.background.suggested(conversation, &made);
            return Ok(made);
        };
        Ok(given.clone())
    }

    /// Leaves what a turn taught to work behind the scenes.
    pub(crate) fn reflect(&self, conversation: Option<&str>, message: &str, answer: &str) {
        if !self.forgetful {
            self.background.reflect(conversation, message, answer);
        }
    }
}

/// The builtin; a tool of another type that is called so stays what it is.
fn is_memory(tool: &ToolConfig) -> bool {
    tool.type_ == ToolType::Builtin && tool.name == memory::TOOL
}

fn open_model(name: &str, id: &ModelId) -> Result<Arc<dyn Model>, String> {
    let model = slipway_models::open(id.provider, &id.id, &variable).map_err(|fault| format!("{name}: {}", fault.message()))?;
    Ok(Arc::from(model))
}

/// The environment, for the rooms that read what is theirs. An empty value counts as unset.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
