//! One row per figure, printed as a Markdown table or as JSON. The only file that prints.

use std::error::Error;

use serde_json::{Value, json};

use crate::stats::Sample;

/// The unit of a number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    PairsPerSecond,
    CyclesPerSecond,
    StepsPerSecond,
    TasksPerSecond,
    LandingsPerSecond,
    MessagesPerSecond,
    Milliseconds,
    Ratio,
    Percent,
    Megabytes,
    MegabytesPerSecond,
    Count,
}

/// The target of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// The lower bound of the value.
    AtLeast(f64),
    /// The upper bound of the value.
    AtMost(f64),
    /// The lower bound of the ratio to the peer.
    RatioAtLeast(f64),
    /// The upper bound of the ratio to the peer.
    RatioAtMost(f64),
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    unit: Unit,
    ours: Sample,
    beside: String,
    ratio: Option<Sample>,
    target: Option<Target>,
}

pub(crate) struct Report {
    /// Date, machine, Fs: name and value.
    pub(crate) header: Vec<(&'static str, String)>,
    pub(crate) rows: Vec<Row>,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: Unit, ours: Sample) -> Row {
        Row { what: what.into(), unit, ours, beside: "-".into(), ratio: None, target: None }
    }

    /// Another value of the same run to judge the figure by.
    pub(crate) fn beside(mut self, beside: impl Into<String>) -> Row {
        self.beside = beside.into();
        self
    }

    /// The same figure of a peer, and the ratio of ours to it.
    pub(crate) fn peer(self, name: &str, theirs: Sample, ratio: Sample) -> Row {
        let beside = format!("{name}: {}", self.unit.format(theirs));
        Row { beside, ratio: Some(ratio), ..self }
    }

    pub(crate) fn target(mut self, target: Target) -> Row {
        self.target = Some(target);
        self
    }

    fn met(&self) -> Option<bool> {
        self.target.map(|target| match target {
            Target::AtLeast(bound) => self.ours.median >= bound,
            Target::AtMost(bound) => self.ours.median <= bound,
            Target::RatioAtLeast(bound) => self.ratio.is_some_and(|ratio| ratio.median >= bound),
            Target::RatioAtMost(bound) => self.ratio.is_some_and(|ratio| ratio.median <= bound),
        })
    }

    fn target_words(&self) -> String {
        match self.target {
            None => "-".into(),
            Some(Target::AtLeast(bound)) => format!(">= {}", self.unit.number(bound)),
            Some(Target::AtMost(bound)) => format!("<= {}", self.unit.number(bound)),
            Some(Target::RatioAtLeast(bound)) => format!("ratio >= {bound}"),
            Some(Target::RatioAtMost(bound)) => format!("ratio <= {bound}"),
        }
    }

    fn line(&self) -> String {
        let met = self.met().map_or("-", |met| if met { "yes" } else { "**no**" });
        let ratio = self.ratio.map_or_else(|| "-".into(), |ratio| Unit::Ratio.format(ratio));
        format!(
            "| {} | {} | {} | {ratio} | {} | {met} |",
            self.what,
            self.unit.format(self.ours),
            self.beside,
            self.target_words()
        )
    }

    fn json(&self) -> Value {
        let sample = |sample: Sample| json!({ "median": sample.median, "least": sample.least, "most": sample.most });
        json!({
            "what": self.what,
            "unit": self.unit.name(),
            "ours": sample(self.ours),
            "beside": self.beside,
            "ratio": self.ratio.map(sample),
            "target": self.target.map(|_| self.target_words()),
            "met": self.met(),
        })
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::PairsPerSecond => "pairs/s",
            Unit::CyclesPerSecond => "cycles/s",
            Unit::StepsPerSecond => "steps/s",
            Unit::TasksPerSecond => "tasks/s",
            Unit::LandingsPerSecond => "landings/s",
            Unit::MessagesPerSecond => "messages/s",
            Unit::Milliseconds => "ms",
            Unit::Ratio => "ratio",
            Unit::Percent => "%",
            Unit::Megabytes => "MB",
            Unit::MegabytesPerSecond => "MB/s",
            Unit::Count => "",
        }
    }

    /// A number with its unit.
    fn number(self, value: f64) -> String {
        match self {
            Unit::PairsPerSecond
            | Unit::CyclesPerSecond
            | Unit::StepsPerSecond
            | Unit::TasksPerSecond
            | Unit::LandingsPerSecond
            | Unit::MessagesPerSecond => {
                format!("{}/s", thousands(value))
            }
            Unit::Milliseconds if value < 10.0 => format!("{value:.2} ms"),
            Unit::Milliseconds => format!("{value:.1} ms"),
            Unit::Ratio => format!("{value:.2}"),
            Unit::Percent => format!("{value:.3} %"),
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::MegabytesPerSecond => format!("{value:.0} MB/s"),
            Unit::Count if value.fract() == 0.0 => thousands(value),
            Unit::Count => format!("{value:.2}"),
        }
    }

    /// The median, and the range of the rounds if there was more than one.
    fn format(self, sample: Sample) -> String {
        let median = self.number(sample.median);
        if sample.least == sample.most {
            return median;
        }
        format!("{median} ({} to {})", self.number(sample.least), self.number(sample.most))
    }
}

impl Report {
    #[expect(clippy::print_stdout, reason = "the table is what this program is for")]
    pub(crate) fn print_table(&self) {
        for (name, value) in &self.header {
            println!("- {name}: {value}");
        }
        println!("\n| what | ours | raw limit or peer in the same run | ratio | target | met? |\n|---|---|---|---|---|---|");
        for row in &self.rows {
            println!("{}", row.line());
        }
    }

    #[expect(clippy::print_stdout, reason = "the figures are what this program is for")]
    pub(crate) fn print_json(&self) {
        let header: serde_json::Map<String, Value> =
            self.header.iter().map(|(name, value)| ((*name).into(), value.as_str().into())).collect();
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        println!("{:#}", json!({ "header": header, "figures": rows }));
    }
}

/// Prints the name of the current figure.
#[expect(clippy::print_stderr, reason = "standard output is for the table alone")]
pub(crate) fn announce(name: &str) {
    eprintln!("measuring: {name}");
}

/// Prints why the program ends.
#[expect(clippy::print_stderr, reason = "standard output is for the table alone")]
pub(crate) fn complain(error: &dyn Error) {
    eprintln!("banksman-bench: {error}");
}

/// A rounded number with commas between its thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::with_capacity(digits.len() + 4);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_whether_its_target_is_met() {
        let sample = Sample { median: 1500.0, least: 900.0, most: 2_000_000.0 };
        let row = Row::new("a", Unit::PairsPerSecond, sample).target(Target::AtLeast(1500.0));
        assert_eq!(row.line(), "| a | 1,500/s (900/s to 2,000,000/s) | - | - | >= 1,500/s | yes |");
        let half = Sample::once(0.5);
        let row = Row::new("b", Unit::Ratio, half).peer("p", half, half).target(Target::RatioAtLeast(0.7));
        assert_eq!(row.line(), "| b | 0.50 | p: 0.50 | 0.50 | ratio >= 0.7 | **no** |");
        let row = Row::new("c", Unit::Milliseconds, Sample::once(f64::NAN)).target(Target::AtMost(1.0));
        assert_eq!(row.met(), Some(false), "a missing value does not meet its target");
    }
}
