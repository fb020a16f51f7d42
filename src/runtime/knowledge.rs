//! Knowledge bases: what an agent finds in documents before and while it answers. With `agent-react` each base is a tool of
//! the model's (`tool`); with `simple` all bases are searched for the question. A base that does not answer never fails a turn.

mod base;
mod name;
mod passage;
mod query;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use reqwest::Url;
use slipway_api::contract::KnowledgeBaseConfig;
use slipway_database::knowledge::{KnowledgeBase, KnowledgeOptions};
use slipway_models::embedding::{self, Embedder};
use slipway_tools::Builtins;

use crate::settings::KnowledgeBases;
use base::{Base, EmbeddedQuestion, Unfound};
pub(crate) use passage::{Passage, PassageSource, before, found};
pub(crate) use query::Query;
pub(crate) use tool::{SearchFindings, wanted};

/// How many searches the model may have made in one turn.
pub(crate) const MAX_SEARCHES: usize = 20;
/// How many passages of a base are looked at for a question, and how many of all bases a prompt gets.
pub(crate) const CANDIDATES: u32 = 8;
const MAX_PROMPT_PASSAGES: usize = 8;
/// Tokens of the passages in a prompt, as estimated.
const MAX_PROMPT_TOKENS: u64 = 3000;
/// A passage that is less like the question is about something else.
const MIN_COSINE: f64 = 0.25;
/// Of a pod, to all bases of a database. They are among those that the team's login may have.
const CONNECTIONS: u32 = 2;
/// An agent with more bases is not made by the platform.
const MAX_BASES: usize = 32;

#[derive(Default)]
pub(crate) struct Knowledge {
    bases: Vec<Arc<Base>>,
}

/// What all bases had for a question.
#[derive(Debug, Default)]
pub(crate) struct Retrieved {
    /// The best first.
    pub(crate) passages: Vec<Passage>,
    /// The ids of the bases that did not answer.
    pub(crate) unavailable: Vec<String>,
}

impl Knowledge {
    /// Connects to nothing yet. `taken` are the names of the agent's tools.
    pub(crate) fn open(
        settings: KnowledgeBases,
        team: &str,
        taken: &BTreeSet<String>,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<String>> {
        let KnowledgeBases { configs, password, sslmode } = settings;
        let (mut bases, mut faults, mut ids) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut embedders: BTreeMap<String, Arc<dyn Embedder>> = BTreeMap::new();
        let mut libraries: BTreeMap<String, KnowledgeBase> = BTreeMap::new();
        if configs.len() > MAX_BASES {
            return Err(vec![format!("RUNTIME_KNOWLEDGE_BASES may have {MAX_BASES} knowledge bases")]);
        }
        let mut names = taken.clone();
        for config in configs {
            let KnowledgeBaseConfig { kb_id, name, description, store, connection_url, embedding } = config;
            let shown = kb_id[..kb_id.floor_char_boundary(80)].to_owned();
            let mut fault = |words: String| faults.push(format!("RUNTIME_KNOWLEDGE_BASES: {shown:?}: {words}"));
            if kb_id.is_empty() || !ids.insert(kb_id.clone()) {
                fault("kb_id must be there, and differ from that of other bases".to_owned());
                continue;
            }
            if store != "pgvector" {
                fault("store must be pgvector".to_owned());
                continue;
            }
            let embedder = match embedders.get(&embedding.model) {
                Some(embedder) => Arc::clone(embedder),
                None => match embedding::open(&embedding.model, variables) {
                    Ok(embedder) => {
                        let embedder: Arc<dyn Embedder> = Arc::from(embedder);
                        embedders.insert(embedding.model.clone(), Arc::clone(&embedder));
                        embedder
                    }
                    Err(refused) => {
                        fault(format!("embedding.model: {}", refused.message()));
                        continue;
                    }
                },
            };
            // Bases of one database share its connections.
            let documents = match libraries.get(&connection_url) {
                Some(library) => library.other(&kb_id),
                None => KnowledgeBase::open(&KnowledgeOptions {
                    url: connection_url.clone(),
                    password: password.clone().filter(|_| !has_password(&connection_url)),
                    sslmode: sslmode.clone(),
                    team: team.to_owned(),
                    kb_id: kb_id.clone(),
                    connections: CONNECTIONS,
                }),
            };
            let documents = match documents {
                Ok(documents) => documents,
                Err(refused) => {
                    fault(refused.to_string());
                    continue;
                }
            };
            libraries.entry(connection_url).or_insert_with(|| documents.clone());
            let tool = name::tool(&kb_id, &names);
            names.insert(tool.clone());
            bases.push(Arc::new(Base { kb_id, name, description, tool, embedder, documents, former: Mutex::default() }));
        }
        if faults.is_empty() { Ok(Self { bases }) } else { Err(faults) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bases.is_empty()
    }

    /// A tool for each base.
    pub(crate) fn tools(&self) -> Builtins {
        self.bases.iter().map(|base| tool::search(Arc::clone(base))).collect()
    }

    /// The id of the base that a tool searches.
    pub(crate) fn of_tool(&self, name: &str) -> Option<&str> {
        self.bases.iter().find(|base| base.tool == name).map(|base| base.kb_id.as_str())
    }

    /// Searches all bases at once. `began` is asked for each, and what it gives is told how the search went.
    pub(crate) async fn retrieve<T>(
        &self,
        query: &str,
        began: impl Fn(&str) -> T,
        ended: impl Fn(T, Result<&[Passage], &str>),
    ) -> Retrieved {
        let asked = EmbeddedQuestion::of(query, &self.bases);
        let searches = self.bases.iter().map(async |base| {
            let search = began(&base.kb_id);
            let found = base.search(&asked, CANDIDATES).await;
            ended(search, found.as_deref().map_err(Unfound::kind));
            (base, found)
        });
        let mut retrieved = Retrieved::default();
        let mut ranked = Vec::new();
        for (base, found) in join_all(searches).await {
            match found {
                Ok(passages) => ranked.extend(passages),
                Err(_) => retrieved.unavailable.push(base.kb_id.clone()),
            }
        }
        // A score says how far up a passage is in its own base, so that the best of each come first.
        ranked.retain(|passage: &Passage| passage.cosine.is_none_or(|cosine| cosine >= MIN_COSINE));
        let cosine = |passage: &Passage| passage.cosine.unwrap_or_default();
        ranked.sort_by(|one, other| other.source.score.total_cmp(&one.source.score).then(cosine(other).total_cmp(&cosine(one))));
        retrieved.passages = ranked;
        retrieved
    }
}

fn has_password(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.password().is_some())
}

/// As many of the best passages as a prompt may have.
pub(crate) fn fitting(passages: Vec<Passage>, most_tokens: u64) -> Vec<Passage> {
    let mut room = most_tokens.min(MAX_PROMPT_TOKENS).saturating_mul(4);
    let mut fitting = Vec::new();
    for passage in passages {
        let size = passage.bytes();
        // A shorter one may still fit.
        if fitting.len() < MAX_PROMPT_PASSAGES && size <= room {
            room -= size;
            fitting.push(passage);
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::passage::tests::passage;
    use super::*;

    #[test]
    fn the_best_passages_that_fit_are_taken() {
        let long = Passage { content: "x".repeat(20_000), ..passage("1") };
        let many: Vec<_> = std::iter::once(long).chain((2..20).map(|number| passage(&number.to_string()))).collect();
        let ids = |fitting: Vec<Passage>| fitting.into_iter().map(|passage| passage.source.chunk_id).collect::<Vec<_>>();
        assert_eq!(ids(fitting(many.clone(), u64::MAX)), ["2", "3", "4", "5", "6", "7", "8", "9"]);
        let two = passage("2").bytes().div_ceil(4) * 2;
        assert_eq!(ids(fitting(many.clone(), two)), ["2", "3"]);
        assert!(fitting(many, 0).is_empty());
    }
}
