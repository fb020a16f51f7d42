//! Governance: what agents are held to, no matter who writes them.

mod policies;
