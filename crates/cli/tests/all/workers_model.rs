//! The rows of workers agree with a list on paper: random histories over several connections, with transactions that are
//! lost, on every database.

use std::collections::BTreeMap;
use std::sync::Arc;

use banksman_core::pipeline::plan::Deed;
use banksman_core::queue::{self, Data, Input, New, Pushed};
use banksman_core::route::Pattern;
use banksman_core::task::Verdict;
use banksman_core::worker::{Definition, Job, Outcome, Taken};
use banksman_core::{ItemId, Name, Span, TaskId};
use banksman_engine::{ApplyOutcome, ApplyRequest, QueueRequest, Reply, Request, TaskRequest, WorkerOutcome, WorkerRequest};
use banksman_store::{Keep, Store};

use crate::conformance::Dice;
use crate::world::World;

const ATTEMPTS: u32 = 2;

/// An item that somebody works on.
struct Work {
    task: TaskId,
    taken: Taken,
    attempts: u32,
    /// Whether its task has ended well, if it has ended.
    ended: Option<bool>,
}

/// The worker `w` of the queue `q`, as a person would keep it in mind.
#[derive(Default)]
struct Paper {
    there: bool,
    limit: usize,
    sleeps: bool,
    paused: bool,
    asleep: bool,
    /// Items with their attempts; the oldest comes first.
    waiting: BTreeMap<ItemId, u32>,
    jobs: Vec<Work>,
    dead: usize,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn define(concurrency: u32, sleeps: bool) -> Request {
    let definition = Definition {
        runbook: "r".into(),
        name: name("w"),
        queue: name("q"),
        job: Job::Task { deed: Deed::Run("true".into()), timeout: None },
        concurrency,
        wake_on: if sleeps { vec![Pattern::new("x:y").unwrap()] } else { Vec::new() },
        retry_delay: Span::ZERO,
    };
    let terms =
        queue::Config { visibility_timeout: Span::from_ms(1), max_attempts: ATTEMPTS, dead_letter: None, max_length: 1_000 };
    Request::Apply(Box::new(ApplyRequest {
        runbook: "r".into(),
        queues: BTreeMap::from([(name("q"), terms)]),
        workers: BTreeMap::from([(name("w"), Arc::new(definition))]),
        ..ApplyRequest::default()
    }))
}

fn request(dice: &mut Dice, paper: &Paper) -> Request {
    let worker = name("w");
    let job = usize::try_from(dice.roll(5)).unwrap();
    match (dice.roll(20), paper.jobs.get(job)) {
        (0, _) => define(1 + u32::try_from(dice.roll(3)).unwrap(), dice.chance(2)),
        (1, _) if dice.chance(3) => Request::Apply(Box::new(ApplyRequest { runbook: "r".into(), ..ApplyRequest::default() })),
        (1..=5, _) => {
            let new = New { data: Data::parse("1").unwrap(), priority: 0, delay: Span::ZERO, dedupe: None };
            Request::Queue(QueueRequest::new(name("q"), Input::Push(vec![new])))
        }
        (6..=7, _) => Request::Worker(WorkerRequest::Wake { worker }),
        (8, _) => Request::Worker(WorkerRequest::Pause { worker }),
        (9, _) => Request::Worker(WorkerRequest::Resume { worker }),
        (10..=13, Some(work)) if work.ended.is_none() => {
            let verdict = if dice.chance(2) { Verdict::Done { output: None } } else { Verdict::Failed { error: "no".into() } };
            Request::Task(TaskRequest::Conclude { id: work.task.clone(), epoch: None, by: None, verdict })
        }
        (10..=15, Some(work)) => {
            Request::Worker(WorkerRequest::Settle { worker, task: work.task.clone(), taken: work.taken.clone() })
        }
        _ => Request::Worker(WorkerRequest::Take { worker, queue: name("q") }),
    }
}

impl Paper {
    /// Notes what was asked, and checks the answer.
    fn note(&mut self, request: &Request, reply: &Reply) {
        match (request, reply) {
            (Request::Apply(apply), Reply::Apply(ApplyOutcome::Applied(_))) => match apply.workers.values().next() {
                None => self.there = false,
                Some(definition) => {
                    if !self.there {
                        (self.paused, self.asleep) = (false, true);
                    }
                    (self.there, self.sleeps) = (true, !definition.wake_on.is_empty());
                    self.limit = usize::try_from(definition.concurrency).unwrap();
                    self.asleep &= self.sleeps && self.jobs.is_empty();
                }
            },
            (Request::Queue(_), Reply::Queue { outcome: queue::Outcome::Pushed(pushed), .. }) => {
                let [Pushed::Added(id)] = pushed[..] else { panic!("{pushed:?}") };
                self.waiting.insert(id, 0);
            }
            (Request::Task(TaskRequest::Conclude { id, verdict, .. }), Reply::Task(_)) => {
                let work = self.jobs.iter_mut().find(|work| work.task == *id && work.ended.is_none());
                work.into_iter().for_each(|work| work.ended = Some(matches!(verdict, Verdict::Done { .. })));
            }
            (Request::Worker(request), Reply::Worker(outcome)) => self.note_worker(request, outcome),
            (request, reply) => panic!("{request:?}: {reply:?}"),
        }
    }

    fn note_worker(&mut self, request: &WorkerRequest, outcome: &WorkerOutcome) {
        let expected = match request {
            WorkerRequest::Settle { task, taken, .. } => return self.note_end(task, taken, outcome),
            _ if !self.there => Outcome::Unknown,
            WorkerRequest::Wake { .. } if self.asleep => {
                self.asleep = false;
                Outcome::Woken
            }
            WorkerRequest::Wake { .. } => Outcome::Awake,
            WorkerRequest::Pause { .. } => {
                self.paused = true;
                Outcome::Paused
            }
            WorkerRequest::Resume { .. } => {
                self.paused = false;
                Outcome::Resumed
            }
            WorkerRequest::Take { .. } if self.paused => Outcome::Paused,
            WorkerRequest::Take { .. } if self.asleep => Outcome::Asleep,
            WorkerRequest::Take { .. } if self.jobs.len() >= self.limit => Outcome::Full,
            WorkerRequest::Take { .. } => return self.note_take(outcome),
        };
        assert_eq!(*outcome, WorkerOutcome::Stepped(expected), "{request:?}");
    }

    fn note_take(&mut self, outcome: &WorkerOutcome) {
        match (outcome, self.waiting.pop_first()) {
            (WorkerOutcome::Took { task, item }, Some((first, attempts))) => {
                assert_eq!(*item, first);
                let (_, epoch) = task.as_str().rsplit_once('.').unwrap();
                let taken = Taken { queue: name("q"), item: first, epoch: banksman_core::Epoch(epoch.parse().unwrap()) };
                self.jobs.push(Work { task: task.clone(), taken, attempts: attempts + 1, ended: None });
            }
            (WorkerOutcome::Empty { .. }, None) => self.asleep = self.sleeps && self.jobs.is_empty(),
            (outcome, first) => panic!("{outcome:?}, on paper {first:?}"),
        }
    }

    fn note_end(&mut self, task: &TaskId, taken: &Taken, outcome: &WorkerOutcome) {
        let Some(at) = self.jobs.iter().position(|work| work.task == *task) else {
            return assert_eq!(*outcome, WorkerOutcome::Stepped(Outcome::NoJob));
        };
        match (self.jobs[at].ended, outcome) {
            (None, WorkerOutcome::NotOver) => return,
            (Some(true), WorkerOutcome::Settled(queue::Outcome::Completed)) => {}
            (Some(false), WorkerOutcome::Settled(queue::Outcome::Dead { .. })) if self.jobs[at].attempts == ATTEMPTS => {
                self.dead += 1;
            }
            (Some(false), WorkerOutcome::Settled(queue::Outcome::Failed { .. })) if self.jobs[at].attempts < ATTEMPTS => {
                self.waiting.insert(taken.item, self.jobs[at].attempts);
            }
            (ended, outcome) => panic!("{ended:?}: {outcome:?}"),
        }
        self.jobs.remove(at);
    }

    /// The rows say the same.
    fn compare(&self, rows: &banksman_store::Snapshot, seed: u64) {
        let worker = rows.crew.workers.workers.get(&name("w"));
        let jobs: BTreeMap<TaskId, Taken> = self.jobs.iter().map(|work| (work.task.clone(), work.taken.clone())).collect();
        assert_eq!(worker.map(|worker| worker.jobs.clone()).unwrap_or_default(), jobs, "seed {seed}");
        assert_eq!(worker.is_some_and(|worker| !worker.removed), self.there, "seed {seed}");
        if let Some(worker) = worker.filter(|_| self.there) {
            assert_eq!((worker.paused, worker.awake), (self.paused, !self.asleep), "seed {seed}");
        }
        let waiting: BTreeMap<ItemId, u32> =
            rows.queues.items.values().filter(|item| item.is_ready()).map(|item| (item.id, item.attempts)).collect();
        assert_eq!(waiting, self.waiting, "seed {seed}");
        assert_eq!(rows.queues.items.len(), waiting.len() + jobs.len() + self.dead, "seed {seed}");
        let over: Vec<&TaskId> = self.jobs.iter().filter(|work| work.ended.is_some()).map(|work| &work.task).collect();
        assert_eq!(rows.crew.over.iter().collect::<std::collections::BTreeSet<_>>(), over.into_iter().collect(), "seed {seed}");
    }
}

pub(crate) fn history(seed: u64, batches: usize) {
    let world = World::new();
    let (mut dice, mut paper) = (Dice(seed), Paper::default());
    let mut connections: Vec<Store> = (0..3).map(|_| world.project().open_store().unwrap()).collect();
    let mut reader = world.project().reader().unwrap();
    for number in 0..batches {
        let requests: Vec<Request> = match number {
            0 => vec![define(1, false)],
            _ => (0..=dice.roll(4)).map(|_| request(&mut dice, &paper)).collect(),
        };
        let which = usize::try_from(dice.roll(3)).unwrap();
        let open = connections[which].begin(&requests).unwrap();
        if number > 0 && dice.chance(6) {
            drop(open);
            continue;
        }
        let committed = open.commit().unwrap();
        requests.iter().zip(&committed.replies).for_each(|(request, reply)| paper.note(request, reply));
        if dice.chance(10) {
            connections[which].compact(Keep::Last(i64::try_from(dice.roll(8)).unwrap()), |_| {}).unwrap();
            assert_eq!(reader.view().compare_with_log().unwrap(), Vec::<String>::new(), "seed {seed}, batch {number}");
        }
        if dice.chance(5) {
            paper.compare(&reader.view().everything().unwrap(), seed);
        }
    }
    paper.compare(&reader.view().everything().unwrap(), seed);
    assert_eq!(reader.view().compare_with_log().unwrap(), Vec::<String>::new(), "seed {seed}");
}

#[test]
fn random_histories_of_workers_agree_with_a_list_on_paper() {
    for seed in crate::postgres::seeds(8) {
        history(seed, 150);
    }
}
