//! The life of a parked call.
