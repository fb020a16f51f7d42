//! A knowledge base as a tool of the model: `search_<kb>`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use slipway_tools::{Builtin, Spec, ToolOutcome};

use super::Passage;
use super::base::{Base, EmbeddedQuestion};

const DEFAULT_PASSAGES: u32 = 5;
const MAX_PASSAGES: u32 = 10;
/// How many passages a call asks for.
pub(crate) fn wanted(arguments: &Value) -> u32 {
    arguments["top_k"].as_u64().map_or(DEFAULT_PASSAGES, |top| u32::try_from(top).unwrap_or(MAX_PASSAGES)).clamp(1, MAX_PASSAGES)
}

/// A longer description is cut.
const MAX_DESCRIPTION_BYTES: usize = 1000;

pub(super) fn search(base: Arc<Base>) -> Box<dyn Builtin> {
    Box::new(Search(base))
}

/// What a call gives, as JSON. The turn shows the model, and others, what each may see of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SearchFindings {
    Passages(Vec<Passage>),
    Nothing {
        /// A word for the kind of failure.
        kind: String,
        why: String,
    },
}

struct Search(Arc<Base>);

impl Builtin for Search {
    fn spec(&self) -> Spec {
        let Base { name, description, tool, .. } = &*self.0;
        let about = match description.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
            Some(description) => format!("Searches the documents of {name:?}: {description}"),
            None => format!("Searches the documents of {name:?}."),
        };
        let about = &about[..about.floor_char_boundary(MAX_DESCRIPTION_BYTES)];
        Spec {
            name: tool.clone(),
            description: format!("{about} Gives passages with their source and page; name these in your answer."),
            schema: json!({
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "what to look for, as a question or in key words"},
                    "top_k": {"type": "integer", "description": format!("how many passages, 1 to {MAX_PASSAGES}; {DEFAULT_PASSAGES} without it")},
                },
                "required": ["query"],
                "additionalProperties": false,
            }),
        }
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, arguments: Value) -> Pin<Box<dyn Future<Output = ToolOutcome> + Send + 'a>> {
        Box::pin(async move {
            let query = arguments["query"].as_str().unwrap_or_default().trim();
            if query.is_empty() {
                return ToolOutcome::error("query must not be empty");
            }
            let found = match self.0.search(&EmbeddedQuestion::of(query, std::slice::from_ref(&self.0)), wanted(&arguments)).await {
                Ok(passages) => SearchFindings::Passages(passages),
                Err(unfound) => {
                    let why = format!("{:?} cannot be searched now: {unfound}. Say so where you cannot answer without it.", self.0.name);
                    SearchFindings::Nothing { kind: unfound.kind().to_owned(), why }
                }
            };
            match serde_json::to_string(&found) {
                // It has its own bounds, and JSON that is cut is none.
                Ok(content) => ToolOutcome { content, is_error: false, truncated: true },
                Err(error) => ToolOutcome::error(error.to_string()),
            }
        })
    }
}
