//! Decisions in a file of this machine (redb: one table, one key, each commit on disk before it
//! returns).

use super::rules::Decision;
use redb::{Database, TableDefinition};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use thiserror::Error;

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("controller");

/// The database cannot be used.
#[derive(Debug, Error)]
#[error("{path}: {problem}; is another controller running with it, and is the disk full?")]
pub struct DatabaseError {
    path: String,
    problem: String,
}

/// An open database.
pub struct DecisionFile<D> {
    /// None after a failed write: redb takes nothing more then until it is opened again.
    database: Option<Database>,
    path: PathBuf,
    decision: PhantomData<D>,
}

impl<D: Decision> DecisionFile<D> {
    /// Opens the file, or makes it; gives back the decision that it has.
    pub fn open(path: &Path) -> Result<(DecisionFile<D>, D), DatabaseError> {
        let failed = |problem: String| DatabaseError { path: path.display().to_string(), problem };
        let database = Database::create(path).map_err(|error| failed(error.to_string()))?;
        let bytes = read(&database, D::NAME).map_err(|error| failed(error.to_string()))?;
        let decision = match bytes {
            Some(bytes) => D::from_bytes(&bytes)
                .ok_or_else(|| failed("its content was not written by this program".to_owned()))?,
            None => D::default(),
        };
        let path = path.to_owned();
        Ok((DecisionFile { database: Some(database), path, decision: PhantomData }, decision))
    }

    /// Writes the decision; when it returns it is on disk.
    pub fn write(&mut self, decision: &D) -> Result<(), DatabaseError> {
        let mut write = || -> Result<(), Box<dyn std::error::Error>> {
            let database = match self.database.take() {
                Some(database) => database,
                None => Database::open(&self.path)?,
            };
            let transaction = database.begin_write()?;
            transaction.open_table(TABLE)?.insert(D::NAME, decision.to_bytes().as_slice())?;
            transaction.commit()?;
            self.database = Some(database);
            Ok(())
        };
        let written = write();
        written.map_err(|error| DatabaseError {
            path: self.path.display().to_string(),
            problem: error.to_string(),
        })
    }
}

fn read(database: &Database, key: &str) -> Result<Option<Vec<u8>>, Box<dyn std::error::Error>> {
    let transaction = database.begin_read()?;
    match transaction.open_table(TABLE) {
        Ok(table) => Ok(table.get(key)?.map(|value| value.value().to_vec())),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{ShardView, Views};

    #[test]
    fn what_was_written_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.redb");
        let (mut file, views) = DecisionFile::<Views>::open(&path).unwrap();
        assert_eq!(views, Views::default());
        let views =
            Views { version: 3, shards: vec![ShardView { number: 2, ..ShardView::default() }] };
        file.write(&views).unwrap();
        assert!(DecisionFile::<Views>::open(&path).is_err(), "one at a time");
        // After a write that failed, the next one opens the file again.
        file.database = None;
        file.write(&Views { version: 4, ..views.clone() }).unwrap();
        let views = Views { version: 4, ..views };
        drop(file);
        assert_eq!(DecisionFile::<Views>::open(&path).unwrap().1, views);
    }
}
