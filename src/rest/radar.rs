//! The radar.
