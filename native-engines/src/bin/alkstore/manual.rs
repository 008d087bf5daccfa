//! `completions` and `man`: made of the description of the arguments, so that they cannot disagree with it.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::exit::{Failure, Result, SYSTEM};
use crate::{args, output};

#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

#[derive(clap::Args)]
pub struct ManArgs {
    /// Write alkstore.1, alkstore-lock.1 and so on into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub fn completions(args: &CompletionsArgs) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "alkstore", &mut script);
    output::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub fn pages(args: &ManArgs) -> Result {
    if let Some(folder) = &args.out {
        clap_mangen::generate_to(args::command(), folder).map_err(|error| {
            Failure::new(
                SYSTEM,
                format!("cannot write into {}: {error}", folder.display()),
            )
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(args::command())
        .render(&mut page)
        .map_err(|error| Failure::output(&error))?;
    output::bytes(&page)?;
    Ok(ExitCode::SUCCESS)
}
