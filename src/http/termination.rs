//! The pod's last words: what stands in the termination log is shown by `kubectl describe pod` and
//! found by the operator in the pod's status.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

pub const LOG: &str = "/dev/termination-log";
/// The kubelet reads no more of the file.
const MAX_BYTES: usize = 4096;

/// Writes to `path` where it already exists; elsewhere there is no kubelet to read it.
pub fn write(path: impl AsRef<Path>, words: &str) {
    let words = &words[..words.floor_char_boundary(MAX_BYTES)];
    if let Ok(mut file) = OpenOptions::new().write(true).truncate(true).open(path) {
        // The same words go to the log; if this fails nothing is lost.
        let _ = file.write_all(words.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;

    #[test]
    fn words_are_cut_to_what_is_read_and_no_file_is_made() {
        let path = env::temp_dir().join(format!("termination-log-{}", process::id()));
        write(&path, "nobody listens");
        assert!(!path.exists());
        fs::write(&path, "older and longer words").unwrap();
        write(&path, "short");
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
        write(&path, &"é".repeat(MAX_BYTES));
        assert_eq!(fs::read(&path).unwrap().len(), MAX_BYTES);
        fs::remove_file(&path).unwrap();
    }
}
