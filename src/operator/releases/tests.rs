//! The decision, played through: steps are taken on an Agent, a history and AgentReleases in memory, until there is
//! nothing to do. Each story is also played with an end of the process after every single write.
