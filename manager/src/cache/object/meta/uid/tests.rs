use super::*;

#[test]
fn any_text_is_written_back_unchanged() {
    for text in [
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "0F8FAD5B-D9CB-469F-A165-70867728950E",
        "0f8fad5bd9cb469fa16570867728950e",
        "0f8fad5b-d9cb-469f-a165-7086772895-e",
        "0f8fad5b-d9cb-469f-a165+70867728950e",
        "0f8fad5b-d9cb-469f-a165-70867728950g",
        "0f8fad5-bd9cb-469f-a165-70867728950e",
        "0f8fad5b-d9cb-469f-a165-70867728950e0",
        "0f8fad5b-d9cb-469f-a165-70867728950\u{e9}",
        "u1",
        "",
    ] {
        let uid = Uid::new(text);
        assert_eq!(uid.to_string(), text);
        assert!(uid == *text && uid == Uid::new(text));
    }
}

#[test]
fn uids_with_different_texts_differ() {
    let texts = [
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "0F8FAD5B-D9CB-469F-A165-70867728950E",
        "0f8fad5b-d9cb-469f-a165-70867728950f",
        "0f8fad5bd9cb469fa16570867728950e",
        "u1",
    ];
    for (at, one) in texts.iter().enumerate() {
        for (other_at, other) in texts.iter().enumerate() {
            let same = (Uid::new(one) == Uid::new(other), Uid::new(one) == **other);
            assert_eq!(same, (at == other_at, at == other_at), "{one} and {other}");
        }
    }
}

#[test]
fn a_uuid_needs_no_allocation() {
    assert!(matches!(Uid::new("0f8fad5b-d9cb-469f-a165-70867728950e").0, Form::Uuid(_)));
}
