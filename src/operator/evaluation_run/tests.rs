//! The controller against a pod and an API server that are played.
