use super::*;

#[test]
fn a_request_is_encoded_with_prefix_and_service() {
    assert_eq!(request("")[..], [0, 0, 0, 0, 0]);
    assert_eq!(request("a.B")[..], [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B']);
    let long = request(&"s".repeat(200));
    assert_eq!(long[..8], [0, 0, 0, 0, 203, 0x0a, 0xc8, 0x01]);
}

#[test]
fn a_status_is_decoded_and_unknown_fields_are_skipped() {
    let framed = |message: &[u8]| {
        let length = u8::try_from(message.len()).unwrap();
        [&[0, 0, 0, 0, length], message].concat()
    };
    assert_eq!(is_serving(&framed(&[0x08, 1])), Some(true));
    assert_eq!(is_serving(&framed(&[])), Some(false));
    let others = [0x12, 2, 9, 9, 0x08, 1, 0x1d, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0x28, 0x80, 1];
    assert_eq!(is_serving(&framed(&others)), Some(true));
    for wrong in [&[][..], &[0; 4], &[0, 0, 0, 0, 9, 8, 1], &[1, 0, 0, 0, 2, 8, 1]] {
        assert_eq!(is_serving(wrong), None, "{wrong:?}");
    }
    for wrong in [&[0x08][..], &[0x08, 0xff], &[0x0a, 200], &[0x0b], &[0x09, 1], &[0xff; 12]] {
        assert_eq!(is_serving(&framed(wrong)), None, "{wrong:?}");
    }
}
