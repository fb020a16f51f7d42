use proptest::prelude::*;

use super::*;

fn framings() -> [Framing; 3] {
    [Framing::sse(), Framing::ndjson(), Framing::event_stream()]
}

fn held(framing: &Framing) -> usize {
    match framing {
        Framing::Sse(parser) => parser.held(),
        Framing::Ndjson(lines) => lines.held(),
        Framing::EventStream(parser) => parser.held(),
    }
}

/// The events of bytes in these pieces, and the fault that ended parsing.
fn parsed<'a>(mut framing: Framing, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Event>, Option<ModelFault>) {
    let mut events = Vec::new();
    for piece in pieces {
        let fed = framing.feed(piece, &mut keep(&mut events));
        if let Err(fault) = fed {
            return (events, Some(fault));
        }
    }
    let end = framing.finish(&mut keep(&mut events)).err();
    (events, end)
}

fn keep(events: &mut Vec<Event>) -> impl FnMut(Event) -> Result<(), ModelFault> {
    |event| {
        events.push(event);
        Ok(())
    }
}

fn split<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

pub(crate) fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(u8::try_from(name.len()).unwrap());
        block.extend_from_slice(name.as_bytes());
        block.push(7);
        block.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        block.extend_from_slice(value.as_bytes());
    }
    let mut frame = u32::try_from(16 + block.len() + payload.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(&u32::try_from(block.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&eventstream::checksum(&frame).to_be_bytes());
    frame.extend_from_slice(&block);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&eventstream::checksum(&frame).to_be_bytes());
    frame
}

#[test]
fn server_sent_events_are_read_as_the_standard_says() {
    for (text, events) in [
        ("data: a\n\n", &[("", "a")][..]),
        ("data:a\r\n\r\ndata:  b\r\r", &[("", "a"), ("", " b")]),
        ("event: x\ndata: a\ndata: b\n\n", &[("x", "a\nb")]),
        (": comment\n\ndata: a\n\n", &[("", "a")]),
        ("event: only a name\n\ndata: a\n\n", &[("", "a")]),
        ("id: 7\nretry: 1\nnonsense\ndata\n\n", &[("", "")]),
        ("\u{feff}data: a\n\n", &[("", "a")]),
        ("data: the end comes early", &[("", "the end comes early")]),
        ("data: é字\n\n", &[("", "é字")]),
    ] {
        let (found, fault) = parsed(Framing::sse(), [text.as_bytes()]);
        let expected: Vec<_> =
            events.iter().map(|(name, data)| Event { name: (*name).into(), error: false, data: data.as_bytes().to_vec() }).collect();
        assert_eq!((found, fault), (expected, None), "{text:?}");
    }
}

#[test]
fn the_checksum_is_the_known_one() {
    // The check value of CRC-32/ISO-HDLC.
    assert_eq!(eventstream::checksum(b"123456789"), 0xcbf4_3926);
}

#[test]
fn a_flipped_bit_in_a_frame_is_noticed() {
    let good = frame(&[(":message-type", "event"), (":event-type", "messageStop")], b"{\"stopReason\":\"end_turn\"}");
    let (events, fault) = parsed(Framing::event_stream(), [&good[..]]);
    assert_eq!(fault, None);
    assert_eq!(events[0].name, "messageStop");
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let (events, fault) = parsed(Framing::event_stream(), [&bad[..]]);
        assert!(events.is_empty() && fault.is_some(), "bit {bit}");
    }
}

#[test]
fn endless_lines_are_cut_off() {
    for mut framing in [Framing::sse(), Framing::ndjson()] {
        let chunk = vec![b'x'; 64 * 1024];
        let fault = (0..100).find_map(|_| framing.feed(&chunk, &mut |_| Ok(())).err());
        assert!(fault.unwrap().message().contains("4 MiB"));
        assert!(held(&framing) <= MAX_EVENT_BYTES);
    }
    let mut framing = Framing::sse();
    let line = format!("data: {}\n", "x".repeat(64 * 1024));
    assert!((0..100).any(|_| framing.feed(line.as_bytes(), &mut |_| Ok(())).is_err()));
    assert!(held(&framing) <= MAX_EVENT_BYTES);
}

/// Bytes that often resemble a stream.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"event: e".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"{}".to_vec()),
        Just(": c\n\n".into()),
        Just(frame(&[(":message-type", "event"), (":event-type", "e")], b"{}")),
        Just(frame(&[(":message-type", "exception"), (":exception-type", "e")], b"")),
        proptest::collection::vec(any::<u8>(), 0..20),
    ];
    proptest::collection::vec(token, 0..30).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn any_bytes_give_the_same_events_however_they_are_split(bytes in bytes(), cuts in proptest::collection::vec(any::<usize>(), 0..20)) {
        let singles = || bytes.chunks(1);
        for ((whole, parts), single) in framings().into_iter().zip(framings()).zip(framings()) {
            let expected = parsed(whole, [&bytes[..]]);
            prop_assert_eq!(&parsed(parts, split(&bytes, &cuts)), &expected);
            prop_assert_eq!(&parsed(single, singles()), &expected);
        }
    }

    #[test]
    fn events_come_back_as_they_were_sent(payloads in proptest::collection::vec("[^\r\n]{1,40}", 0..10), cuts in proptest::collection::vec(any::<usize>(), 0..20)) {
        let data = |events: (Vec<Event>, Option<ModelFault>)| (events.0.into_iter().map(|event| event.data).collect::<Vec<_>>(), events.1);
        let expected: (Vec<_>, _) = (payloads.iter().map(|payload| payload.as_bytes().to_vec()).collect(), None);
        let sse = payloads.iter().fold(String::new(), |sse, payload| sse + "data: " + payload + "\n\n");
        prop_assert_eq!(data(parsed(Framing::sse(), split(sse.as_bytes(), &cuts))), expected.clone());
        let frames: Vec<u8> = payloads.iter().flat_map(|payload| frame(&[(":message-type", "event")], payload.as_bytes())).collect();
        prop_assert_eq!(data(parsed(Framing::event_stream(), split(&frames, &cuts))), expected);
    }

    #[test]
    fn nothing_that_is_held_back_grows_without_end(bytes in bytes()) {
        for mut framing in framings() {
            for _ in 0..50 {
                if framing.feed(&bytes, &mut |_| Ok(())).is_err() {
                    break;
                }
                prop_assert!(held(&framing) <= MAX_EVENT_BYTES);
            }
        }
    }
}
