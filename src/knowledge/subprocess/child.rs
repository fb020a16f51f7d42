//! Runs in the subprocess of an extraction: limits itself, reads the document and prints its blocks.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ExtractionLimits;
use super::line::{Ended, Line};
use crate::budget::OCR_BYTES;
use crate::extract::{ExtractSummary, extractor};
use crate::{Block, Format, Unreadable};

/// The largest file that it may write, for programs that it starts.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The arguments of `child_main`: the format, the limits of memory (MiB) and processor (s), and the file.
pub(super) fn arguments(format: Format, file: &Path, limits: &ExtractionLimits) -> [OsString; 5] {
    let seconds = limits.cpu.as_secs().max(1);
    ["extract".into(), format.name().into(), limits.memory_mebibytes.to_string().into(), seconds.to_string().into(), file.into()]
}

/// The program's `main` where its first argument is `extract`; `arguments` are all but the program's name.
pub fn child_main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    let ended = Ended::from(run(&arguments, &mut out));
    let printed = print(&mut out, &Line::Ended(ended)).and_then(|()| out.flush());
    // Nobody reads any more.
    if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(arguments: &[OsString], out: &mut impl Write) -> Result<ExtractSummary, Unreadable> {
    let wrong = || io::Error::other("the arguments are: extract FORMAT MEBIBYTES SECONDS FILE");
    let [command, format, memory, seconds, file] = arguments else { return Err(wrong().into()) };
    let format = format.to_str().and_then(Format::of_name).filter(|_| command == "extract").ok_or_else(wrong)?;
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<u64>().ok()).ok_or_else(wrong);
    limit(number(memory)?, number(seconds)?)?;
    let extractor = extractor(format).ok_or_else(|| io::Error::other(format!("there is no reader of {}", format.name())))?;
    let mut fault = None;
    let summary = extractor.extract(Path::new(file), &mut |block: Block| match print(out, &Line::Block(block)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            fault = Some(error);
            ControlFlow::Break(())
        }
    });
    match fault {
        Some(fault) => Err(fault.into()),
        None => summary,
    }
}

/// The hard limit of memory is higher than the soft one, for the sake of the programs that it starts.
fn limit(mebibytes: u64, seconds: u64) -> io::Result<()> {
    let lower = |resource, current: u64, maximum: u64| {
        let most = getrlimit(resource).maximum.map_or(maximum, |most| most.min(maximum));
        setrlimit(resource, Rlimit { current: Some(current.min(most)), maximum: Some(most) })
    };
    let bytes = mebibytes << 20;
    lower(Resource::Data, bytes, bytes.max(OCR_BYTES))?;
    // The soft limit's signal tells which limit it was.
    lower(Resource::Cpu, seconds, seconds.saturating_add(5))?;
    lower(Resource::Fsize, FILE_BYTES_MAX, FILE_BYTES_MAX)?;
    lower(Resource::Core, 0, 0)?;
    Ok(())
}

fn print(out: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}
