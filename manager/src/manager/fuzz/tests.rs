use crate::{cache, config};

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn no_input_of_the_corpora_is_a_finding() {
    replay("watch", cache::fuzz::watch);
    replay("packed", cache::fuzz::packed);
    replay("config", config::fuzz::configuration);
    replay("requests", super::requests);
}
