use std::io::Write;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::extract::extracted;

fn read(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let (blocks, summary) = extracted(&Csv, bytes);
    (blocks.into_iter().map(|(kind, text)| format!("{kind:?} {text}")).collect(), summary.unwrap().notes)
}

#[test]
fn rows_follow_their_header() {
    let (blocks, notes) = read("\u{feff}name,amount,when\r\nAnn,\"1,000.50\",2024-02-01\r\n\"B \"\"b\"\"\n|\",,\r\n".as_bytes());
    assert_eq!(blocks, ["TableHead | name | amount | when |", "TableRow | Ann | 1,000.50 | 2024-02-01 |", "TableRow | B \"b\" \\| | | |"]);
    assert_eq!(notes, [""; 0]);
}

#[test]
fn encodings_titles_and_ragged_rows_are_read() {
    assert_eq!(read(b"sep=;\nst\xe4dte;n\nK\xf6ln;1\n").0, ["TableHead | städte | n |", "TableRow | Köln | 1 |"]);
    let utf16: Vec<u8> = "a\tb\nc\t1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read(&utf16).0, ["TableHead | a | b |", "TableRow | c | 1 |"]);
    let (blocks, notes) = read(b"Report,,\n\na,b,c\n1,2,3\n4,5\n6,7,8,9\n1,2,3\n");
    assert_eq!(blocks[..3], ["Paragraph Report", "TableHead | a | b | c |", "TableRow | 1 | 2 | 3 |"]);
    assert_eq!(notes, ["rows with another number of columns than the first: 2, the first is row 4"]);
}

#[test]
fn endless_fields_and_rows_are_bounded() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "a,b\n1,\"").unwrap();
    for _ in 0..100 {
        file.write_all(&vec![b'x'; 1 << 20]).unwrap();
    }
    write!(file, "\"\n2,y\n{}\n3,z\n", ",1".repeat(1_000_000)).unwrap();
    let mut texts = Vec::new();
    let mut sink = |block: crate::Block| {
        texts.push(block.text);
        ControlFlow::Continue(())
    };
    let notes = Csv.extract(file.path(), &mut sink).unwrap().notes;
    assert!(texts.iter().all(|text| text.len() <= 64 << 10), "rows are bounded");
    assert_eq!((texts[0].as_str(), texts[2].as_str(), texts[4].as_str()), ("| a | b |", "| 2 | y |", "| 3 | z |"));
    assert_eq!(
        notes,
        [
            "rows with another number of columns than the first: 1, the first is row 4",
            "fields of more than 32 KiB that were cut off: 1, the first is row 2",
            "rows with more than 1024 columns or 60 KiB that were cut off: 1, the first is row 4"
        ]
    );
}

#[test]
fn a_binary_file_is_refused() {
    let refusal = extracted(&Csv, &[&[0; 100][..], b"a,b\n\xff\xfe"].concat()).1.unwrap_err();
    assert_eq!(refusal.to_string(), "the document is broken: it is a binary file, not CSV");
}

proptest! {
    #[test]
    fn cells_come_back_as_they_were(rows in prop::collection::vec(prop::collection::vec("[a-z]{1,4}( [\",;a-z]{1,5}x)?", 3), 2..8)) {
        let quoted = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
        let csv: String = rows.iter().map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n").collect();
        let (blocks, _) = extracted(&Csv, csv.as_bytes());
        let expected: Vec<String> = rows.iter().map(|row| super::row(row).0).collect();
        prop_assert_eq!(blocks.into_iter().map(|(_, text)| text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_bytes_make_csv_panic(bytes in any::<Vec<u8>>(), text in "[a-c,;\t|\"\r\n]{0,80}") {
        let _ = (extracted(&Csv, &bytes), extracted(&Csv, text.as_bytes()));
    }
}
