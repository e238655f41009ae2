//! Pipelines and their phases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use banksman_core::guard::Guard;
use banksman_core::pipeline::plan::{
    Action, After, CONTEXT_LIMIT, Context, DEFAULT_TIMES, OnFail, PHASE_LIMIT, Phase, Plan, PlanLand, check_name, fits,
    output_var,
};
use banksman_core::task::{NEED_LIMIT, Need};
use serde_json::Value;

use super::order::{self, PhaseNode};
use super::read::{Spot, View, json};
use super::run_command::{push_of, text_of};
use super::{Build, Uses, VariableScope, own};
use crate::diagnostic::{At, Code};
use crate::runbook::{PipelineDef, Runbook};

/// The value of `next` that ends the pipeline.
const DONE: &str = "done";

type Vars = BTreeMap<Box<str>, Option<Value>>;

/// The names that the parts of a pipeline may use.
struct Known<'v> {
    /// The names for guards.
    conditions: BTreeSet<&'v str>,
    /// The names for the actions of phases.
    templates: BTreeSet<&'v str>,
}

impl<'a> Build<'a, '_> {
    pub(super) fn read_pipelines(&mut self, root: View<'a>, runbook: &mut Runbook) {
        for (name, _, value) in root.view("pipeline").map(|all| all.entries()).unwrap_or_default() {
            let Some((view, title)) = View::of(value).zip(own(name)) else { continue };
            let vars = self.vars(view);
            let phases = self.phases(view, name, &vars);
            let land = view.view("land").map(|land| Box::new(self.land(land, name, &vars, &phases)));
            let plan = Plan { runbook: self.name.into(), name: title.clone(), vars, phases, land };
            let def = PipelineDef { description: view.string("description"), plan: Arc::new(plan) };
            runbook.pipelines.insert(title, def);
        }
    }

    /// The worktree of a pipeline, and where its work lands.
    fn land(&mut self, view: View<'a>, pipeline: &'a str, vars: &Vars, phases: &[Phase]) -> PlanLand {
        let mut uses = Uses::default();
        let (branch, into) = (text_of(view, "branch", &mut uses), text_of(view, "into", &mut uses));
        // Only the variables of the pipeline are known when it starts.
        self.check_uses(&uses, &vars.keys().map(|name| &**name).collect(), VariableScope::Pipeline(pipeline));
        let returned = view.name("returned");
        if let Some(name) = returned.as_ref().filter(|name| !phases.iter().any(|phase| phase.name == **name)) {
            self.no_such("phase", name.as_str(), view.value_at("returned"), phases.iter().map(|phase| phase.name.as_str()));
        }
        PlanLand { branch, into, returned }
    }

    fn vars(&mut self, view: View<'a>) -> Vars {
        let mut vars = Vars::new();
        for spot in view.many("vars") {
            let given = match View::of(spot) {
                Some(defaults) => defaults.entries().into_iter().map(|(name, at, value)| (name, at, Some(value))).collect(),
                None => spot.get_ref().as_str().map(|name| (name, spot.span(), None)).into_iter().collect::<Vec<_>>(),
            };
            for (name, at, value) in given {
                let default = value.and_then(|value| self.default(value));
                if vars.insert(name.into(), default).is_some() {
                    self.sink.add(Code::Duplicate, at, format!("the variable {name:?} is there already"));
                }
            }
        }
        let context: Context = vars.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect();
        if fits(&context).is_err() {
            let message = format!("the defaults of a pipeline's variables may have at most {CONTEXT_LIMIT} bytes, together");
            self.sink.add(Code::OutOfRange, view.value_at("vars"), message);
        }
        vars
    }

    fn default(&mut self, value: Spot<'a>) -> Option<Value> {
        let default = json(value.get_ref());
        if default.is_none() {
            self.sink.add(Code::WrongType, value.span(), "a variable cannot have this number");
        }
        default
    }

    fn phases(&mut self, view: View<'a>, pipeline: &'a str, vars: &Vars) -> Vec<Phase> {
        let views = view.views("phase");
        if let Some(extra) = views.get(PHASE_LIMIT) {
            self.sink.add(Code::OutOfRange, extra.at(), format!("a pipeline can have at most {PHASE_LIMIT} phases"));
        }
        let outputs = self.outputs(&views, vars);
        let names = vars.keys().map(|name| &**name).chain(outputs.iter().map(String::as_str));
        let known = Known { conditions: names.clone().collect(), templates: Self::known(names) };
        let nodes: Vec<PhaseNode<'a>> = views.iter().map(|view| node(*view)).collect();
        self.check_names(&nodes);
        order::check(self, &nodes);
        views.into_iter().filter_map(|view| self.phase(view, pipeline, &known)).collect()
    }

    /// The names of the outputs of phases in templates and conditions.
    fn outputs(&mut self, views: &[View<'a>], vars: &Vars) -> Vec<String> {
        let mut names = Vec::new();
        for view in views.iter().filter(|view| view.get("output").is_some()) {
            let Some(phase) = view.name("name") else { continue };
            let (var, at) = (output_var(&phase), view.key_at("output"));
            if vars.contains_key(&var) {
                let hint = "call one of them otherwise";
                let message = format!("the output of phase {:?} would be called like the variable {var:?}", phase.as_str());
                self.sink.hint(Code::Duplicate, at, message, hint);
            } else if check_name(&var).is_err() {
                let message =
                    format!("a phase with an output cannot be called {:?}: templates could not name it", phase.as_str());
                self.sink.add(Code::BadName, at, message);
            }
            let fields = view.many("output").into_iter().filter_map(|field| field.get_ref().as_str());
            names.extend(fields.map(|field| format!("{var}.{field}")));
            names.push(var.into());
        }
        names
    }

    /// Refuses guards that need a resource to be free which the phase holds until they have passed.
    fn check_post(&mut self, view: View<'a>, needs: &[Need]) {
        for value in view.many("post") {
            let guard = value.get_ref().as_str().and_then(|name| self.guards.get(name)?.0.as_ref());
            let Some(wants) = guard.map(|guard| guard.wants(&Context::new())) else { continue };
            let is_own = |need: &&Need| match need {
                Need::Lock(name) => wants.locks.contains(name.as_str()),
                Need::Slots { name, .. } => wants.semaphores.contains(name.as_str()),
                Need::Kept { .. } => false,
            };
            if let Some(need) = needs.iter().find(is_own) {
                let message =
                    format!("a guard behind the phase asks about {:?}, which the phase holds until then", need.name().as_str());
                self.sink.add(Code::Conflict, value.span(), message);
            }
        }
    }

    fn check_names(&mut self, nodes: &[PhaseNode<'a>]) {
        let mut names = BTreeSet::new();
        for node in nodes {
            let Some((name, at)) = &node.name else { continue };
            if *name == DONE {
                let hint = "it is what `next` says when the pipeline is over";
                self.sink.hint(Code::BadName, at.clone(), "a phase cannot be called \"done\"", hint);
            } else if !names.insert(*name) {
                self.sink.add(Code::Duplicate, at.clone(), format!("there are two phases {name:?}"));
            }
        }
    }

    fn phase(&mut self, view: View<'a>, pipeline: &'a str, known: &Known<'_>) -> Option<Phase> {
        let mut uses = Uses::default();
        let action = self.action(view, pipeline, &known.templates, &mut uses);
        let pre = self.guards_of(view, "pre", pipeline, &known.conditions);
        let post = self.guards_of(view, "post", pipeline, &known.conditions);
        let needs = self.needs(view);
        self.check_post(view, &needs);
        self.check_uses(&uses, &known.templates, VariableScope::Pipeline(pipeline));
        Some(Phase {
            name: view.name("name")?,
            action: action?,
            pre,
            post,
            needs,
            keeps: view.str("hold") == Some("pipeline"),
            timeout: view.span("timeout"),
            retries: view.number("retries").unwrap_or(0),
            blocked_timeout: view.span("blocked_timeout"),
            output: view.many("output").into_iter().filter_map(|field| field.get_ref().as_str()).map(Into::into).collect(),
            then: after(view),
            on_fail: on_fail(view),
        })
    }

    fn action(&mut self, view: View<'a>, pipeline: &'a str, known: &BTreeSet<&str>, uses: &mut Uses) -> Option<Action> {
        if let Some(name) = view.str("strategy") {
            return self.strategy(name, view.value_at("strategy"), pipeline, known);
        }
        if let Some(push) = view.get("push") {
            self.check_push(view);
            return push_of(push, uses).map(Action::Push);
        }
        self.run_command(view, uses).map(Action::Do)
    }

    /// No run belongs to a `push` phase, so it cannot hold anything or time out.
    fn check_push(&mut self, view: View<'a>) {
        for key in ["lock", "semaphore", "timeout", "retries", "output"].into_iter().filter(|key| view.get(key).is_some()) {
            self.sink.add(
                Code::Conflict,
                view.key_at(key),
                format!("`{key}` means nothing beside `push`: nothing runs meanwhile"),
            );
        }
    }

    fn strategy(&mut self, name: &'a str, at: At, pipeline: &'a str, known: &BTreeSet<&str>) -> Option<Action> {
        let Some((approaches, uses)) = self.strategies.get(name) else {
            let names: Vec<&str> = self.strategies.keys().copied().collect();
            self.no_such("strategy", name, at, names);
            return None;
        };
        let approaches = approaches.clone();
        if self.seen.insert(("strategy", name, pipeline)) {
            let uses = uses.clone();
            self.check_uses(&uses, known, VariableScope::Pipeline(pipeline));
        }
        Some(Action::Strategy { name: own(name)?, approaches })
    }

    fn guards_of(&mut self, view: View<'a>, key: &str, pipeline: &'a str, known: &BTreeSet<&str>) -> Vec<Guard> {
        let mut guards = Vec::new();
        for value in view.many(key) {
            let Some(name) = value.get_ref().as_str() else { continue };
            if !self.guards.contains_key(name) {
                let names: Vec<&str> = self.guards.keys().copied().collect();
                self.no_such("guard", name, value.span(), names);
                continue;
            }
            if self.seen.insert(("guard", name, pipeline)) {
                let uses = self.guards[name].1.clone();
                self.check_uses(&uses, known, VariableScope::Pipeline(pipeline));
            }
            guards.extend(self.guards[name].0.clone());
        }
        guards
    }

    fn needs(&mut self, view: View<'a>) -> Vec<Need> {
        let locks =
            view.many("lock").into_iter().filter_map(|lock| Some((lock.span(), Need::Lock(own(lock.get_ref().as_str()?)?))));
        let slots = view.many("semaphore").into_iter().filter_map(|value| Some((value.span(), slots(value)?)));
        let mut needs: Vec<Need> = Vec::new();
        for (at, need) in locks.chain(slots) {
            self.check_weight(&need, at.clone());
            let is_lock = |need: &Need| matches!(need, Need::Lock(_));
            if needs.iter().any(|other| other.name() == need.name() && is_lock(other) == is_lock(&need)) {
                self.sink.add(Code::Duplicate, at, format!("the phase holds {:?} already", need.name().as_str()));
            } else {
                needs.push(need);
            }
        }
        if needs.len() > NEED_LIMIT {
            let message = format!("a phase can hold at most {NEED_LIMIT} locks and semaphores, this one has {}", needs.len());
            self.sink.add(Code::OutOfRange, view.value_at("lock"), message);
        }
        needs
    }

    /// Refuses a weight above the capacity: so many slots never become free.
    fn check_weight(&mut self, need: &Need, at: At) {
        let Need::Slots { name, weight } = need else { return };
        if let Some(capacity) = self.capacities.get(name.as_str()).filter(|capacity| *capacity < weight) {
            let message = format!("the semaphore {:?} has {capacity} slots, and never {weight}", name.as_str());
            self.sink.add(Code::OutOfRange, at, message);
        }
    }
}

/// The written order of a phase.
fn node(view: View<'_>) -> PhaseNode<'_> {
    let name = |view: View<'_>, key: &str| view.value_at(key);
    let next = view.str("next").map(|next| (next, name(view, "next")));
    let fallback = view.view("on_fail").and_then(|fail| Some((fail.str("phase")?, name(fail, "phase"))));
    PhaseNode {
        name: view.str("name").map(|text| (text, view.value_at("name"))),
        at: view.at(),
        is_last: next.as_ref().is_some_and(|(next, _)| *next == DONE),
        next: next.filter(|(next, _)| *next != DONE),
        fallback,
    }
}

fn after(view: View<'_>) -> After {
    match view.str("next") {
        None => After::Next,
        Some(DONE) => After::Done,
        Some(phase) => own(phase).map_or(After::Next, After::Phase),
    }
}

fn on_fail(view: View<'_>) -> OnFail {
    let Some(table) = view.view("on_fail") else {
        return match view.str("on_fail") {
            Some("retry") => OnFail::Retry { times: DEFAULT_TIMES },
            _ => OnFail::Fail,
        };
    };
    match (table.number("retry"), table.name("phase")) {
        (Some(times), _) => OnFail::Retry { times },
        (None, Some(to)) => OnFail::Phase { to, times: table.number("times").unwrap_or(DEFAULT_TIMES) },
        (None, None) => OnFail::Fail,
    }
}

fn slots(value: Spot<'_>) -> Option<Need> {
    match View::of(value) {
        Some(view) => Some(Need::Slots { name: view.name("name")?, weight: view.number("weight").unwrap_or(1) }),
        None => Some(Need::Slots { name: own(value.get_ref().as_str()?)?, weight: 1 }),
    }
}
