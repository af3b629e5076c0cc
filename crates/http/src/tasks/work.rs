//! Works on tasks: the broker that leads partition 0 of a task's source queue does.
//!
//! ```text
//! take it on (a new run) ─▶ what the last run had in hand goes first
//!   ─▶ select some ─▶ write down that they are in hand ─▶ dispose of them ─▶ wait, as the rate says ─▶ …
//! ```
//!
//! Only the second step counts: before the metadata knows what is in hand, nothing is moved, and whoever takes over
//! finishes exactly that. Both steps that touch messages may be repeated. A run that another one has
//! followed cannot write anything down, so it moves nothing either.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use towpath_metadata::{
    IN_HAND_MAX, Image, Request, Task, TaskFailure, TaskKind, TaskReport, TaskState,
};
use towpath_model::{Offset, PartitionIndex, Uuid};

use crate::api_error::{ApiError, Code};
use crate::app::{App, TopicView};
use crate::forward::{ask_value, leader_of};
use crate::queues::names_of;

use super::dispose::{self, Destination, Disposed, dispose_here};
use super::filter::Filter;
use super::pace::Pace;
use super::select::{self, Selected, select_here};
use super::service::{NotDone, ask};

/// How often it is looked for tasks, and whether one that waits should go on.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often it is written down how far a task is that finds nothing to move.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Messages of a partition that may be on their way; beyond that, the destination is waited for.
const UNDERWAY_MAX: u64 = 1_000;

/// Works on tasks until the broker stops.
pub(crate) async fn work_on_tasks(app: App) {
    let mut stop = app.stop.clone();
    let mut working: JoinSet<()> = JoinSet::new();
    let mut ids: BTreeMap<Uuid, tokio::task::Id> = BTreeMap::new();
    loop {
        tokio::select! {
            _ = stop.changed() => return,
            () = sleep(LOOK_EVERY) => {}
        }
        while let Some(ended) = working.try_join_next_with_id() {
            let ended = ended.map_or_else(|failed| failed.id(), |(id, ())| id);
            ids.retain(|_, id| *id != ended);
        }
        for task in to_work_on(&app) {
            if ids.contains_key(&task.id) {
                continue;
            }
            let (app, id) = (app.clone(), task.id);
            let spawned = working.spawn(async move {
                if let Some(run) = Run::take(&app, task).await {
                    run.work().await;
                }
            });
            ids.insert(id, spawned.id());
        }
    }
}

/// Bounded by the number of tasks that may be active.
fn to_work_on(app: &App) -> Vec<Task> {
    let image = app.node.driver().image();
    let is_wanted = |task: &&Task| task.state == TaskState::Running && is_seated_here(&image, task);
    image.tasks().filter(is_wanted).cloned().collect()
}

fn is_seated_here(image: &Image, task: &Task) -> bool {
    image.partition(task.seat()).and_then(|seat| seat.leader) == Some(image.me())
}

/// Why a run ends.
enum Stop {
    /// The task is not to go on, or not here.
    NotOurs,
    /// It has ended by itself.
    Ended(TaskState),
}

/// Messages that a queue still has when all has been moved.
#[derive(Default)]
struct Left {
    all: u64,
    /// Those that their destination does not take.
    unmovable: u64,
}

struct Run<'a> {
    app: &'a App,
    task: Task,
    pace: Pace,
    reported_at: Instant,
    /// What has been counted and is not written down yet.
    is_dirty: bool,
}

impl Run<'_> {
    async fn take(app: &App, seen: Task) -> Option<Run<'_>> {
        let taken = ask(app, Request::TakeTask { id: seen.id, run: seen.run }).await;
        let task = taken.inspect_err(|error| {
            tracing::debug!(task = %seen.id, ?error, "a task is not taken on now");
        });
        let task = task.ok()?;
        tracing::info!(task = %task.id, run = task.run, source = %task.source.name,
            moved = task.progress.moved, "works on a task");
        let pace = Pace::new(task.rate, Instant::now());
        Some(Run { app, task, pace, reported_at: Instant::now(), is_dirty: false })
    }

    async fn work(mut self) {
        let end = match self.run().await {
            Stop::Ended(state) => Some(state),
            Stop::NotOurs => None,
        };
        let is_over = end.is_some();
        if is_over || self.is_dirty {
            self.report(end).await;
        }
        let progress = &self.task.progress;
        tracing::info!(task = %self.task.id, run = self.task.run, state = self.task.state.name(),
            why = self.why(), source = %self.task.source.name, looked_at = progress.looked_at,
            moved = progress.moved, passed_over = progress.passed_over, guarded = progress.guarded,
            stranded = progress.stranded, "works on a task no more");
    }

    fn why(&self) -> Option<&'static str> {
        match self.task.state {
            TaskState::Failed(failure) => Some(failure.text()),
            _ => None,
        }
    }

    async fn run(&mut self) -> Stop {
        let Some(filter) = Filter::read(&self.task.filter) else {
            return Stop::Ended(TaskState::Failed(TaskFailure::Unreadable));
        };
        loop {
            match self.step(&filter).await {
                Ok(()) => {}
                Err(stop) => return stop,
            }
        }
    }

    /// One step; each begins with a look whether the task is still to go on.
    async fn step(&mut self, filter: &Filter) -> Result<(), Stop> {
        let source = self.source()?;
        let is_begun = !self.task.progress.ends.is_empty();
        if !is_begun {
            return self.begin(&source).await;
        }
        if !self.task.progress.in_hand.is_empty() {
            return self.dispose(&source).await;
        }
        self.wait_until(self.pace.next_at()).await?;
        let (partition, _) = self.task.progress.at;
        let index = usize::try_from(partition.0).unwrap_or(usize::MAX);
        let end = self.task.progress.ends.get(index).copied();
        match end.filter(|_| self.left() != 0) {
            Some(end) => self.select(&source, filter, end).await,
            None => self.finish(&source).await,
        }
    }

    /// The queue, if the task is still this run's.
    fn source(&mut self) -> Result<TopicView, Stop> {
        self.look()?;
        let source = self.app.queue(self.task.source.name.as_str()).ok();
        source.filter(|queue| queue.id == self.task.source.id).ok_or(Stop::NotOurs)
    }

    fn look(&mut self) -> Result<(), Stop> {
        let image = self.app.node.driver().image();
        let task = image.task(self.task.id).ok_or(Stop::NotOurs)?;
        let is_ours = task.run <= self.task.run && is_seated_here(&image, task);
        if task.state != TaskState::Running || !is_ours {
            self.task.state = task.state.clone();
            return Err(Stop::NotOurs);
        }
        Ok(())
    }

    /// Notes where every partition ends: what comes later is none of this task's business.
    async fn begin(&mut self, source: &TopicView) -> Result<(), Stop> {
        let (mut ends, mut ready) = (Vec::new(), 0);
        for partition in source.partition_indexes() {
            let wanted = self.wanted(&Filter::default(), Offset::ZERO, Offset::ZERO, 0);
            match select_in(self.app, source, partition, &wanted).await {
                Ok(selected) => {
                    ends.push(Offset(selected.end));
                    ready += selected.ready;
                }
                Err(error) => return self.later(&error).await,
            }
        }
        self.task.progress.ends = ends;
        self.task.progress.to_look_at += ready;
        self.is_dirty = true;
        Ok(())
    }

    fn wanted(&self, filter: &Filter, from: Offset, until: Offset, max: usize) -> select::Wanted {
        let is_redrive = self.task.kind == TaskKind::Redrive;
        select::Wanted {
            from: from.0,
            until: until.0,
            max,
            filter: filter.clone(),
            redrives_max: is_redrive.then_some(self.task.redrives_max),
            home: is_redrive && self.task.destination.is_none(),
            held_too: self.task.kind == TaskKind::Retire,
            is_to_be_emptied: self.task.kind == TaskKind::Retire,
            examples: 0,
        }
    }

    /// Messages that may still be moved.
    fn left(&self) -> u64 {
        let most = self.task.messages_max.unwrap_or(u64::MAX);
        most.saturating_sub(self.task.progress.moved)
    }

    async fn select(
        &mut self,
        source: &TopicView,
        filter: &Filter,
        end: Offset,
    ) -> Result<(), Stop> {
        let (partition, from) = self.task.progress.at;
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        let max = left.min(IN_HAND_MAX).min(self.pace.at_once());
        let wanted = self.wanted(filter, from, end, max);
        let selected = match select_in(self.app, source, partition, &wanted).await {
            Ok(selected) => selected,
            Err(error) => return self.later(&error).await,
        };
        let progress = &mut self.task.progress;
        progress.looked_at += selected.looked_at;
        progress.passed_over += selected.passed_over;
        progress.guarded += selected.guarded;
        progress.stranded += selected.stranded;
        progress.in_hand = selected.offsets.into_iter().map(Offset).collect();
        if progress.in_hand.is_empty() {
            progress.at = after(partition, selected.next);
        } else {
            // They are offsets of this partition; where it ends is seen again by the next look.
            let next = selected.next.map_or(end, Offset);
            progress.at = (partition, next);
        }
        self.is_dirty = true;
        if self.task.progress.in_hand.is_empty() {
            return self.report_if_due().await;
        }
        match self.report(None).await {
            true => Ok(()),
            false => Err(Stop::NotOurs),
        }
    }

    /// Moves what is in hand, which the metadata knows.
    async fn dispose(&mut self, source: &TopicView) -> Result<(), Stop> {
        let (partition, _) = self.task.progress.at;
        let to = match (self.task.kind, &self.task.destination) {
            (TaskKind::Drop, _) => Destination::Nowhere,
            (_, None) => Destination::Home,
            (_, Some(to)) => Destination::Queue(to.name.to_string()),
        };
        let offsets: Vec<i64> = self.task.progress.in_hand.iter().map(|at| at.0).collect();
        let many = offsets.len() as u64;
        let disposed = match self.dispose_in(source, partition, offsets, to).await {
            Ok(disposed) => disposed,
            Err(error) => return self.later(&error).await,
        };
        self.task.progress.moved += many.saturating_sub(disposed.kept);
        self.task.progress.in_hand.clear();
        self.is_dirty = true;
        self.pace.moved(many, Instant::now());
        match disposed.underway <= UNDERWAY_MAX {
            true => Ok(()),
            false => self.let_arrive(source, partition, UNDERWAY_MAX).await,
        }
    }

    async fn dispose_in(
        &self,
        source: &TopicView,
        partition: PartitionIndex,
        offsets: Vec<i64>,
        to: Destination,
    ) -> Result<Disposed, ApiError> {
        let retires = self.task.kind == TaskKind::Retire;
        let by = format!("task {}", self.task.id);
        let wanted = dispose::Wanted { offsets, to, by, retires };
        match place(self.app, source, partition)? {
            None => dispose_here(self.app, source, partition, wanted).await,
            Some(leader) => at(self.app, leader, source, partition, "dispose", &wanted).await,
        }
    }

    /// Waits until no more than `most` messages of a partition are on their way.
    async fn let_arrive(
        &mut self,
        source: &TopicView,
        partition: PartitionIndex,
        most: u64,
    ) -> Result<(), Stop> {
        loop {
            let nothing = self.dispose_in(source, partition, Vec::new(), Destination::Nowhere);
            match nothing.await {
                Ok(disposed) if disposed.underway <= most => return Ok(()),
                Ok(_) => {
                    self.report_if_due().await?;
                    self.wait_until(Instant::now() + LOOK_EVERY).await?;
                }
                Err(error) => self.later(&error).await?,
            }
        }
    }

    /// A task is done when everything that it has moved is there, or has come back.
    async fn finish(&mut self, source: &TopicView) -> Result<(), Stop> {
        for partition in source.partition_indexes() {
            self.let_arrive(source, partition, 0).await?;
        }
        let left = match self.task.kind {
            TaskKind::Retire => self.left_in(source).await?,
            TaskKind::Redrive | TaskKind::Drop => Left::default(),
        };
        if left.all != 0 && left.all == left.unmovable {
            return Err(Stop::Ended(TaskState::Failed(TaskFailure::NotTaken)));
        }
        if left.all != 0 {
            // Sent before the queue was closed, or come back.
            self.task.progress.ends.clear();
            self.task.progress.at = (PartitionIndex(0), Offset::ZERO);
            return self.wait_until(Instant::now() + LOOK_EVERY).await;
        }
        // Those that began before its leaders heard that the queue is given up; no more begin now.
        if self.task.kind == TaskKind::Retire {
            match names_of(self.app, source).await {
                Ok(names) if names.is_empty() => {}
                Ok(_) => return Err(Stop::Ended(TaskState::Failed(TaskFailure::Subscribed))),
                Err(error) => return self.later(&error).await,
            }
        }
        Err(Stop::Ended(TaskState::Done))
    }

    /// Messages that are in the queue still, wherever they are.
    async fn left_in(&mut self, source: &TopicView) -> Result<Left, Stop> {
        let mut left = Left::default();
        for partition in source.partition_indexes() {
            let wanted = self.wanted(&Filter::default(), Offset::ZERO, Offset::ZERO, 0);
            match select_in(self.app, source, partition, &wanted).await {
                Ok(selected) => {
                    left.all += selected.ready;
                    left.unmovable += selected.unmovable;
                }
                Err(error) => {
                    self.later(&error).await?;
                    return Ok(Left { all: 1, unmovable: 0 });
                }
            }
        }
        Ok(left)
    }

    /// What cannot be done now is tried again.
    async fn later(&mut self, error: &ApiError) -> Result<(), Stop> {
        tracing::debug!(task = %self.task.id, reason = %error.message, "a task waits");
        self.wait_until(Instant::now() + LOOK_EVERY).await
    }

    /// Waits; ends early when the task is not to go on.
    async fn wait_until(&mut self, until: Instant) -> Result<(), Stop> {
        loop {
            let now = Instant::now();
            if until <= now {
                return Ok(());
            }
            sleep(LOOK_EVERY.min(until - now)).await;
            self.source()?;
        }
    }

    async fn report_if_due(&mut self) -> Result<(), Stop> {
        let is_due = self.is_dirty && self.reported_at + REPORT_EVERY <= Instant::now();
        if is_due && !self.report(None).await {
            return Err(Stop::NotOurs);
        }
        Ok(())
    }

    /// Writes down how far the task is; says whether that was possible. A controller that is not there is waited for.
    async fn report(&mut self, end: Option<TaskState>) -> bool {
        loop {
            let Task { id, run, ref progress, .. } = self.task;
            let report = TaskReport { id, run, progress: progress.clone(), end: end.clone() };
            match ask(self.app, Request::ReportTask(report)).await {
                Ok(task) => {
                    self.task = task;
                    self.reported_at = Instant::now();
                    self.is_dirty = false;
                    return true;
                }
                Err(NotDone::Refused(refusal)) => {
                    tracing::info!(task = %id, run, %refusal, "a task is no more this broker's");
                    return false;
                }
                Err(NotDone::Failed(error)) => {
                    tracing::debug!(task = %id, reason = %error.message, "a task waits");
                    sleep(LOOK_EVERY).await;
                }
            }
        }
    }
}

/// Where a task goes on after a look that has chosen nothing.
fn after(partition: PartitionIndex, next: Option<i64>) -> (PartitionIndex, Offset) {
    match next {
        Some(next) => (partition, Offset(next)),
        None => (PartitionIndex(partition.0 + 1), Offset::ZERO),
    }
}

/// Looks into a partition, wherever it is led.
pub(super) async fn select_in(
    app: &App,
    source: &TopicView,
    partition: PartitionIndex,
    wanted: &select::Wanted,
) -> Result<Selected, ApiError> {
    match place(app, source, partition)? {
        None => select_here(app, source, partition, wanted).await,
        Some(leader) => at(app, leader, source, partition, "select", wanted).await,
    }
}

/// Who leads a partition; `None` is this broker.
fn place(
    app: &App,
    source: &TopicView,
    partition: PartitionIndex,
) -> Result<Option<towpath_model::BrokerId>, ApiError> {
    let leader = leader_of(app, source.partition(partition)).ok_or_else(|| {
        let message =
            format!("partition {partition} of queue {:?} has no leader", source.name.as_str());
        ApiError::new(Code::Unavailable, message).with_help("try again")
    })?;
    Ok(Some(leader).filter(|leader| *leader != app.node.driver().broker_id()))
}

async fn at<T: DeserializeOwned>(
    app: &App,
    leader: towpath_model::BrokerId,
    source: &TopicView,
    partition: PartitionIndex,
    verb: &str,
    wanted: &impl Serialize,
) -> Result<T, ApiError> {
    let path = format!("/queues/{}/partitions/{partition}/{verb}", source.name);
    let body = serde_json::to_vec(wanted).expect("texts and numbers are JSON");
    ask_value(app, leader, &Method::POST, &path, body.into()).await
}
