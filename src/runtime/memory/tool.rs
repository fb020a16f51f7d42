//! Memory as tools of the model: `remember` stores one, `search_memory` finds them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Value, json};
use slipway_database::Category;
use slipway_tools::{Builtin, Spec, ToolOutcome};

use super::{Recall, Unkept};

/// The builtin Tool that gives an agent both.
pub(crate) const TOOL: &str = "memory";
const REMEMBER: &str = "remember";
const SEARCH: &str = "search_memory";

/// Whether the builtin has it.
pub(crate) fn is_tool(name: &str) -> bool {
    name == REMEMBER || name == SEARCH
}

pub(crate) fn tools(recall: &Arc<Recall>) -> Vec<Box<dyn Builtin>> {
    vec![Box::new(Remember(Arc::clone(recall))), Box::new(Look(Arc::clone(recall)))]
}

struct Remember(Arc<Recall>);

struct Look(Arc<Recall>);

type Called<'a> = Pin<Box<dyn Future<Output = ToolOutcome> + Send + 'a>>;

impl Builtin for Remember {
    fn spec(&self) -> Spec {
        Spec {
            name: REMEMBER.to_owned(),
            description: "Keeps one short statement for later conversations, such as what somebody prefers.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "content": {"type": "string", "description": "the statement, understandable on its own"},
                    "category": {"type": "string", "enum": ["fact", "preference", "instruction", "observation"]},
                },
                "required": ["content"],
                "additionalProperties": false,
            }),
        }
    }

    fn call(&self, arguments: Value) -> Called<'_> {
        Box::pin(async move {
            let content = arguments["content"].as_str().unwrap_or_default().trim();
            if content.is_empty() || content.len() > super::MAX_CONTENT_BYTES {
                return ToolOutcome::error(format!("content must have 1 to {} bytes", super::MAX_CONTENT_BYTES));
            }
            let category = serde_json::from_value(arguments["category"].clone()).unwrap_or(Category::Fact);
            match self.0.remember(content, category, "agent").await {
                Ok(remembered) if remembered.existed => ToolOutcome::ok("This was known already."),
                Ok(_) => ToolOutcome::ok("Remembered."),
                Err(Unkept::Refused(block)) => ToolOutcome::error(format!("content was {}", block.message)),
                Err(fault) => ToolOutcome::error(fault.to_string()),
            }
        })
    }
}

impl Builtin for Look {
    fn spec(&self) -> Spec {
        Spec {
            name: SEARCH.to_owned(),
            description: "Looks for what was remembered in earlier conversations.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": {"query": {"type": "string", "description": "what to look for"}},
                "required": ["query"],
                "additionalProperties": false,
            }),
        }
    }

    fn call(&self, arguments: Value) -> Called<'_> {
        Box::pin(async move {
            match self.0.search(arguments["query"].as_str().unwrap_or_default(), 10).await {
                Ok(found) if found.is_empty() => ToolOutcome::ok("Nothing is remembered about this."),
                Ok(found) => ToolOutcome::ok(found.iter().map(|memory| format!("- {}", memory.content)).collect::<Vec<_>>().join("\n")),
                Err(fault) => ToolOutcome::error(format!("Memory cannot be searched now: {fault}")),
            }
        })
    }
}
