use super::template::Values;

#[test]
fn a_key_alone_on_a_line_becomes_lines_and_one_in_a_line_its_value() {
    let values = Values::default().with("name", "web").with("list", "- a\n\n- b").with("none", "");
    let template = "name: @name@-@name@\nitems:\n  @list@\n@none@\nother: @unknown@\n";
    assert_eq!(values.fill(template), "name: web-web\nitems:\n  - a\n\n  - b\nother: @unknown@\n");
}
