//! The bench of parked calls, run small: it checks what it measures.

use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bench_of_parked_calls_measures_what_holds() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_portcullis-bench"));
    let output = bench.args(["parked", "150"]).output().await.unwrap();
    let (said, fault) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{fault}");
    for due in ["150 calls parked", "memory per parked call", "none of the calls ran"] {
        assert!(said.contains(due), "{said}");
    }
}
