//! What an agent may reach, decided without touching the world.
//!
//! Text and values go in, values come out: no file, clock, socket, thread, environment or
//! randomness. Time and ids are arguments. The modules in reading order:
//!
//! * [`name`] and [`json`]: what names and bytes are.
//! * [`source`] reads policy files into a [`definition`], with [`diagnostic`]s.
//! * [`narrow`] is what a run leaves of its agent's scope.
//! * [`catalogue`] is what the upstream servers offer at this moment.
//! * [`scope`] joins the two into what one agent sees.
//! * [`decide`] says run, park or refuse: the page to show people.
//! * [`search`] ranks what is visible.
//! * [`canonical`] is the form of arguments that is shown, digested and sent after an approval.
//! * [`ledger`] is the life of a parked call.
//! * [`secret`] and [`difference`]: what approvers are shown of arguments.

pub mod canonical;
pub mod catalogue;
pub mod decide;
pub mod definition;
pub mod diagnostic;
pub mod difference;
pub mod json;
pub mod ledger;
pub mod name;
pub mod narrow;
pub mod pattern;
pub mod scope;
pub mod search;
pub mod secret;
pub mod source;
