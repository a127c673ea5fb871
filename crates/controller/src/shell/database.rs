//! Decisions in a file of this machine (redb: one table, one key, each commit on disk before it returns).

use redb::{Database, TableDefinition};
use state_protocol::Views;
use std::path::Path;
use thiserror::Error;

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("controller");
const KEY: &str = "views";

/// The database cannot be used.
#[derive(Debug, Error)]
#[error("{path}: {problem}; is another controller running with it, and is the disk full?")]
pub struct DatabaseError {
    path: String,
    problem: String,
}

/// An open database.
pub struct ViewsFile {
    database: Database,
    path: String,
}

impl ViewsFile {
    /// Opens the file, or makes it; gives back the views that it has.
    pub fn open(path: &Path) -> Result<(ViewsFile, Views), DatabaseError> {
        let failed = |problem: String| DatabaseError { path: path.display().to_string(), problem };
        let database = Database::create(path).map_err(|error| failed(error.to_string()))?;
        let file = ViewsFile { database, path: path.display().to_string() };
        let json = file.read().map_err(|error| failed(error.to_string()))?;
        let views = match json {
            Some(json) => {
                Views::from_json(&json).map_err(|_| failed("what it has is not this program's".to_owned()))?
            }
            None => Views::default(),
        };
        Ok((file, views))
    }

    fn read(&self) -> Result<Option<Vec<u8>>, Box<dyn std::error::Error>> {
        let transaction = self.database.begin_read()?;
        match transaction.open_table(TABLE) {
            Ok(table) => Ok(table.get(KEY)?.map(|value| value.value().to_vec())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the views; when it returns they are on disk.
    pub fn write(&self, views: &Views) -> Result<(), DatabaseError> {
        let write = || -> Result<(), Box<dyn std::error::Error>> {
            let transaction = self.database.begin_write()?;
            transaction.open_table(TABLE)?.insert(KEY, views.to_json().as_slice())?;
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|error| DatabaseError { path: self.path.clone(), problem: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_protocol::ShardView;

    #[test]
    fn what_was_written_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.redb");
        let (file, views) = ViewsFile::open(&path).unwrap();
        assert_eq!(views, Views::default());
        let views = Views { version: 3, shards: vec![ShardView { number: 2, ..ShardView::default() }] };
        file.write(&views).unwrap();
        assert!(ViewsFile::open(&path).is_err(), "one at a time");
        drop(file);
        assert_eq!(ViewsFile::open(&path).unwrap().1, views);
    }
}
