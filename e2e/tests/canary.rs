//! Canaries.
//!
//! `gateway` has what a Gateway does with an agent's weight, `mesh` what a mesh is told of it.

mod gateway;
mod mesh;
