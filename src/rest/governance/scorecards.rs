//! Scorecards.
