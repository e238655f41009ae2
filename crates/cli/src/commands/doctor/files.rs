//! The files of the project: their permissions, and files left by killed processes. Symbolic links in the folder are no
//! finding: no command opens such a project.

use banksman_adapters::wake::Exchange;
use banksman_adapters::{life_file, private};
use banksman_store::Key;

use super::{Entry, Examination, Finding};
use crate::failure::Failure;

/// The upper bound on sockets counted: more than this are not left by accident.
const MOST_SOCKETS: usize = 100_000;

pub(super) fn check(examination: &mut Examination<'_>) -> Result<Finding, Failure> {
    let (project, fix) = (&examination.project, examination.fix);
    // Every command sets the modes when it opens the project, so setting these has failed.
    let too_open = private::too_open(project.folder()).into_iter().map(|(path, mode)| {
        Entry::new(format!("{} is accessible to other users (mode {mode:o})", path.display()))
            .solved_by(format!("chmod go= {}", path.display()))
    });
    let deserted = Exchange::open(&project.run_dir()).map_or(0, |sockets| match fix {
        true => sockets.sweep(MOST_SOCKETS),
        false => sockets.deserted(MOST_SOCKETS).len(),
    });
    let sockets = (deserted > 0).then(|| {
        let entry = Entry::new(format!("sockets of killed processes: {deserted}"));
        if fix { entry.fixed("removed") } else { entry.fixable() }
    });
    let known = examination.reader.view().load(&[Key::Runners].into())?.tables.backlog.runners;
    let known: Vec<_> = known.into_values().map(|runner| runner.process).collect();
    let dead = project.host().life_files.as_deref().map_or(0, |directory| match fix {
        true => life_file::remove_dead(directory, &known),
        false => life_file::dead(directory, &known).len(),
    });
    let life_files = (dead > 0).then(|| {
        let entry = Entry::new(format!("files of killed runners: {dead}"));
        if fix { entry.fixed("removed") } else { entry.fixable() }
    });
    Ok(Finding::notes("files", "accessible to the owner only", too_open.chain(sockets).chain(life_files).collect()))
}
