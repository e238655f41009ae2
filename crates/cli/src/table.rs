//! Tables without frames: a header, columns that line up, nothing else.

use anstream::adapter::strip_str;
use unicode_width::UnicodeWidthStr;

use crate::printer::DIM;

/// A table with these columns; those whose name ends with `>` stand to the right. Cells may be coloured.
pub(crate) fn render(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    let header: Vec<String> = columns.iter().map(|column| column.trim_end_matches('>').to_owned()).collect();
    let width = |index: usize| rows.iter().chain([&header]).map(|row| shown_width(&row[index])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(columns).zip(&widths).map(|((cell, column), width)| {
            let padding = " ".repeat(width - shown_width(cell));
            if column.ends_with('>') { format!("{padding}{cell}") } else { format!("{cell}{padding}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let lines = rows.iter().map(|row| line(row));
    lines.fold(format!("{DIM}{}{DIM:#}", line(&header)), |text, line| text + "\n" + &line)
}

/// How many columns of a terminal a cell takes, without its colours.
fn shown_width(cell: &str) -> usize {
    strip_str(cell).to_string().width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        let rows =
            vec![vec!["a".into(), "\x1b[32mheld\x1b[0m".into(), "3".into()], vec!["漢字".into(), "free".into(), "12".into()]];
        let text = strip_str(&render(&["NAME", "STATE", "N>"], rows)).to_string();
        assert_eq!(text, "NAME  STATE   N\na     held    3\n漢字  free   12");
    }
}
