//! What the platform's own image holds of tools, and what it takes none of. The runtime refuses at its start by these lists;
//! the operator judges by the same ones before a pod rolls.

/// What a builtin tool comes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// The image, always.
    Image,
    /// A search server that the platform names.
    Search,
    /// The builtin `memory`.
    Memory,
    /// Any skill.
    Skills,
}

/// The tools that the image brings, by the names under which Tools of type builtin find them.
pub const BUILTINS: [(&str, With); 9] = [
    ("calculator", With::Image),
    ("datetime", With::Image),
    ("http_fetch", With::Image),
    (MEMORY, With::Image),
    ("search", With::Search),
    ("remember", With::Memory),
    ("search_memory", With::Memory),
    ("load_skill", With::Skills),
    ("read_skill_file", With::Skills),
];

/// The builtin that stands for those that come with it.
pub const MEMORY: &str = "memory";

/// What a builtin of this name comes with, if there is one.
pub fn builtin(name: &str) -> Option<With> {
    BUILTINS.iter().find(|(known, _)| *known == name).map(|(_, with)| *with)
}

/// Those that a Tool can name whatever else its agent has.
pub fn builtin_names() -> Vec<&'static str> {
    BUILTINS.iter().filter(|(_, with)| matches!(with, With::Image | With::Search)).map(|(name, _)| *name).collect()
}

/// Programs whose argument is a program: with these, no list of commands would hold.
pub const SHELLS: [&str; 12] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "csh", "tcsh", "fish", "env", "xargs"];

/// Headers that are the connection's own affairs, in lower case.
pub const CONNECTION_HEADERS: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "proxy-authorization",
    "proxy-connection",
];

/// Headers by which MCP itself works.
pub const PROTOCOL_HEADERS: [&str; 5] = ["accept", "content-type", "mcp-session-id", "mcp-protocol-version", "last-event-id"];
