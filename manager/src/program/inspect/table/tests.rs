use super::*;

const COLUMNS: &[Column] =
    &[column("KEY", Role::Name), column("AGE", Role::Moves), column("ERROR", Role::Value)];

fn row(cells: [&str; 3]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

#[test]
fn columns_are_as_wide_as_what_stands_in_them() {
    let table = Table::new(COLUMNS, vec![row(["shop/wäb", "1s", "the peer hung up"]), row(["node", "", ""])]);
    let expected = "KEY        AGE   ERROR\nshop/wäb   1s    the peer hung up\nnode       -     -\n";
    assert_eq!(table.to_string(), expected);
}

#[test]
fn a_text_cannot_end_its_line_or_steer_the_terminal() {
    let table = Table::new(COLUMNS, vec![row(["a", "1s", "two\nlines\u{1b}[2J\u{9b}1m"])]);
    let line = table.to_string().lines().nth(1).map(str::to_owned);
    assert_eq!(line.as_deref(), Some("a     1s    two\\nlines\\u{1b}[2J\\u{9b}1m"));
}
