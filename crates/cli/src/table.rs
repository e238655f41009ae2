//! Tables without frames: a header, aligned columns, and on a terminal no line longer than its width.

use std::cmp::Ordering;

use clap::Args;

use crate::failure::Failure;
use crate::printer::DIM;
use crate::terminal;

/// The space between two columns.
const GAP: usize = 2;

/// The minimum width of a column before optional columns are dropped, and after that; and the extra width of the first
/// flexible column, which is the title.
const COMFORTABLE: usize = 20;
const TIGHT: usize = 6;
const EXTRA: usize = 10;

/// Which columns of a table to show, in which order, and how to order its rows.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TableFlags {
    /// Show these columns of the table, in this order
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Order the table by this column; -NAME reverses it
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    sort: Option<String>,
}

/// A column, parsed from its name: `>` after the name aligns it to the right, `~` makes it flexible, `?` optional, `??`
/// optional and dropped earlier, and `!` hidden unless selected.
#[derive(Debug, Clone, Copy)]
struct Column<'a> {
    name: &'a str,
    is_right: bool,
    may_be_cut: bool,
    /// A larger number is dropped earlier; 0 is never dropped.
    optional: usize,
    is_extra: bool,
}

impl Column<'_> {
    fn parse(text: &str) -> Column<'_> {
        let name = text.trim_end_matches(['>', '~', '?', '!']);
        let marks = &text[name.len()..];
        Column {
            name,
            is_right: marks.contains('>'),
            may_be_cut: marks.contains('~'),
            optional: marks.matches('?').count(),
            is_extra: marks.contains('!'),
        }
    }
}

/// A table with these columns ([`Column`]). Cells may be styled, and each stays on one line.
pub(crate) fn render(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    TableFlags::default().render(columns, rows).expect("nothing was asked for that is not there")
}

/// The lines of a table in this width, its header first.
pub(crate) fn lines(columns: &[&str], rows: Vec<Vec<String>>, width: usize) -> Vec<String> {
    let columns: Vec<Column<'_>> = columns.iter().map(|column| Column::parse(column)).collect();
    let chosen: Vec<usize> = (0..columns.len()).filter(|index| has_content(&rows, *index)).collect();
    let cells = rows.iter().map(|row| chosen.iter().map(|index| terminal::one_line(&row[*index])).collect());
    let chosen: Vec<Column<'_>> = chosen.iter().map(|index| columns[*index]).collect();
    draw(&chosen, cells.collect(), Some(width)).lines().map(str::to_owned).collect()
}

impl TableFlags {
    /// Whether `--sort` is given.
    pub(crate) fn is_sorted(&self) -> bool {
        self.sort.is_some()
    }

    /// The table with the columns and the order of the flags.
    pub(crate) fn render(&self, columns: &[&str], mut rows: Vec<Vec<String>>) -> Result<String, Failure> {
        let columns: Vec<Column<'_>> = columns.iter().map(|column| Column::parse(column)).collect();
        if let Some(sort) = &self.sort {
            let (name, is_reversed) = sort.strip_prefix('-').map_or((sort.as_str(), false), |name| (name, true));
            let index = find(&columns, name)?;
            rows.sort_by(|a, b| {
                let order = compare(&a[index], &b[index]);
                if is_reversed { order.reverse() } else { order }
            });
        }
        let limit = terminal::stdout_width();
        let chosen: Vec<usize> = match &self.columns[..] {
            // On a terminal, empty columns are hidden. Programs that read the table get all of them.
            [] => (0..columns.len())
                .filter(|index| !columns[*index].is_extra && (limit.is_none() || has_content(&rows, *index)))
                .collect(),
            names => names.iter().map(|name| find(&columns, name)).collect::<Result<_, _>>()?,
        };
        let cells = rows.iter().map(|row| chosen.iter().map(|index| terminal::one_line(&row[*index])).collect());
        let chosen: Vec<Column<'_>> = chosen.iter().map(|index| columns[*index]).collect();
        Ok(draw(&chosen, cells.collect(), limit))
    }

    /// The flags as command line arguments.
    pub(crate) fn arguments(&self) -> String {
        let columns = (!self.columns.is_empty()).then(|| format!(" --columns {}", self.columns.join(",")));
        let sort = self.sort.as_ref().map(|sort| format!(" --sort {sort}"));
        columns.into_iter().chain(sort).collect()
    }
}

/// Whether a column has any content. The first one may serve as indentation, and a table without rows keeps its header.
fn has_content(rows: &[Vec<String>], index: usize) -> bool {
    index == 0 || rows.is_empty() || rows.iter().any(|row| terminal::width(&row[index]) > 0)
}

/// The index of the column with this name.
fn find(columns: &[Column<'_>], wanted: &str) -> Result<usize, Failure> {
    let wanted = wanted.trim().to_lowercase().replace('_', " ");
    let found = columns.iter().position(|column| !column.name.is_empty() && column.name.to_lowercase() == wanted);
    found.ok_or_else(|| {
        let names = columns.iter().map(|column| column.name.to_lowercase()).filter(|name| !name.is_empty());
        Failure::usage(format!("there is no column {wanted:?}"))
            .hint(format!("columns: {}", names.collect::<Vec<_>>().join(", ")))
    })
}

/// Compares two cells: numbers, sizes and durations by value, text without regard to case.
fn compare(one: &str, other: &str) -> Ordering {
    let (one, other) = (terminal::plain(one), terminal::plain(other));
    match (quantity(&one), quantity(&other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        // Cells without a number come last.
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.to_lowercase().cmp(&other.to_lowercase()),
    }
}

/// The value of a cell such as `1,200`, `3.2 MiB`, `2/4`, `3 min` or `5 h 3 min ago`.
fn quantity(cell: &str) -> Option<f64> {
    let mut rest = cell.trim().trim_start_matches("in ");
    let mut total: Option<f64> = None;
    while rest.starts_with(|c: char| c.is_ascii_digit()) {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(rest.len());
        let number: f64 = rest[..end].replace(',', "").parse().ok()?;
        rest = rest[end..].trim_start();
        let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let word = &rest[..end];
        let unit = match word {
            "ms" => 0.001,
            "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            "KiB" => 1_024.0,
            "MiB" => 1_048_576.0,
            _ => 1.0,
        };
        total = Some(total.unwrap_or(0.0) + number * unit);
        rest = &rest[end..];
        // A duration may have a second unit.
        if matches!(word, "min" | "h" | "d") {
            rest = rest.trim_start();
        }
    }
    total
}

fn draw(columns: &[Column<'_>], rows: Vec<Vec<String>>, limit: Option<usize>) -> String {
    let header: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let natural = |index: usize| rows.iter().chain([&header]).map(|row| terminal::width(&row[index])).max().unwrap_or(0);
    let natural: Vec<usize> = (0..columns.len()).map(natural).collect();
    let widths = fit(columns, &natural, limit);
    let line = |row: &[String]| {
        let cells = row.iter().zip(columns).zip(&widths).filter_map(|((cell, column), width)| {
            let cell = terminal::cut(cell, (*width)?);
            let padding = " ".repeat(width.unwrap_or(0).saturating_sub(terminal::width(&cell)));
            Some(if column.is_right { format!("{padding}{cell}") } else { format!("{cell}{padding}") })
        });
        let line = cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned();
        limit.map_or_else(|| line.clone(), |limit| terminal::cut(&line, limit))
    };
    let lines = rows.iter().map(|row| line(row));
    lines.fold(format!("{DIM}{}{DIM:#}", line(&header)), |text, line| text + "\n" + &line)
}

/// The width of each column; `None` for a dropped one. Flexible columns shrink first, down to a comfortable width; then
/// optional columns are dropped; then the rest shrinks further.
fn fit(columns: &[Column<'_>], natural: &[usize], limit: Option<usize>) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = natural.iter().copied().map(Some).collect();
    let Some(limit) = limit else { return widths };
    let first = columns.iter().position(|column| column.may_be_cut);
    loop {
        let at_most = |level: usize, more: usize, index: usize| {
            let level = if Some(index) == first { level + more } else { level };
            let least = if columns[index].may_be_cut { natural[index].min(level) } else { natural[index] };
            widths[index].map(|_| least)
        };
        let total = |level: usize, more: usize| {
            let shown: Vec<usize> = (0..columns.len()).filter_map(|index| at_most(level, more, index)).collect();
            shown.iter().sum::<usize>() + GAP * shown.len().saturating_sub(1)
        };
        let last = (0..columns.len()).filter(|index| widths[*index].is_some() && columns[*index].optional > 0);
        if let Some(last) = last.max_by_key(|index| (columns[*index].optional, *index)) {
            // The extra width of the title is worth dropping a very optional column, but no other.
            let more = if columns[last].optional > 1 { EXTRA } else { 0 };
            if total(COMFORTABLE, more) > limit {
                widths[last] = None;
                continue;
            }
        }
        let fits = |more: usize| (TIGHT..=limit.max(TIGHT)).rev().find(|level| total(*level, more) <= limit);
        let (level, more) = fits(EXTRA).map(|level| (level, EXTRA)).or_else(|| Some((fits(0)?, 0))).unwrap_or((TIGHT, 0));
        return (0..columns.len()).map(|index| at_most(level, more, index)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::GREEN;

    fn drawn(names: &[&str], rows: &[&[&str]], limit: usize) -> String {
        let columns: Vec<Column<'_>> = names.iter().map(|name| Column::parse(name)).collect();
        let rows = rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
        terminal::plain(&draw(&columns, rows, Some(limit)))
    }

    #[test]
    fn columns_are_aligned_for_any_content() {
        let rows = vec![
            vec!["a\nb".into(), format!("{GREEN}held{GREEN:#}"), "3".into()],
            vec!["漢字".into(), "free".into(), "12".into()],
            vec!["👩‍👩‍👧‍👦❤️".into(), "free".into(), "1".into()],
        ];
        let text = terminal::plain(&render(&["NAME", "STATE", "N>"], rows));
        assert_eq!(text, "NAME  STATE   N\na\\nb  held    3\n漢字  free   12\n👩‍👩‍👧‍👦❤️  free    1");
    }

    #[test]
    fn flexible_columns_shrink_before_optional_ones_are_dropped() {
        let names = ["ID", "TITLE~", "RUNNER??", "ERROR~?", "FOR>"];
        let rows: &[&[&str]] =
            &[&["t-1", "A title that is somewhat long", "runner-1234", "an error that is long as well", "12s"]];
        let at = |limit| drawn(&names, rows, limit);
        let wide = at(79);
        assert!(wide.contains("runner-1234") && wide.contains("A title that is somewhat long  "), "{wide}");
        assert_eq!(
            at(60),
            "ID   TITLE                          ERROR                FOR\nt-1  A title that is somewhat long  an error that is l…  12s"
        );
        assert_eq!(at(40), "ID   TITLE                          FOR\nt-1  A title that is somewhat long  12s");
        assert_eq!(at(20), "ID   TITLE       FOR\nt-1  A title t…  12s");
        assert_eq!(at(10), "ID   TITL…\nt-1  A ti…");
        for limit in 1..90 {
            let text = at(limit);
            assert!(text.lines().all(|line| terminal::width(line) <= limit), "{limit}: {text}");
        }
    }

    #[test]
    fn empty_columns_are_dropped_on_a_terminal() {
        let rows = vec![vec!["a".into(), String::new(), "x".into()], vec!["b".into(), String::new(), String::new()]];
        assert_eq!(
            lines(&["NAME", "DETAIL~", "X"], rows, 40).iter().map(|line| terminal::plain(line)).collect::<Vec<_>>(),
            ["NAME  X", "a     x", "b"]
        );
    }

    #[test]
    fn graphemes_are_never_split() {
        let family = "👩‍👩‍👧‍👦";
        let text = drawn(&["N~"], &[&[&format!("{family}{family}{family}{family}{family}")]], 8);
        assert_eq!(text, format!("N\n{family}{family}{family}…"));
        assert_eq!(drawn(&["N~"], &[&["漢字漢字漢字"]], 8), "N\n漢字漢…");
    }

    #[test]
    fn cells_are_sorted_by_value() {
        let mut cells = ["3 min", "1 h 5 min", "480 ms", "-", "2 d 4 h", "12 s", "1 h ago", "2 d"];
        cells.sort_by(|a, b| compare(a, b));
        assert_eq!(cells, ["480 ms", "12 s", "3 min", "1 h ago", "1 h 5 min", "2 d", "2 d 4 h", "-"]);
        let mut cells = ["10 KiB", "1.5 MiB", "512 bytes"];
        cells.sort_by(|a, b| compare(a, b));
        assert_eq!(cells, ["512 bytes", "10 KiB", "1.5 MiB"]);
        let mut cells = ["beta", "Alpha", "10", "9"];
        cells.sort_by(|a, b| compare(a, b));
        assert_eq!(cells, ["9", "10", "Alpha", "beta"]);
    }

    #[test]
    fn columns_are_selected_by_name() {
        let flags = TableFlags { columns: vec!["n".into(), "Name".into()], sort: Some("-n".into()) };
        let rows = || vec![vec!["a".to_owned(), "1".into(), "x".into()], vec!["b".into(), "2".into(), "y".into()]];
        assert_eq!(terminal::plain(&flags.render(&["NAME", "N>!", "X"], rows()).unwrap()), "N  NAME\n2  b\n1  a");
        assert_eq!(terminal::plain(&render(&["NAME", "N>!", "X"], rows())), "NAME  X\na     x\nb     y");
        let wrong = TableFlags { columns: vec!["nmae".into()], sort: None };
        assert_eq!(wrong.render(&["NAME"], Vec::new()).unwrap_err().hint.unwrap(), "columns: name");
    }
}
