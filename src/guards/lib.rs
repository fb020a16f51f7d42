//! What must not pass between people, agents and models.
