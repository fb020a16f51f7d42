//! The radar.

mod prometheus;
