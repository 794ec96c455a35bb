#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn no_input_of_the_corpora_is_a_finding() {
    replay("address", super::address);
    replay("spec", super::spec);
    replay("json_path", super::json_path);
}
