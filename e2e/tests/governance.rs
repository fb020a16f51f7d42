//! Governance: what agents are held to, whoever writes them.

mod policies;
