use super::*;

fn table(rows: &[[&str; 3]]) -> Table {
    let cell = |column: usize| move |row: &[&str; 3]| row[column].to_owned();
    let (key, age, error) = (cell(0), cell(1), cell(2));
    Table::new(
        rows,
        &[("KEY", Role::Name, &key), ("AGE", Role::Volatile, &age), ("ERROR", Role::Value, &error)],
    )
}

#[test]
fn columns_are_as_wide_as_their_longest_cell() {
    let table = table(&[["shop/wäb", "1s", "the peer hung up"], ["node", "", ""]]);
    let expected = "KEY        AGE   ERROR\nshop/wäb   1s    the peer hung up\nnode       -     -\n";
    assert_eq!(table.to_string(), expected);
}

#[test]
fn a_cell_may_be_longer_than_a_format_can_pad() {
    let long = "x".repeat(70_000);
    let table = table(&[[&long, "1s", "-"], ["web", "2s", "-"]]);
    let text = table.to_string();
    assert!(text.lines().nth(2).is_some_and(|line| line.len() > 70_000), "padded to the long cell");
}

#[test]
fn control_characters_in_cells_are_escaped() {
    let table = table(&[["a", "1s", "two\nlines\u{1b}[2J\u{9b}1m"]]);
    let line = table.to_string().lines().nth(1).map(str::to_owned);
    assert_eq!(line.as_deref(), Some("a     1s    two\\nlines\\u{1b}[2J\\u{9b}1m"));
}
