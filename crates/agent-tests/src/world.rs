//! A project with a git repository, the four programs configured for the scripted model, and `banksman` itself.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::model::Model;

/// The deadline of every wait.
const TIMEOUT: Duration = Duration::from_secs(120);

pub const AGENTS: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

pub struct World {
    dir: TempDir,
    pub model: Model,
    programs: PathBuf,
    banksman: PathBuf,
}

impl World {
    /// A project that trusts all agents. `make test-agents` has installed the programs.
    pub fn new() -> World {
        let world = World::untrusted();
        world.ok(&["trust", "--agent", &AGENTS.join(",")]);
        world
    }

    pub fn untrusted() -> World {
        let variable =
            |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: make test-agents")));
        let (programs, banksman) = (variable("BANKSMAN_TEST_AGENTS"), variable("BANKSMAN_TEST_BINARY"));
        let world = World { dir: tempfile::tempdir().expect("a temporary folder"), model: Model::start(), programs, banksman };
        world.settings();
        fs::create_dir(world.root()).expect("the folder is new");
        world.git(&["init", "-q", "-b", "main"]);
        // Some programs do not pass the variables of git on.
        world.git(&["config", "user.name", "Agent"]);
        world.git(&["config", "user.email", "agent@example.invalid"]);
        world.write("README.md", "a project\n");
        world.git(&["add", "."]);
        world.git(&["commit", "-qm", "begin"]);
        world.ok(&["init"]);
        world
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("it is in the project")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Writes the settings of the programs, which point to the scripted model.
    fn settings(&self) {
        let (home, url) = (self.home(), &self.model.url);
        let put = |path: &str, text: String| {
            let path = home.join(path);
            fs::create_dir_all(path.parent().expect("it is in the home")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        let provider =
            format!("name = \"scripted\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n");
        let codex = format!("model = \"scripted\"\nmodel_provider = \"scripted\"\n[model_providers.scripted]\n{provider}");
        put(".codex/config.toml", codex);
        put(".gemini/settings.json", json!({"security": {"auth": {"selectedType": "gemini-api-key"}}}).to_string());
        let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "x"});
        let provider = json!({"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": options,
            "models": {"scripted": {"name": "scripted"}}});
        put(
            ".config/opencode/opencode.json",
            json!({"model": "scripted/scripted", "provider": {"scripted": provider}}).to_string(),
        );
        put(".gitconfig", "[user]\nname = a\nemail = a@example.org\n".into());
    }

    fn env(&self) -> Vec<(&'static str, OsString)> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let banksman = self.banksman.parent().map(Path::to_owned).unwrap_or_default();
        let folders = [self.programs.join("node_modules/.bin"), banksman].into_iter().chain(std::env::split_paths(&path));
        vec![
            ("PATH", std::env::join_paths(folders).expect("folders without colons")),
            ("HOME", self.home().into()),
            ("XDG_STATE_HOME", self.home().join("state").into()),
            ("XDG_CONFIG_HOME", self.home().join(".config").into()),
            ("IS_SANDBOX", "1".into()),
            ("SCRIPTED_KEY", "x".into()),
            ("ANTHROPIC_BASE_URL", self.model.url.clone().into()),
            ("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-scripted".into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
            ("GEMINI_API_KEY", "x".into()),
            ("GOOGLE_GEMINI_BASE_URL", self.model.url.clone().into()),
        ]
    }

    pub fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.root()).envs(self.env()).stdin(Stdio::null());
        for name in ["ANTHROPIC_API_KEY", "CLAUDECODE", "BANKSMAN_STORE", "BANKSMAN_PROJECT", "GIT_DIR"] {
            command.env_remove(name);
        }
        command
    }

    pub fn git(&self, args: &[&str]) -> String {
        let output = self.command(Path::new("git"), args).output().expect("git is installed");
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(&self.banksman, args).output().expect("banksman is built")
    }

    pub fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(&self.banksman, args);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("banksman is built")
    }

    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "banksman {args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("banksman {args:?}: {error}"))
    }

    /// A process of the only session: its `keeperPid` or `childPid`.
    pub fn pid(&self, field: &str) -> i64 {
        let sessions = self.json(&["sessions", "list"]);
        sessions["data"]["sessions"][0][field].as_i64().unwrap_or_else(|| panic!("no {field}: {sessions}"))
    }

    /// Sends a signal to a process of this project.
    pub fn signal(&self, signal: &str, pid: i64) {
        let status = self.command(Path::new("kill"), &[signal, &pid.to_string()]).status().expect("kill is installed");
        assert!(status.success(), "kill {signal} {pid}: {status}");
    }

    /// Adds a task with this script for its model.
    pub fn add(&self, title: &str, agent: &str, script: &str) {
        self.add_with(title, agent, script, &[]);
    }

    pub fn add_with(&self, title: &str, agent: &str, script: &str, more: &[&str]) {
        let prompt = format!("@script {title}\n{script}");
        self.ok(&[&["tasks", "add", title, "--agent", agent, "--prompt", &prompt], more].concat());
    }

    pub fn run_until_idle(&self) -> Output {
        self.run(&["run", "--until-idle"])
    }

    /// A task with its status and its runs.
    pub fn task(&self, title: &str) -> Value {
        self.json(&["tasks", "show", title])["data"].clone()
    }

    pub fn status(&self, title: &str) -> String {
        self.task(title)["status"].as_str().unwrap_or_default().to_owned()
    }

    /// The verdict of the agent of each run of a task.
    pub fn verdicts(&self, title: &str) -> Vec<String> {
        let task = self.task(title);
        let runs = task["runs"].as_array().cloned().unwrap_or_default();
        runs.iter().map(|run| run["agent"]["verdict"].as_str().unwrap_or("none").to_owned()).collect()
    }

    pub fn log(&self, title: &str) -> String {
        self.ok(&["tasks", "logs", title, "--raw"])
    }

    /// The subjects of the commits on a task's branch that are not on main.
    pub fn commits(&self, title: &str) -> Vec<String> {
        let branches = self.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/banksman/"]);
        let slug = title.to_lowercase().replace(' ', "-");
        let branch =
            branches.lines().find(|branch| branch.ends_with(&slug)).unwrap_or_else(|| panic!("no branch of {title}: {branches}"));
        self.git(&["log", "--format=%s", &format!("main..{branch}")]).lines().map(str::to_owned).collect()
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

/// Waits until a condition holds.
pub fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_true() {
        assert!(Instant::now() < end, "timed out waiting until {what}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(50));
    }
}
