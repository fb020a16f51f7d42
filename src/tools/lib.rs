//! What an agent may call: HTTP endpoints, programs, MCP servers, and what comes with the runtime.
