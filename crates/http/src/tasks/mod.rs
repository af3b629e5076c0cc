//! Tasks: long work on queues that goes on by itself, whoever fails meanwhile. Dead letters go back to where they
//! came from, or to another queue, or are dropped.
//!
//! ```text
//! client ─▶ any broker ─▶ metadata: the task ─▶ work.rs, at the leader of the queue's partition 0
//!                                                  └─▶ select.rs, dispose.rs: at each partition's leader
//!                                                        └─▶ queues/carry_away.rs carries them, each once
//! ```

mod dispose;
pub(crate) mod filter;
mod list_tasks;
mod order_task;
mod pace;
mod select;
pub(crate) mod service;
mod start_task;
mod view;
mod work;

pub(crate) use start_task::retire;
pub(crate) use work::work_on_tasks;

use axum::routing::{MethodRouter, get, post};

use crate::app::App;

/// Every operation on tasks: its method, its path, and who carries it out.
pub(crate) fn routes() -> Vec<(&'static str, &'static str, MethodRouter<App>)> {
    const SELECT: &str = "/queues/{queue}/partitions/{partition}/select";
    const DISPOSE: &str = "/queues/{queue}/partitions/{partition}/dispose";
    vec![
        ("post", "/queues/{queue}/redrive", post(start_task::redrive)),
        ("post", "/queues/{queue}/drop", post(start_task::drop_messages)),
        ("post", SELECT, post(select::handle)),
        ("post", DISPOSE, post(dispose::handle)),
        ("get", "/tasks", get(list_tasks::handle)),
        ("get", "/tasks/{task}", get(order_task::show)),
        ("post", "/tasks/{task}/pause", post(order_task::pause)),
        ("post", "/tasks/{task}/resume", post(order_task::resume)),
        ("post", "/tasks/{task}/cancel", post(order_task::cancel)),
    ]
}
