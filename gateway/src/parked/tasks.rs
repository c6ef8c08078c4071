//! The tasks of the parked calls: owned here, ended here.

use parking_lot::Mutex;
use std::fmt;
use std::future::poll_fn;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(super) struct Tasks {
    // A ticket may be dropped where no runtime is entered, so the handle is kept.
    runtime: Handle,
    set: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("running", &self.set.lock().len()).finish()
    }
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self { runtime: Handle::current(), set: Mutex::new(JoinSet::new()) }
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.set.lock();
        while set.try_join_next().is_some() {}
        set.spawn_on(work, &self.runtime);
    }

    /// Runs `work` to its end even if the caller goes away; `None` if it was ended before.
    pub(super) async fn own<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.spawn(async move {
            // A caller that went away takes no answer; dropping the answer tidies up after it.
            drop(sender.send(work.await));
        });
        receiver.await.ok()
    }

    /// Waits until no task is left, at most for `limit`. False if some are left.
    pub(super) async fn drain(&self, limit: Duration) -> bool {
        let ended =
            async { while poll_fn(|cx| self.set.lock().poll_join_next(cx)).await.is_some() {} };
        timeout(limit, ended).await.is_ok()
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.set.lock().is_empty()
    }

    /// Ends every task that is left.
    pub(super) fn abort(&self) {
        self.set.lock().abort_all();
    }
}
