//! The agent itself: its model, tools, store, guards and memory, put together from the settings once
//! and shared by all turns.

use std::borrow::Cow;
use std::env;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use slipway_api::contract::ToolConfig;
use slipway_api::tool::ToolType;
use slipway_database::{Fault, Role};
use slipway_guards::{Guards, Ruled, Side, Verdict};
use slipway_models::embedding::{self, Embedder};
use slipway_models::{Model, Provider, ToolSpec, Usage, tokens};
use slipway_tools::{Builtins, Toolbox};
use tokio::task::{JoinError, spawn_blocking};
use tracing::warn;

use crate::background::Background;
use crate::budgets::Budgets;
use crate::evaluation::Sampling;
use crate::knowledge::Knowledge;
use crate::memory::{self, Recall};
use crate::policies::Policies;
use crate::record::{Recorder, TurnRecord};
use crate::settings::{Budget, Evaluator, Identity, ModelId, Refusal, Settings, Strategy, Suggestions};
use crate::skills::Skills;
use crate::store::Store;
use crate::suggestions;
use crate::turns::Turns;

/// In bytes. So much takes half a millisecond.
const JUDGED_AT_ONCE: usize = 16 * 1024;

pub(crate) struct Agent {
    pub(crate) identity: Identity,
    pub(crate) strategy: Strategy,
    pub(crate) system_prompt: Option<String>,
    pub(crate) budget: Budget,
    pub(crate) grace: Duration,
    /// Where the ends of evaluations are reported.
    pub(crate) platform_url: Option<Url>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) skills: Arc<Skills>,
    pub(crate) store: Arc<Store>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) budgets: Arc<Budgets>,
    /// One of the agent's models whose price is unknown.
    pub(crate) unpriced: Option<String>,
    pub(crate) recorder: Recorder,
    pub(crate) memory: Arc<Recall>,
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) suggestions: Suggestions,
    /// A model that repeats what it hears is shown neither past nor memories.
    pub(crate) forgetful: bool,
    /// Whether texts by others than the caller reach the model.
    pub(crate) reads_data: bool,
    pub(crate) background: Background,
    /// None where no answers are sampled.
    pub(crate) sampling: Option<Sampling>,
    /// Where this answers nobody, and evaluates an agent that has an image of its own.
    pub(crate) evaluator: Option<Evaluator>,
    pub(crate) turns: Turns,
}

impl Agent {
    /// Puts the agent together. Nothing is connected yet: keys and servers may come later, and are
    /// missed with words when they are needed. `refusal` has what others have found wrong.
    pub(crate) fn open(
        settings: Settings,
        policies: Arc<Policies>,
        recorder: Recorder,
        mut refusal: Refusal,
    ) -> Result<Arc<Self>, Refusal> {
        let provider = settings.model.provider;
        let model = refusal.keep(open_model("RUNTIME_MODEL_TYPE and RUNTIME_MODEL_ID", &settings.model, provider));
        let background_model = match &settings.background_model {
            Some(id) => refusal.keep(open_model("RUNTIME_BACKGROUND_MODEL", id, provider)),
            None => model.clone(),
        };
        let embedder = settings.embedding_model.as_deref().and_then(|uri| {
            refusal.keep(embedding::open(uri, &variable).map_err(|fault| format!("RUNTIME_EMBEDDING_MODEL: {}", fault.message())))
        });
        let store =
            refusal.keep(Store::open(settings.storage, &settings.identity).map_err(|fault| format!("RUNTIME_DATABASE_URL: {fault}")));
        let tool_settings = refusal.keep_all(slipway_tools::ToolSettings::read(&variable));
        let skills = Arc::new(Skills::new(settings.skills));

        // Without its database the agent's tools are looked at all the same.
        let store = Arc::new(store.unwrap_or_else(|| Store::Memory(Box::default())));
        let memory = Arc::new(Recall::new(Arc::clone(&store), embedder.map(Arc::<dyn Embedder>::from), recorder.clone()));
        let mut builtins: Builtins = Vec::new();
        let own = settings.tools.iter().any(is_memory);
        let mut tools = settings.tools;
        if own {
            tools.retain(|tool| !is_memory(tool));
            builtins.extend(memory::tools(&memory));
        }
        builtins.extend(crate::skills::tools(&skills));
        let taken = tools.iter().map(|tool| tool.name.clone()).chain(builtins.iter().map(|builtin| builtin.spec().name)).collect();
        let knowledge = Knowledge::open(settings.knowledge, &settings.identity.team, &taken, &variable);
        let knowledge = Arc::new(refusal.keep_all(knowledge).unwrap_or_default());
        builtins.extend(knowledge.tools());
        let toolbox = tool_settings.and_then(|settings| {
            let opened = Toolbox::open(tools, builtins, settings, &variable);
            refusal.keep_all(opened.map_err(|faults| faults.into_iter().map(|fault| format!("RUNTIME_TOOLS: {fault}")).collect()))
        });
        let sampling = settings
            .sampling
            .and_then(|sampling| refusal.keep(Sampling::start(sampling, !knowledge.is_empty(), &store, &recorder)).flatten());
        let (true, Some(model), Some(background_model), Some(toolbox)) = (refusal.is_empty(), model, background_model, toolbox) else {
            return Err(refusal);
        };

        let is_priced = |model: &Arc<dyn Model>| recorder.cost(model.provider(), model.id(), &Usage::default()).is_some();
        let unpriced = [&model, &background_model].into_iter().find(|model| !is_priced(model));
        let unpriced = unpriced.map(|model| format!("{}:{}", model.provider(), model.id()));
        if let Some(model) = unpriced.as_ref().filter(|_| policies.current().counts_spending()) {
            warn!(model, "nobody knows what this model costs, so that limits of cost refuse every chat or say nothing");
        }
        let forgetful = model.provider() == Provider::Stub && model.id() == "stub-echo";
        let budgets = Budgets::open(&store, &policies, &recorder);
        if store.persists() {
            tokio::spawn(recorder.clone().write_usage(Arc::clone(&store)));
            tokio::spawn(Arc::clone(&budgets).keep());
        }
        let agent = Self {
            strategy: settings.strategy,
            reads_data: settings.strategy == Strategy::React || !skills.listed().is_empty(),
            system_prompt: settings.system_prompt,
            budget: settings.budget,
            grace: settings.grace,
            platform_url: settings.platform_url,
            suggestions: settings.suggestions,
            background: Background::start(background_model, Arc::clone(&store), Arc::clone(&memory), recorder.clone()),
            identity: settings.identity,
            evaluator: settings.evaluator,
            sampling,
            turns: Turns::new(),
            model,
            toolbox: Arc::new(toolbox),
            skills,
            store,
            policies,
            budgets,
            unpriced,
            recorder,
            memory,
            knowledge,
            forgetful,
        };
        Ok(Arc::new(agent))
    }

    /// The same agent for the turns of an evaluation: with its model, tools, skills, knowledge bases and the guards of texts, and without a
    /// past, memories and limits. What these turns do counts nowhere, and nothing of it is kept.
    pub(crate) fn rehearsing(&self, run: &str) -> Self {
        let (store, recorder) = (Arc::new(Store::Memory(Box::default())), self.recorder.rehearsing(run));
        let memory = Arc::new(Recall::new(Arc::clone(&store), None, recorder.clone()));
        Self {
            identity: self.identity.clone(),
            strategy: self.strategy,
            system_prompt: self.system_prompt.clone(),
            budget: self.budget,
            grace: self.grace,
            platform_url: None,
            model: Arc::clone(&self.model),
            toolbox: Arc::clone(&self.toolbox),
            skills: Arc::clone(&self.skills),
            policies: self.policies.rehearsing(),
            budgets: Arc::clone(&self.budgets),
            unpriced: None,
            suggestions: Suggestions::Static(Vec::new()),
            forgetful: self.forgetful,
            reads_data: self.reads_data,
            background: Background::start(Arc::clone(&self.model), Arc::clone(&store), Arc::clone(&memory), recorder.clone()),
            sampling: None,
            evaluator: None,
            turns: Turns::new(),
            store,
            recorder,
            memory,
            knowledge: Arc::clone(&self.knowledge),
        }
    }

    pub(crate) async fn tool_specs(&self) -> Vec<ToolSpec> {
        let specs = self.toolbox.specs().await.into_iter();
        specs.map(|spec| ToolSpec { name: spec.name, description: spec.description, schema: spec.schema }).collect()
    }

    /// The tools that policies do not deny.
    pub(crate) async fn offered_tools(&self, guards: &Guards) -> Vec<ToolSpec> {
        let mut specs = self.tool_specs().await;
        if guards.denies_tools() {
            let mut allowed = Vec::new();
            for spec in specs {
                if Ruled::block(&self.rules_of_tool(guards, &spec.name).await).is_none() {
                    allowed.push(spec);
                }
            }
            specs = allowed;
        }
        specs
    }

    /// What policies say about a call of a tool.
    pub(crate) async fn rules_of_tool(&self, guards: &Guards, name: &str) -> Vec<Ruled> {
        if !guards.denies_tools() {
            return Vec::new();
        }
        if memory::is_tool(name) {
            return guards.tool(name, memory::TOOL);
        }
        if let Some(origin) = self.toolbox.origin(name).await {
            return guards.tool(name, origin);
        }
        // A server that is down may be up again when the call is made.
        let mut ruled = guards.tool(name, name);
        for server in self.toolbox.possible_servers(name) {
            // By the server's name: that of the tool may be the model's invention.
            let more = guards.tool(server, server).into_iter().filter(|more| !ruled.contains(more)).collect::<Vec<_>>();
            ruled.extend(more);
        }
        ruled
    }

    /// An estimate where the limit cannot be passed, the count where it may matter. A vocabulary takes a third
    /// of a second to load and a millisecond for 10 KiB: others go on meanwhile.
    pub(crate) async fn prompt_tokens(&self, guards: &Guards, texts: &[&String]) -> u64 {
        let bytes = texts.iter().map(|text| text.len() as u64).sum();
        if guards.tokens_left(0).is_none_or(|limit| bytes <= limit) {
            return tokens::estimate(bytes);
        }
        let (model, texts) = (Arc::clone(&self.model), texts.iter().map(|text| (*text).clone()).collect::<Vec<_>>());
        let count = move || texts.iter().map(|text| tokens::count(model.provider(), model.id(), text)).sum();
        // There are never more tokens than bytes.
        spawn_blocking(count).await.unwrap_or(bytes)
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
                let made = suggestions::make(self.background.model(), &self.recorder, message, answer).await;
                if !made.is_empty() {
                    self.background.suggested(conversation, &made);
                }
                made
            }
        }
    }

    /// The cached suggestions of a conversation's last answer, or new ones.
    pub(crate) async fn suggestions_for(&self, conversation: Option<&str>) -> Result<Vec<String>, Fault> {
        if let Suggestions::Static(given) = &self.suggestions {
            return Ok(given.clone());
        }
        let Some(id) = conversation else { return Ok(Vec::new()) };
        if let Some(known) = self.background.suggestions(id) {
            return Ok(known);
        }
        let last = self.store.history(id, 2).await?;
        match &last[..] {
            // A question that waits for its answer, or has none, suggests nothing.
            [said, answer] if said.role == Role::User && answer.role == Role::Assistant => {
                Ok(self.suggest(conversation, &said.content, &answer.content).await)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Leaves what a turn taught to work behind the scenes.
    pub(crate) fn reflect(&self, conversation: Option<&str>, message: &str, answer: &str) {
        if !self.forgetful {
            self.background.reflect(conversation, message, answer);
        }
    }
}

/// What the guards make of a text. They take tens of milliseconds for the longest that there may be: such are judged aside.
pub(crate) async fn judge<'a>(guards: &Guards, side: Side, text: &'a str) -> Verdict<'a> {
    if text.len() <= JUDGED_AT_ONCE {
        return guards.check(side, text);
    }
    let (guards, text) = (guards.clone(), text.to_owned());
    let judged = spawn_blocking(move || {
        let Verdict { findings, text, blocked } = guards.check(side, &text);
        Verdict { findings, text: Cow::Owned(text.into_owned()), blocked }
    });
    match judged.await.map_err(JoinError::try_into_panic) {
        Ok(verdict) => verdict,
        // What could not be judged goes no further.
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => std::future::pending().await,
    }
}

/// The builtin; a tool of another type that is called so stays what it is.
fn is_memory(tool: &ToolConfig) -> bool {
    tool.type_ == ToolType::Builtin && tool.name == memory::TOOL
}

/// One of the agent's own models. `own` is the provider that the agent names: models of that one are asked where an integration says.
fn open_model(name: &str, id: &ModelId, own: Provider) -> Result<Arc<dyn Model>, String> {
    let open = if id.provider == own { slipway_models::open_own } else { slipway_models::open };
    let model = open(id.provider, &id.id, &variable).map_err(|fault| format!("{name}: {}", fault.message()))?;
    Ok(Arc::from(model))
}

/// The environment, for the rooms that read what is theirs. An empty value counts as unset.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
