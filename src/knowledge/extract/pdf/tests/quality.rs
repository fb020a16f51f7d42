//! Text of Debian's manuals against their own plain text, beside `pdftotext`. Two figures: F1 of the words as a bag, and F1 of
//! all sequences of five words, which falls where the order or a word is wrong.

use std::collections::HashMap;
use std::fs;
use std::process::{self, Command};
use std::time::Instant;

use slipway_peers::peak_memory;

use super::*;

const ORDER: usize = 5;

/// The manual's PDF and its plain text.
const MANUALS: [(&str, &str); 4] = [
    ("usr/share/debian-reference/debian-reference.en.pdf", "usr/share/debian-reference/debian-reference.en.txt.gz"),
    ("usr/share/developers-reference/developers-reference.pdf", "usr/share/developers-reference/developers-reference.txt.gz"),
    ("usr/share/doc/debian-policy/policy.pdf.gz", "usr/share/doc/debian-policy/policy.txt.gz"),
    ("usr/share/doc/debian-policy/fhs/fhs-3.0.pdf.gz", "usr/share/doc/debian-policy/fhs/fhs-3.0.txt.gz"),
];

fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase().replace('ﬁ', "fi").replace('ﬂ', "fl").replace('ﬀ', "ff").replace('ﬃ', "ffi");
    lower.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of words")]
fn f1(words: &[String], twin: &[String], length: usize) -> f64 {
    let mut counts: HashMap<&[String], i64> = HashMap::new();
    twin.windows(length).for_each(|gram| *counts.entry(gram).or_default() += 1);
    let mut same = 0_usize;
    for gram in words.windows(length) {
        if let Some(count) = counts.get_mut(gram)
            && *count > 0
        {
            *count -= 1;
            same += 1;
        }
    }
    2.0 * same as f64 / (words.len() + twin.len() + 2 - 2 * length) as f64
}

pub(super) fn unpacked(file: &Path) -> Vec<u8> {
    if file.extension().is_some_and(|end| end == "gz") {
        Command::new("gzip").arg("-dc").arg(file).output().unwrap().stdout
    } else {
        fs::read(file).unwrap()
    }
}

/// The processor time of this process with its ended children.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let times = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(4);
    Duration::from_millis(10 * times.map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>())
}

struct Figures {
    name: String,
    pages: u32,
    /// Words and order.
    ours: (f64, f64),
    popplers: (f64, f64),
    time: Duration,
    poppler_time: Duration,
    processor: Duration,
    poppler_processor: Duration,
    blocks: Vec<Block>,
    notes: Vec<String>,
}

fn measure(pdf: &str, text: &str) -> Figures {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manual.pdf");
    fs::write(&file, unpacked(&manual(pdf))).unwrap();
    let twin = words(&String::from_utf8_lossy(&unpacked(&manual(text))));
    let processor_before = processor_time();
    let began = Instant::now();
    let (blocks, summary) = extract(&super::pdf(), &file).unwrap();
    let time = began.elapsed();
    let processor = processor_time().saturating_sub(processor_before);
    let began = Instant::now();
    let output = Command::new("pdftotext").arg(&file).arg("-").output().unwrap();
    let poppler_time = began.elapsed();
    let poppler_processor = processor_time().saturating_sub(processor_before + processor);
    let score = |text: &str| {
        let words = words(text);
        (f1(&words, &twin, 1), f1(&words, &twin, ORDER))
    };
    let name = Path::new(pdf).file_name().unwrap().to_string_lossy().into_owned();
    let popplers = score(&String::from_utf8_lossy(&output.stdout));
    Figures {
        name,
        pages: summary.pages.unwrap(),
        ours: score(&plain(&blocks)),
        popplers,
        time,
        poppler_time,
        processor,
        poppler_processor,
        blocks,
        notes: summary.notes,
    }
}

#[test]
fn text_is_no_worse_than_that_of_pdftotext() {
    for (pdf, text) in MANUALS {
        let figures = measure(pdf, text);
        let told = || format!("{}: words and order are {:?}, those of pdftotext {:?}", figures.name, figures.ours, figures.popplers);
        assert!(figures.ours.0 >= figures.popplers.0 && figures.ours.1 >= figures.popplers.1, "{}", told());
    }
}

#[test]
#[ignore = "prints figures, for hack/bench"]
fn figures() {
    for (pdf, text) in MANUALS {
        let figures = measure(pdf, text);
        let speed = |time: Duration| f64::from(figures.pages) / time.as_secs_f64();
        println!(
            "{}: {} pages; words {:.4} (pdftotext {:.4}), order {:.4} (pdftotext {:.4}); {:.0} pages/s (pdftotext {:.0})",
            figures.name,
            figures.pages,
            figures.ours.0,
            figures.popplers.0,
            figures.ours.1,
            figures.popplers.1,
            speed(figures.time),
            speed(figures.poppler_time),
        );
        let each = |time: Duration| time.as_secs_f64() * 1000.0 / f64::from(figures.pages);
        println!(
            "    processor time a page {:.1} ms (pdftotext {:.1} ms), memory {} MiB",
            each(figures.processor),
            each(figures.poppler_processor),
            peak_memory(process::id()) >> 20
        );
        figures.notes.iter().for_each(|note| println!("    {note}"));
        let count = |of: fn(&BlockKind) -> bool| figures.blocks.iter().filter(|block| of(&block.kind)).count();
        println!(
            "    headings {} paragraphs {} items {} code {} tables {} rows {}",
            count(|kind| matches!(kind, BlockKind::Heading(_))),
            count(|kind| *kind == BlockKind::Paragraph),
            count(|kind| *kind == BlockKind::ListItem),
            count(|kind| *kind == BlockKind::Code),
            count(|kind| *kind == BlockKind::TableHead),
            count(|kind| *kind == BlockKind::TableRow),
        );
        if let Ok(folder) = std::env::var("SLIPWAY_PDF_BLOCKS") {
            let told = figures.blocks.iter().map(|block| format!("{} {:?} {}\n", block.page.unwrap_or(0), block.kind, block.text));
            let told: Vec<String> = told.collect();
            fs::write(Path::new(&folder).join(format!("{}.blocks", figures.name)), told.concat()).unwrap();
        }
    }
}
