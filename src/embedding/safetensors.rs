//! Reads a safetensors file: the length of a JSON header, the header with type, shape and offsets of each tensor, and the
//! numbers. Tensors are read on request.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::ModelFileFault;

/// The largest header.
const MAX_HEADER_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct Safetensors {
    path: PathBuf,
    file: File,
    tensors: BTreeMap<String, TensorEntry>,
    /// The offset of the numbers, and their length in bytes.
    start: u64,
    length: u64,
}

#[derive(Debug, Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// The location of a tensor with the expected type and shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct TensorLocation {
    start: u64,
    numbers: usize,
}

impl Safetensors {
    pub(super) fn open(path: &Path) -> Result<Self, ModelFileFault> {
        let wrong = |why: String| ModelFileFault::new(format!("the weights {} {why}", path.display()));
        let unread = |cause: std::io::Error| wrong(format!("cannot be read: {cause}"));
        let file = File::open(path).map_err(unread)?;
        let whole = file.metadata().map_err(unread)?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(unread)?;
        let header = u64::from_le_bytes(length);
        let bytes = usize::try_from(header).ok().filter(|_| header <= MAX_HEADER_BYTES && header + 8 <= whole);
        let Some(bytes) = bytes else {
            return Err(wrong("begin with no header of safetensors".to_owned()));
        };
        let mut json = vec![0; bytes];
        file.read_exact_at(&mut json, 8).map_err(unread)?;
        let mut header_fields: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&json).map_err(|cause| wrong(format!("have a header that cannot be read: {cause}")))?;
        header_fields.remove("__metadata__");
        let tensors = header_fields.into_iter().map(|(name, entry)| {
            let entry = serde_json::from_value(entry).map_err(|cause| wrong(format!("have an unreadable `{name}`: {cause}")))?;
            Ok((name, entry))
        });
        let tensors = tensors.collect::<Result<_, ModelFileFault>>()?;
        Ok(Self { path: path.to_owned(), file, tensors, start: header + 8, length: whole - header - 8 })
    }

    /// Finds the tensor of this name and shape.
    pub(super) fn find(&self, name: &str, shape: &[usize]) -> Result<TensorLocation, ModelFileFault> {
        let Some(entry) = self.tensors.get(name) else {
            return Err(self.wrong(&format!("have no `{name}`")));
        };
        if entry.dtype != "F32" || entry.shape != shape {
            return Err(self.wrong(&format!("have `{name}` as {} {:?} where F32 {shape:?} is needed", entry.dtype, entry.shape)));
        }
        let numbers: usize = shape.iter().product();
        let (start, end) = entry.data_offsets;
        if start > end || end > self.length || end - start != numbers as u64 * 4 {
            return Err(self.wrong(&format!("do not hold all of `{name}`: were they copied whole?")));
        }
        Ok(TensorLocation { start: self.start + start, numbers })
    }

    /// All numbers of a tensor.
    pub(super) fn read(&self, place: TensorLocation) -> Result<Vec<f32>, ModelFileFault> {
        let mut numbers = vec![0.0; place.numbers];
        self.read_row(place, 0, &mut numbers)?;
        Ok(numbers)
    }

    /// Reads one row of a tensor whose rows are as long as `out`.
    pub(super) fn read_row(&self, place: TensorLocation, row: usize, out: &mut [f32]) -> Result<(), ModelFileFault> {
        let mut bytes = [0; 16 << 10];
        let mut at = place.start + (row * out.len()) as u64 * 4;
        for part in out.chunks_mut(bytes.len() / 4) {
            let bytes = &mut bytes[..part.len() * 4];
            self.file.read_exact_at(bytes, at).map_err(|cause| self.wrong(&format!("cannot be read: {cause}")))?;
            at += bytes.len() as u64;
            for (number, bytes) in part.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *number = f32::from_le_bytes(*bytes);
            }
        }
        Ok(())
    }

    fn wrong(&self, why: &str) -> ModelFileFault {
        ModelFileFault::new(format!("the weights {} {why}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(header: &str, numbers: &[f32]) -> (tempfile::TempDir, Result<Safetensors, ModelFileFault>) {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        std::fs::write(folder.path().join("w"), bytes).unwrap();
        let opened = Safetensors::open(&folder.path().join("w"));
        (folder, opened)
    }

    #[test]
    fn a_tensor_is_found_and_read_whole_or_by_rows() {
        let header = r#"{"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [4, 20]}}"#;
        let (_folder, file) = opened(header, &[9.0, 1.0, 2.0, 3.0, 4.0]);
        let file = file.unwrap();
        let place = file.find("a", &[2, 2]).unwrap();
        assert_eq!(file.read(place).unwrap(), [1.0, 2.0, 3.0, 4.0]);
        let mut row = [0.0; 2];
        file.read_row(place, 1, &mut row).unwrap();
        assert_eq!(row.as_slice(), [3.0, 4.0]);
    }

    #[test]
    fn what_is_not_there_as_it_should_be_is_refused() {
        let entry = |dtype: &str, end: u64| format!(r#"{{"a": {{"dtype": "{dtype}", "shape": [2], "data_offsets": [0, {end}]}}}}"#);
        for (header, why) in [
            (entry("F16", 4), "as F16 [2] where F32 [2] is needed"),
            (entry("F32", 12), "do not hold all of `a`"),
            (entry("F32", 4), "do not hold all of `a`"),
            ("{}".to_owned(), "have no `a`"),
        ] {
            let (_folder, file) = opened(&header, &[1.0, 2.0]);
            let fault = file.unwrap().find("a", &[2]).unwrap_err();
            assert!(fault.to_string().contains(why), "{header}: {fault}");
        }
        let (_folder, file) = opened("no json", &[]);
        assert!(file.unwrap_err().to_string().contains("a header that cannot be read"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w"), u64::MAX.to_le_bytes()).unwrap();
        assert!(Safetensors::open(&folder.path().join("w")).unwrap_err().to_string().contains("no header"));
    }
}
