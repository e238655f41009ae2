//! CSV with a header line: quoted fields may contain commas, quotes (written twice) and line breaks.

use super::problem::{Problem, Problems};
use super::record::{FIELDS, Raw, Record, unknown};
use super::source::Parsed;

/// A row with the number of its first line.
struct Row {
    line: usize,
    fields: Vec<String>,
}

/// An iterator over the rows.
struct Rows<'a> {
    rest: &'a str,
    line: usize,
}

impl Rows<'_> {
    /// The next row that is not empty.
    fn next(&mut self) -> Option<Result<Row, Problem>> {
        while let Some(rest) = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n')) {
            self.rest = rest;
            self.line += 1;
        }
        (!self.rest.is_empty()).then(|| self.row())
    }

    fn row(&mut self) -> Result<Row, Problem> {
        let mut row = Row { line: self.line, fields: Vec::new() };
        loop {
            let field = match self.rest.strip_prefix('"') {
                Some(rest) => self.quoted(rest)?,
                None => self.plain(),
            };
            row.fields.push(field);
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
                continue;
            }
            let end = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
            self.line += usize::from(end.is_some());
            self.rest = end.unwrap_or(self.rest);
            return Ok(row);
        }
    }

    fn plain(&mut self) -> String {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at(end);
        // The carriage return belongs to the end of the line.
        let kept = if rest.starts_with(',') { field } else { field.strip_suffix('\r').unwrap_or(field) };
        self.rest = rest;
        kept.trim().into()
    }

    /// A field after its opening quote.
    fn quoted(&mut self, mut rest: &str) -> Result<String, Problem> {
        let began = self.line;
        let mut field = String::new();
        loop {
            let Some((text, after)) = rest.split_once('"') else {
                self.skip_all();
                return Err(Problem::new(began, "unclosed quote").hint("a quote inside a field is written twice"));
            };
            field.push_str(text);
            self.line += text.matches('\n').count();
            match after.strip_prefix('"') {
                Some(again) => {
                    field.push('"');
                    rest = again;
                }
                None => {
                    let taken = self.rest.len() - after.len();
                    self.rest = &self.rest[taken..];
                    if !after.is_empty() && !after.starts_with([',', '\n', '\r']) {
                        let line = self.line;
                        self.skip_line();
                        return Err(Problem::new(line, "unexpected text between a closing quote and the next comma")
                            .hint("a quote inside a field is written twice"));
                    }
                    return Ok(field);
                }
            }
        }
    }

    fn skip_line(&mut self) {
        let end = self.rest.find('\n').map_or(self.rest.len(), |end| end + 1);
        self.line += usize::from(self.rest[..end].ends_with('\n'));
        self.rest = &self.rest[end..];
    }

    fn skip_all(&mut self) {
        self.rest = "";
    }
}

pub(super) fn parse(text: &str, problems: &mut Problems) -> Parsed {
    let mut parsed = Parsed::default();
    let mut rows = Rows { rest: text, line: 1 };
    let header = match rows.next() {
        None => return parsed,
        Some(Err(problem)) => {
            problems.push(problem);
            return parsed;
        }
        Some(Ok(header)) => header,
    };
    if !header_is_right(&header, problems) {
        return parsed;
    }
    while let Some(row) = rows.next() {
        let row = match row {
            Ok(row) => row,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        if problems.is_full() || !parsed.has_room(row.line, problems) {
            break;
        }
        if row.fields.len() != header.fields.len() {
            let fields = |number: usize| if number == 1 { "1 field".into() } else { format!("{number} fields") };
            let what = format!("the row has {}, and the header has {}", fields(row.fields.len()), fields(header.fields.len()));
            problems.push(Problem::new(row.line, what).hint("put a field that contains a comma in quotes"));
            continue;
        }
        let mut record = Record { line: row.line, ..Record::default() };
        for (name, value) in header.fields.iter().zip(&row.fields) {
            record.set(name, Raw::Text(value)).unwrap_or_else(|problem| problems.push(problem));
        }
        parsed.records.push(record);
    }
    parsed
}

/// Whether the header is valid. Reports its problems.
fn header_is_right(header: &Row, problems: &mut Problems) -> bool {
    let mut is_right = true;
    let mut wrong = |problem| {
        is_right = false;
        problems.push(problem);
    };
    for (index, name) in header.fields.iter().enumerate() {
        if !FIELDS.contains(&name.as_str()) {
            wrong(unknown(header.line, name));
        } else if header.fields[..index].contains(name) {
            wrong(Problem::new(header.line, format!("duplicate column {name}")));
        }
    }
    if is_right && !header.fields.iter().any(|name| name == "title") {
        problems.push(Problem::new(header.line, "the column title is missing").hint("the first line must name the columns"));
        return false;
    }
    is_right
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<Record>, Vec<String>) {
        let mut problems = Problems::default();
        let parsed = parse(text, &mut problems);
        (parsed.records, problems.messages())
    }

    #[test]
    fn quoted_fields_may_contain_anything() {
        let text =
            "title,run,labels,priority,allowFailed\r\nplain, make a ,x; y,,\r\n\r\n\"a, \"\"b\"\"\nc\",,,7,yes\nlast,\"\",,,";
        let (records, problems) = parsed(text);
        assert_eq!(problems, Vec::<String>::new());
        let found: Vec<_> = records.iter().map(|record| (record.line, record.title.as_str(), record.priority)).collect();
        assert_eq!(found, [(2, "plain", 0), (4, "a, \"b\"\nc", 7), (6, "last", 0)]);
        assert_eq!((records[0].run.as_deref(), &records[0].labels[..]), (Some("make a"), &["x".into(), "y".into()][..]));
        assert_eq!((records[2].run.as_deref(), records[1].allow_failed), (None, true));
    }

    #[test]
    fn every_mistake_has_its_line() {
        assert_eq!(
            parsed("title,priority\na,1\nb\n\"c\nc\",x\n\"d\"d,1\n\"e,2\nf,3").1,
            [
                "3: the row has 1 field, and the header has 2 fields",
                "4: priority: must be a whole number, not \"x\"",
                "6: unexpected text between a closing quote and the next comma",
                "7: unclosed quote"
            ]
        );
        assert_eq!(parsed("titel,run,run\n").1, ["1: unknown field \"titel\"", "1: duplicate column run"]);
        assert_eq!(parsed("run\nx\n").1, ["1: the column title is missing"]);
        assert_eq!(parsed(""), (Vec::new(), Vec::new()));
    }
}
