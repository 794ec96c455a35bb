use super::Authority;
use crate::settings;

#[path = "../../../../../fuzz/authority.rs"]
mod authority;
#[path = "../../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn no_input_of_the_corpora_is_a_finding() {
    replay("config", settings::fuzz::sections);
    replay("http", super::http);
    replay("grpc", super::grpc);
    replay("dns", super::dns);
    let authority = authority::authority();
    replay("tls", |data| super::tls(&authority, data));
}
