//! The `git` program as a child process: the one place from which it is started.
