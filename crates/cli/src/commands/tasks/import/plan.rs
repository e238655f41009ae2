//! The tasks to import, with names resolved to ids and all checks done.

use std::collections::HashMap;

use banksman_adapters::ids;
use banksman_core::backlog::{Edge, Section};
use banksman_core::import::NewSection;
use banksman_core::task::Spec;
use banksman_core::task::dependencies::{self, EDGE_LIMIT};
use banksman_core::task::retry::Policy;
use banksman_core::{ImportId, SectionId, TaskId, Title};
use banksman_store::{Key, Reader};

use super::problem::{Problem, Problems};
use super::record::{Record, spec};
use super::source::Parsed;
use super::sync;
use crate::failure::Failure;
use crate::format;

/// The number of tasks shown at each end of a long cycle.
const CYCLE_SHOWN: usize = 10;

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) tasks: Vec<(Spec, Vec<Edge>)>,
    pub(super) sections: Vec<NewSection>,
    /// The name of each task in the file.
    pub(super) keys: Vec<String>,
}

/// The meaning of a name in the file.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    Task(usize),
    /// Several tasks, of which these are the first two.
    Several(usize, usize),
    /// A ticked task, which is not imported.
    Done,
}

/// Resolves the names of a file, in it and in the project.
struct Names<'a> {
    own: HashMap<&'a str, Meaning>,
    records: &'a [Record],
    reader: &'a mut Reader,
    /// The results of lookups in the project.
    outside: HashMap<String, Result<TaskId, Problem>>,
}

/// Turns records into tasks. `None` if there are problems.
pub(super) fn plan(
    parsed: &Parsed,
    id: &ImportId,
    source: &str,
    create_sections: bool,
    policy: &Policy,
    reader: &mut Reader,
    problems: &mut Problems,
) -> Result<Option<Plan>, Failure> {
    let records = &parsed.records;
    let own = own_names(parsed, problems);
    let mut sections = Sections::load(reader, create_sections)?;
    let mut specs = Vec::with_capacity(records.len());
    for record in records {
        let section = record.section.as_deref().and_then(|name| sections.find(record.line, name, problems));
        specs.extend(spec(record, section, policy, problems));
    }
    let keys = records.iter().enumerate().map(|(index, record)| match (&record.key, own.get(record.title.as_str())) {
        (Some(key), _) => key.clone(),
        (None, Some(Meaning::Task(target))) if *target == index => record.title.clone(),
        (None, _) => format!("line {}", record.line),
    });
    let keys: Vec<String> = keys.collect();
    let mut names = Names { own, records, reader, outside: HashMap::new() };
    let mut graph = Vec::with_capacity(records.len());
    let mut edges = Vec::with_capacity(records.len());
    for index in 0..records.len() {
        if problems.is_full() {
            return Ok(None);
        }
        let (inside, all) = names.edges(index, id, problems)?;
        graph.push(inside);
        edges.push(all);
    }
    if let Some(cycle) = dependencies::cycle(&graph) {
        problems.push(of_cycle(&cycle, &keys, records));
    }
    if !problems.is_empty() {
        return Ok(None);
    }
    for ((spec, record), key) in specs.iter_mut().zip(records).zip(&keys) {
        // A line number is no name: it changes when the file is edited.
        let is_name = record.key.is_some() || record.title == *key;
        spec.source = is_name.then(|| sync::entry(source, key));
    }
    Ok(Some(Plan { tasks: specs.into_iter().zip(edges).collect(), sections: sections.new, keys }))
}

/// The keys, and the titles of tasks without a key.
fn own_names<'a>(parsed: &'a Parsed, problems: &mut Problems) -> HashMap<&'a str, Meaning> {
    let mut own = HashMap::with_capacity(parsed.records.len());
    let records = || parsed.records.iter().enumerate();
    for (index, record) in records() {
        let Some(key) = record.key.as_deref() else { continue };
        if let Some(Meaning::Task(first)) = own.insert(key, Meaning::Task(index)) {
            let what = format!("duplicate key {key:?}: line {} has it already", parsed.records[first].line);
            problems.push(Problem::new(record.line, what).field("key").hint("give every task of the file a unique key"));
        }
    }
    for (index, record) in records().filter(|(_, record)| record.key.is_none()) {
        own.entry(&record.title)
            .and_modify(|meaning| {
                if let Meaning::Task(first) = *meaning
                    && parsed.records[first].key.is_none()
                {
                    *meaning = Meaning::Several(first, index);
                }
            })
            .or_insert(Meaning::Task(index));
    }
    for title in &parsed.done {
        own.entry(title).or_insert(Meaning::Done);
    }
    own
}

impl Names<'_> {
    /// The dependencies of a record: the indexes of those in the file, and all of them as edges.
    fn edges(&mut self, index: usize, id: &ImportId, problems: &mut Problems) -> Result<(Vec<u32>, Vec<Edge>), Failure> {
        let records = self.records;
        let record = &records[index];
        let wrong = |problem: Problem| Problem { line: record.line, ..problem }.field("dependsOn");
        let (mut inside, mut outside) = (record.inner.clone(), Vec::new());
        for name in &record.depends_on {
            match self.own.get(name.as_str()) {
                Some(Meaning::Task(on)) if *on == index => {
                    problems.push(wrong(Problem::new(0, "a task cannot depend on itself")));
                }
                Some(Meaning::Task(on)) => inside.push(*on),
                Some(Meaning::Several(one, other)) => {
                    let lines = [one, other].map(|index| records[*index].line);
                    let what = format!("{name:?} is ambiguous; it matches line {} and line {}", lines[0], lines[1]);
                    problems.push(wrong(Problem::new(0, what).hint("give the tasks different titles, or keys")));
                }
                Some(Meaning::Done) => {}
                None => match self.outside(name)? {
                    Ok(task) => outside.push(task),
                    Err(problem) => problems.push(wrong(problem)),
                },
            }
        }
        inside.sort_unstable();
        inside.dedup();
        outside.sort_unstable();
        outside.dedup();
        let number = inside.len() + outside.len();
        if number > EDGE_LIMIT {
            problems.push(wrong(Problem::new(0, dependencies::DagError::TooMany(number).to_string())));
        }
        let inside: Vec<u32> = inside.into_iter().filter_map(|on| u32::try_from(on).ok()).collect();
        let all = inside.iter().map(|on| id.task(*on)).chain(outside);
        let all = all.map(|on| Edge { on, allow_failed: record.allow_failed }).collect();
        Ok((inside, all))
    }

    /// The task of the project with this name.
    fn outside(&mut self, name: &str) -> Result<Result<TaskId, Problem>, Failure> {
        if let Some(known) = self.outside.get(name) {
            return Ok(known.clone());
        }
        let found = if name.is_empty() { Vec::new() } else { self.reader.view().find_tasks(name)? };
        let target = match &found[..] {
            [id] => Ok(id.clone()),
            [] => Err(Problem::new(0, format!("there is no task {name:?}, neither in this file nor in the project"))
                .hint("use its key, or its title if no other task of the file has the same title")),
            several => {
                let ids: Vec<&str> = several.iter().map(TaskId::as_str).collect();
                let what = format!("{name:?} is ambiguous; it matches several tasks of the project: {}", ids.join(", "));
                Err(Problem::new(0, what).hint("use the id"))
            }
        };
        self.outside.insert(name.into(), target.clone());
        Ok(target)
    }
}

/// The existing sections, and the new ones.
struct Sections {
    known: HashMap<String, Option<SectionId>>,
    new: Vec<NewSection>,
    create: bool,
}

impl Sections {
    fn load(reader: &mut Reader, create: bool) -> Result<Sections, Failure> {
        let rows = reader.view().load(&[Key::Sections].into())?.tables.backlog.sections;
        let names =
            |section: Section| [(section.id.to_string(), Some(section.id.clone())), (section.name.to_string(), Some(section.id))];
        Ok(Sections { known: rows.into_values().flat_map(names).collect(), new: Vec::new(), create })
    }

    /// The section with this name or id. A problem with a name is reported once.
    fn find(&mut self, line: usize, name: &str, problems: &mut Problems) -> Option<SectionId> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let problem = |what: String| Problem::new(line, what).field("section");
        let made = match (self.create, Title::new(name)) {
            (true, Ok(title)) => {
                let id = SectionId::new(&ids::short("s")).expect("a short id is valid");
                self.new.push(NewSection { id: id.clone(), name: title });
                Some(id)
            }
            (true, Err(error)) => {
                problems.push(problem(error.to_string()));
                None
            }
            (false, _) => {
                let hint = format!("create it with: banksman sections add {}; or add --create-sections", format::quoted(name));
                problems.push(problem(format!("there is no section {name:?}")).hint(hint));
                None
            }
        };
        self.known.insert(name.into(), made.clone());
        made
    }
}

/// `a (line 3) -> b (line 7) -> a (line 3)`.
fn of_cycle(cycle: &[u32], keys: &[String], records: &[Record]) -> Problem {
    let word = |index: &u32| format!("{} (line {})", keys[*index as usize], records[*index as usize].line);
    let mut words: Vec<String> = cycle.iter().chain(&cycle[..1]).map(word).collect();
    if words.len() > 2 * CYCLE_SHOWN + 1 {
        let left_out = words.len() - 2 * CYCLE_SHOWN;
        words.splice(CYCLE_SHOWN..words.len() - CYCLE_SHOWN, [format!("… {} more …", format::thousands(left_out))]);
    }
    let line = cycle.iter().map(|index| records[*index as usize].line).min().unwrap_or_default();
    Problem::new(line, format!("dependency cycle: {}", words.join(" -> "))).field("dependsOn")
}
