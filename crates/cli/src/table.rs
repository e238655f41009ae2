//! Tables without frames: a header, columns that line up, nothing else.

use unicode_width::UnicodeWidthStr;

use crate::printer::DIM;
use crate::terminal;

/// A table with these columns; those whose name ends with `>` stand to the right. Cells may be styled, and each stays in its
/// line.
pub(crate) fn render(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.iter().map(|cell| terminal::one_line(cell)).collect()).collect();
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

/// How many columns of a terminal a cell takes, without its styles.
fn shown_width(cell: &str) -> usize {
    terminal::plain(cell).width()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::GREEN;

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        let rows = vec![
            vec!["a\nb".into(), format!("{GREEN}held{GREEN:#}"), "3".into()],
            vec!["漢字".into(), "free".into(), "12".into()],
        ];
        let text = terminal::plain(&render(&["NAME", "STATE", "N>"], rows));
        assert_eq!(text, "NAME  STATE   N\na\\nb  held    3\n漢字  free   12");
    }
}
