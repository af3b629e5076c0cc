//! StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask: not served yet.

use towpath_sqs::actions::{ListMessageMoveTasks, StartMessageMoveTask};
use towpath_sqs::{Answer, Error, ErrorKind};

use super::call::Call;

impl Call<'_> {
    pub(super) async fn start_move_task(
        &self,
        _wanted: StartMessageMoveTask,
    ) -> Result<Answer, Error> {
        Err(not_served())
    }

    pub(super) async fn list_move_tasks(
        &self,
        _wanted: ListMessageMoveTasks,
    ) -> Result<Answer, Error> {
        Err(not_served())
    }

    pub(super) async fn cancel_move_task(&self, _handle: String) -> Result<Answer, Error> {
        Err(not_served())
    }
}

fn not_served() -> Error {
    Error::new(
        ErrorKind::UnsupportedOperation,
        "This server does not move messages back from dead-letter queues yet.",
    )
}
