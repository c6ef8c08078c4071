//! The `portcullis` command.

fn main() -> std::process::ExitCode {
    portcullis::cli::run(std::env::args_os())
}
