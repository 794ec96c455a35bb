use super::*;

#[test]
fn both_families_are_tried_and_few_addresses() {
    let parse =
        |list: &[&str]| -> Vec<SocketAddr> { list.iter().map(|text| text.parse().unwrap()).collect() };
    let many_v4 = parse(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"]);
    let many_v6 = parse(&["[fd12::1]:1", "[fd12::2]:1", "[fd12::3]:1", "[fd12::4]:1", "[fd12::5]:1"]);
    assert_eq!(pick(many_v4.clone()), many_v4[..4]);
    assert_eq!(pick(many_v6.clone()), many_v6[..4]);
    assert_eq!(pick([many_v4.clone(), many_v6.clone()].concat()), [&many_v4[..2], &many_v6[..2]].concat());
    assert_eq!(pick([&many_v4[..1], &many_v6[..]].concat()), [&many_v4[..1], &many_v6[..3]].concat());
}
