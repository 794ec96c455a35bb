use super::*;

#[test]
fn an_id_reads_as_a_uuid() {
    let id = ReconcileId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    assert_eq!(id.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
}
