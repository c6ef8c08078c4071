//! How long a credential or a run counts, told to everything that is open on it.
//!
//! A lease ends in two steps. Closed, nothing new begins on it; that is known at once and does
//! not depend on the store. Over, what is still open is dropped: in between, calls that wait are
//! told what became of them. A request holds a [`Stay`] of each lease it came in on, and whoever
//! ends a lease can wait until all are gone.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The time of one credential or run. Clones are the same lease.
#[derive(Clone)]
pub struct Lease {
    inner: Arc<Inner>,
}

struct Inner {
    closed: AtomicBool,
    over: watch::Sender<bool>,
    stays: AtomicUsize,
    left: Notify,
}

impl Lease {
    /// A lease that counts.
    #[must_use]
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                closed: AtomicBool::new(false),
                over: watch::Sender::new(false),
                stays: AtomicUsize::new(0),
                left: Notify::new(),
            }),
        }
    }

    /// Lets nothing new begin on it. True for the first to do so.
    pub fn close(&self) -> bool {
        !self.inner.closed.swap(true, Ordering::SeqCst)
    }

    /// True if nothing new may begin on it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::SeqCst)
    }

    /// Ends it, once and for all.
    pub fn end(&self) {
        self.close();
        self.inner.over.send_replace(true);
    }

    /// True if it was ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        *self.inner.over.borrow()
    }

    /// Resolves when it is ended.
    pub async fn over(&self) {
        // The sender lives as long as this lease.
        let _ = self.inner.over.subscribe().wait_for(|over| *over).await;
    }

    /// Notes something that is open on it.
    #[must_use]
    pub fn stay(&self) -> Stay {
        self.inner.stays.fetch_add(1, Ordering::SeqCst);
        Stay { lease: self.clone() }
    }

    /// Waits until nothing is open on it, at most for `limit`. False if something still is.
    pub async fn vacant(&self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.left()).await.is_ok()
    }

    async fn left(&self) {
        loop {
            let left = self.inner.left.notified();
            if self.inner.stays.load(Ordering::SeqCst) == 0 {
                return;
            }
            left.await;
        }
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Lease {}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_over() { "Lease(over)" } else { "Lease" })
    }
}

/// Something open on a lease; gone when dropped.
#[derive(Debug)]
pub struct Stay {
    lease: Lease,
}

impl Drop for Stay {
    fn drop(&mut self) {
        if self.lease.inner.stays.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.lease.inner.left.notify_waiters();
        }
    }
}

/// What a request came in on. It ends when any of its leases does; clones hold the same stays.
#[derive(Debug, Clone)]
pub struct Pass {
    held: Arc<[(Lease, Stay)]>,
}

impl Pass {
    /// A pass on all of `leases`.
    #[must_use]
    pub fn new(leases: impl IntoIterator<Item = Lease>) -> Self {
        let hold = |lease: Lease| {
            let stay = lease.stay();
            (lease, stay)
        };
        Self { held: leases.into_iter().map(hold).collect() }
    }

    /// True if nothing new may begin on one of them. Asked after the stays are taken, so that
    /// whoever closed it either is seen here or sees the stay.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.held.iter().any(|(lease, _)| lease.is_closed())
    }

    /// True if one of them was ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.held.iter().any(|(lease, _)| lease.is_over())
    }

    /// Resolves when one of them is ended.
    pub async fn over(&self) {
        match &*self.held {
            [] => std::future::pending().await,
            [(one, _)] => one.over().await,
            [(one, _), (two, _), ..] => {
                // Both only watch, so that losing the race loses nothing.
                tokio::select! {
                    () = one.over() => {}
                    () = two.over() => {}
                }
            }
        }
    }
}
