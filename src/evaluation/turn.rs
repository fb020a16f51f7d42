//! What an agent did with one case: the answer, what it retrieved and which tools it called.

use serde_json::Value;

/// A turn that was taken for a case.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CaseTurn {
    /// The whole answer.
    pub output: String,
    /// Passages that were retrieved; none if the agent retrieves nothing.
    pub retrieved: Option<Vec<String>>,
    /// Tools that were called, in order; none if the agent has no tools.
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Why the calls cannot be judged: a tool that changes things had no result in the case.
    pub unanswered_tool: Option<String>,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    pub name: String,
    pub arguments: Value,
    /// What the tool answered.
    pub result: String,
}
