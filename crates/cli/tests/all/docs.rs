//! Every shell block of the README, the guides and the concepts runs as it is printed.
//!
//! The blocks of a page run one after the other in a new project, each in a shell of its own that stops at the first command that fails.
//! A comment right above a block says how it differs:
//!
//! ```text
//! <!-- first: mkdir -p ~/.config -->   runs this before the block; may have several lines
//! <!-- in a run -->                    runs the block as the command of a task
//! <!-- not run: it needs a server -->  leaves the block out, with the reason
//! <!-- file: plan.md -->               the block, of any language, is this file of the project
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::world::{BANKSMAN, World, write_program};

/// What the pages assume beside banksman: a repository with a Makefile and scripts, and programs that may not be installed.
const FIXTURES: [(&str, &str); 4] = [
    ("project/Makefile", "all test:\n\t@true\n"),
    ("bin/python", "#!/bin/sh\n"),
    ("bin/my-agent", "#!/bin/sh\n"),
    ("bin/claude", CLAUDE),
];

/// Stands in for an agent program: logged in, and writes a file.
const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = -p ] || { echo '{"loggedIn": true}'; exit; }
cat > /dev/null
echo work > "$BANKSMAN_TASK.txt"
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","num_turns":1,"total_cost_usd":0.1}'
"#;
const SCRIPTS: [&str; 10] = ["agent", "release", "deploy", "clean", "migrate", "one", "two", "triage", "check", "build"];

macro_rules! pages {
    ($($name:ident $path:literal),+ $(,)?) => {
        const PAGES: &[&str] = &[$($path),+];
        $(#[test]
        fn $name() {
            run_page($path);
        })+
    };
}

pages! {
    readme "README.md",
    agents "docs/guides/agents.md",
    backlog "docs/guides/backlog.md",
    backup "docs/guides/backup.md",
    bus "docs/guides/bus.md",
    talking "docs/guides/talking.md",
    by_hand "docs/guides/by-hand.md",
    events "docs/guides/events.md",
    import "docs/guides/import.md",
    landing "docs/guides/landing.md",
    loops "docs/guides/loops.md",
    notifications "docs/guides/notifications.md",
    pipelines "docs/guides/pipelines.md",
    postgres "docs/guides/postgres.md",
    queues "docs/guides/queues.md",
    recover "docs/guides/recover.md",
    runbooks "docs/guides/runbooks.md",
    stuck "docs/guides/stuck.md",
    terminal "docs/guides/terminal.md",
    uninstall "docs/guides/uninstall.md",
    worktrees "docs/guides/worktrees.md",
    guards "docs/concepts/guards.md",
    sharing "docs/guides/sharing.md",
    semaphores "docs/concepts/semaphores.md",
    workers "docs/concepts/workers.md",
}

#[derive(Debug, Default)]
struct Block {
    line: usize,
    file: Option<String>,
    first: Option<String>,
    in_a_run: bool,
    left_out: bool,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shell blocks and the files of a page, with the comments above them.
fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut next) = (Vec::new(), Block::default());
    let mut lines = page.lines().enumerate().map(|(number, line)| (number + 1, line));
    while let Some((number, line)) = lines.next() {
        if let Some(comment) = line.trim_start().strip_prefix("<!--") {
            let mut comment = comment.to_owned();
            while !comment.contains("-->") {
                comment += &format!("\n{}", lines.next().expect("a comment ends").1);
            }
            let comment = comment.split("-->").next().unwrap_or_default().trim().to_owned();
            match comment.split_once(':') {
                Some(("first", commands)) => next.first = Some(commands.trim().to_owned()),
                Some(("file", name)) => next.file = Some(name.trim().to_owned()),
                Some(("not run", reason)) => next.left_out = !reason.trim().is_empty(),
                _ => next.in_a_run = comment == "in a run",
            }
        } else if let Some(language) = line.trim().strip_prefix("```") {
            next.line = number;
            next.text =
                lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```").collect::<Vec<_>>().join("\n");
            let block = std::mem::take(&mut next);
            blocks.extend((language == "sh" || block.file.is_some()).then_some(block));
        } else if !line.trim().is_empty() {
            next = Block::default();
        }
    }
    blocks
}

/// A project with the programs that its pages need, and a home directory.
struct Site(World);

impl Site {
    fn new() -> Site {
        let world = World::empty_on_sqlite();
        let path = |name: &str| world.path().join(name);
        ["project", "bin", "home/.config/banksman"].iter().for_each(|dir| fs::create_dir_all(path(dir)).unwrap());
        std::os::unix::fs::symlink(BANKSMAN, path("bin/banksman")).unwrap();
        let scripts = SCRIPTS.map(|name| (format!("project/{name}.sh"), "#!/bin/sh\n"));
        let fixtures = FIXTURES.map(|(name, text)| (name.to_owned(), text));
        for (name, text) in scripts.into_iter().chain(fixtures) {
            write_program(&path(&name), text);
        }
        let site = Site(world);
        let git = "git init -q -b main && git config user.name a && git config user.email a@b && git add . && git commit -qm init && banksman init -q";
        site.shell("the project", git);
        site
    }

    /// Runs a script; panics with its output if it fails.
    fn shell(&self, what: &str, script: &str) {
        let path = |name: &str| self.0.path().join(name);
        let mut command = self.0.clean(Command::new("sh"), &["-e", "-c", script]);
        let search = format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap());
        command.current_dir(path("project")).env("PATH", search).env("HOME", path("home"));
        command.env("XDG_CONFIG_HOME", path("home/.config")).env("USER", "ada").stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{what}: {}\n{script}\n---\n{said}", output.status);
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join("project").join(name);
        write_program(&path, &format!("{text}\n"));
    }

    fn run(&self, page: &str, block: &Block) {
        let what = format!("{page}:{}", block.line);
        if let Some(first) = &block.first {
            self.shell(&format!("{what}, what comes first"), first);
        }
        if block.left_out {
            return;
        }
        if !block.in_a_run {
            return self.shell(&what, &block.text);
        }
        let script = self.0.path().join("in-a-run.sh");
        fs::write(&script, &block.text).unwrap();
        let script = script.display();
        let run = format!(
            "banksman tasks add '{what}' --run 'sh -e {script} > {script}.log 2>&1; echo $? > {script}.status'
             banksman run --until-idle || true
             cat {script}.log; grep -qx 0 {script}.status"
        );
        self.shell(&what, &run);
    }
}

fn run_page(page: &str) {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let site = Site::new();
    let (files, blocks): (Vec<_>, Vec<_>) = blocks(&text).into_iter().partition(|block| block.file.is_some());
    files.iter().for_each(|block| site.write(block.file.as_ref().unwrap(), &block.text));
    blocks.iter().for_each(|block| site.run(page, block));
}

#[test]
fn every_page_with_a_shell_block_is_listed() {
    let folders = ["docs", "docs/guides", "docs/concepts"].map(|folder| (folder, fs::read_dir(root().join(folder)).unwrap()));
    let files = folders.into_iter().flat_map(|(folder, files)| files.map(move |file| (folder, file.unwrap().file_name())));
    let pages = files.map(|(folder, name)| format!("{folder}/{}", name.to_string_lossy())).filter(|name| name.ends_with(".md"));
    let forgotten = |page: &String| {
        let has_blocks = !blocks(&fs::read_to_string(root().join(page)).unwrap()).is_empty();
        has_blocks && !PAGES.contains(&page.as_str())
    };
    assert_eq!(pages.filter(forgotten).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn comments_above_a_block_are_parsed() {
    let page = "<!-- first: a\nb -->\n```sh\nc\n```\n<!-- not run: no -->\n\n```sh\nd\n```\ntext\n<!-- in a run -->\n```sh\ne\nf\n```\n```sh\ng\n```\n";
    let found: Vec<_> = blocks(page).into_iter().map(|one| (one.line, one.first, one.in_a_run, one.left_out, one.text)).collect();
    let expected = [
        (3, Some("a\nb".to_owned()), false, false, "c".to_owned()),
        (8, None, false, true, "d".to_owned()),
        (13, None, true, false, "e\nf".to_owned()),
        (17, None, false, false, "g".to_owned()),
    ];
    assert_eq!(found, expected);
}
