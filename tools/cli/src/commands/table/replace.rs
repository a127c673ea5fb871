//! `stateplane table replace`: all entries of tables exchanged as one.

use command_line::{outln, print_table};
use dataplane::TableVersion;
use std::path::PathBuf;
use switch_agent::Error;
use switch_agent::config::read_tables;
use switch_agent::control::Request;
use switch_agent::replace::{Replaced, TableContent, incarnation_text};

/// Command line of `stateplane table replace`.
#[derive(clap::Args, Debug)]
#[command(after_help = "The file has [[table]] as switch.toml has it, or the same as JSON:
  [[table]]
  name = \"MyIngress.roles\"
  [[table.entry]]
  key = { \"hdr.app.group\" = 1 }
  action = \"MyIngress.take_part\"
  arguments = { view = 7, next = \"10.9.0.2\" }

The tables must have `stateplane_exchange = true` in the program. A packet finds a table's earlier
entries or its new ones, never some of both. Several tables are exchanged in the file's order: a
packet may find one table's new entries and another's earlier ones. If one of them cannot have its
entries, none is changed. The command ends when no packet uses an earlier entry any more.")]
pub struct Args {
    /// The tables and their entries.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The incarnation that the entries are for (`stateplane switch status`); another one refuses
    /// them. Tables whose entries hold for one incarnation need it.
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    incarnation: Option<u32>,
    /// Change nothing unless the table's entries have this version (`table list TABLE`); may be
    /// repeated.
    #[arg(long, value_name = "TABLE=VERSION", value_parser = expected)]
    expect: Vec<(String, TableVersion)>,
}

/// Decimal, or 0x and hexadecimal digits.
pub fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{error}: a number of 32 bits, such as 0x0f2c1a07"))
}

fn expected(text: &str) -> Result<(String, TableVersion), String> {
    let (table, version) = text.split_once('=').ok_or("TABLE=VERSION, such as roles=117")?;
    Ok((table.to_owned(), TableVersion(number(version)?)))
}

/// What to ask the agent for.
pub fn request(args: &Args) -> switch_agent::Result<Request> {
    let fail = |reason: String| Err(Error::Other(format!("{}: {reason}", args.file.display())));
    let read = read_tables(&args.file)?;
    if let Some((name, _)) =
        args.expect.iter().find(|(name, _)| !read.iter().any(|table| table.name == *name))
    {
        return fail(format!("it has no table {name:?}, of which --expect gives a version"));
    }
    let mut tables = vec![];
    for table in read {
        if table.default.is_some() {
            return fail(format!("table {}: only entries are exchanged, no default", table.name));
        }
        let expected = args.expect.iter().find(|(name, _)| *name == table.name);
        tables.push(TableContent {
            version: expected.map(|(_, version)| *version),
            entries: table.entry.iter().map(|entry| entry.spec()).collect(),
            table: table.name,
        });
    }
    Ok(Request::TableReplace { tables, incarnation: args.incarnation })
}

/// Prints what was done.
pub fn print(incarnation: u32, tables: &[Replaced]) {
    let rows =
        tables.iter().map(|it| vec![it.table.clone(), it.version.to_string()]).collect::<Vec<_>>();
    print_table(&["table", "version"], rows);
    outln!(
        "exchanged for incarnation {}: no packet uses an earlier entry any more",
        incarnation_text(incarnation)
    );
}
