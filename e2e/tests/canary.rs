//! Canaries on a cluster with nodes.

mod analysis;
