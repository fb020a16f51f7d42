//! The weights in a safetensors file. The crate `safetensors` parses the header and checks that types, shapes and offsets agree
//! and leave no gaps. The numbers are read here on request: the crate wants the whole file in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::ModelFileFault;

/// The largest header.
const MAX_HEADER_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct WeightFile {
    path: PathBuf,
    file: File,
    header: Metadata,
    /// The offset of the numbers.
    start: u64,
}

/// The location of a tensor with the expected type and shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct TensorLocation {
    start: u64,
    numbers: usize,
}

impl WeightFile {
    pub(super) fn open(path: &Path) -> Result<Self, ModelFileFault> {
        let wrong = |why: String| ModelFileFault::new(format!("the weights {} {why}", path.display()));
        let unread = |cause: std::io::Error| wrong(format!("cannot be read: {cause}"));
        let file = File::open(path).map_err(unread)?;
        let whole = file.metadata().map_err(unread)?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(unread)?;
        let length = u64::from_le_bytes(length);
        let bytes = usize::try_from(length).ok().filter(|_| length <= MAX_HEADER_BYTES && length + 8 <= whole);
        let Some(bytes) = bytes else {
            return Err(wrong("begin with no header of safetensors".to_owned()));
        };
        let mut json = vec![0; bytes];
        file.read_exact_at(&mut json, 8).map_err(unread)?;
        let header: Metadata =
            serde_json::from_slice(&json).map_err(|cause| wrong(format!("have a header that cannot be read: {cause}")))?;
        let start = length + 8;
        let (held, announced) = (whole - start, header.data_len() as u64);
        if held != announced {
            let why = format!("have {held} bytes of numbers where their header announces {announced}: were they copied whole?");
            return Err(wrong(why));
        }
        Ok(Self { path: path.to_owned(), file, header, start })
    }

    /// Finds the tensor of this name and shape.
    pub(super) fn find(&self, name: &str, shape: &[usize]) -> Result<TensorLocation, ModelFileFault> {
        let Some(tensor) = self.header.info(name) else {
            return Err(self.wrong(&format!("have no `{name}`")));
        };
        if tensor.dtype != Dtype::F32 || tensor.shape != shape {
            return Err(self.wrong(&format!("have `{name}` as {} {:?} where F32 {shape:?} is needed", tensor.dtype, tensor.shape)));
        }
        Ok(TensorLocation { start: self.start + tensor.data_offsets.0 as u64, numbers: shape.iter().product() })
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

    fn opened(header: &str, numbers: &[f32]) -> (tempfile::TempDir, Result<WeightFile, ModelFileFault>) {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        std::fs::write(folder.path().join("w"), bytes).unwrap();
        let opened = WeightFile::open(&folder.path().join("w"));
        (folder, opened)
    }

    #[test]
    fn a_tensor_is_found_and_read_whole_or_by_rows() {
        let header = r#"{"__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [4, 20]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}"#;
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
        let whole = entry("F32", 8);
        for (header, numbers, why) in [
            (entry("F16", 4), &[1.0][..], "as F16 [2] where F32 [2] is needed"),
            ("{}".to_owned(), &[], "have no `a`"),
            (whole.clone(), &[1.0], "have 4 bytes of numbers where their header announces 8: were they copied whole?"),
            (whole.clone(), &[1.0, 2.0, 3.0], "have 12 bytes of numbers where their header announces 8"),
            (entry("F32", 12), &[1.0, 2.0, 3.0], "invalid shape, data type, or offset"),
            (entry("F32", 4), &[1.0], "invalid shape, data type, or offset"),
            (whole.replace("[0, 8]", "[4, 12]"), &[1.0, 2.0, 3.0], "invalid offset for tensor `a`"),
            (whole.replace("[0, 8]", "[8, 0]"), &[1.0, 2.0], "invalid offset for tensor `a`"),
            (whole.replace("[2]", &format!("[2, {}]", usize::MAX)), &[1.0, 2.0], "overflow"),
            (whole.replace("F32", "F33"), &[1.0, 2.0], "a header that cannot be read: unknown variant `F33`"),
            ("no json".to_owned(), &[], "a header that cannot be read"),
        ] {
            let (_folder, file) = opened(&header, numbers);
            let fault = file.and_then(|file| file.find("a", &[2])).unwrap_err();
            assert!(fault.to_string().contains(why), "{header}: {fault}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w"), u64::MAX.to_le_bytes()).unwrap();
        assert!(WeightFile::open(&folder.path().join("w")).unwrap_err().to_string().contains("no header"));
    }
}
