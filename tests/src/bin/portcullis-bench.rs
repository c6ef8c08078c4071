//! Measures parts of Portcullis on public data.

use std::io::Write;
use std::process::ExitCode;

#[path = "../bench/calls.rs"]
mod calls;
#[path = "../bench/parked.rs"]
mod parked;
#[path = "../bench/search.rs"]
mod search;

const USAGE: &str = "\
portcullis-bench search SET_DIR OUT.json [--queries FILE] [--extra DIR] [--scopes FILE] [--k 10]
    Ranks the tools of a set for each of its queries. FILE is a name inside SET_DIR for
    --queries, a path for --scopes: {query id: [servers]}. --extra adds the tools of another set.
portcullis-bench words SET_DIR OUT.txt
    Counts in how many tools of a set the commonest words stand: the table of `search`.
portcullis-bench calls URL TOKEN call|refused|list COUNT
    Sends COUNT requests on one connection and checks every answer.
portcullis-bench parked [N]
    Parks N calls, or 10,000, in a gateway of its own, each with a caller that waits. Says what
    one of them costs in memory, how long a list of them takes, and the end of their runs.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.split_first() {
        Some((&"search", rest)) => search::rank(rest),
        Some((&"words", rest)) => search::count_words(rest),
        Some((&"calls", rest)) => calls::calls(rest),
        Some((&"parked", rest)) => parked::parked(rest),
        Some(_) | None => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(said) => {
            // A closed pipe is no failure of the measurement.
            drop(writeln!(std::io::stdout(), "{said}"));
            ExitCode::SUCCESS
        }
        Err(fault) => {
            drop(writeln!(std::io::stderr(), "{fault}"));
            ExitCode::FAILURE
        }
    }
}
