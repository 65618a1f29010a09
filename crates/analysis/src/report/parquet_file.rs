//! Tables as Parquet files, written column by column.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError as Cause;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::dataset::{Column, ColumnKind, Dataset, Value};

/// Why a table was not written.
#[derive(Debug, thiserror::Error)]
pub enum ParquetError {
    /// The operating system refused the file.
    #[error("cannot write {path}: {cause}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The file could be made but not filled.
    #[error("cannot write {path} as Parquet: {cause}")]
    Parquet {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: Cause,
    },
}

impl Dataset {
    /// Writes the table to `path`, in place of what was there. Shares stand in it as shares of one, missing values as nulls.
    ///
    /// # Errors
    ///
    /// If the file cannot be made or filled.
    pub fn write_parquet(&self, path: &Path) -> Result<(), ParquetError> {
        let file = File::create(path).map_err(|cause| ParquetError::File { path: path.to_owned(), cause })?;
        self.write_columns(file).map_err(|cause| ParquetError::Parquet { path: path.to_owned(), cause })
    }

    fn write_columns(&self, file: File) -> Result<(), Cause> {
        let fields = self.columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder(self.name).with_fields(fields).build()?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let mut number = 0;
        while let Some(mut column) = group.next_column()? {
            self.write_column(number, &mut column)?;
            column.close()?;
            number += 1;
        }
        group.close()?;
        writer.close()?;
        Ok(())
    }

    fn write_column(&self, number: usize, writer: &mut SerializedColumnWriter<'_>) -> Result<(), Cause> {
        let cells = || self.rows().iter().map(|row| &row[number]);
        let present: Vec<i16> = cells().map(|cell| i16::from(*cell != Value::Missing)).collect();
        match self.columns[number].kind {
            ColumnKind::Text => {
                let values: Vec<ByteArray> = cells()
                    .filter_map(|cell| if let Value::Text(text) = cell { Some(text.as_str().into()) } else { None })
                    .collect();
                writer.typed::<ByteArrayType>().write_batch(&values, Some(&present), None)?;
            }
            ColumnKind::Integer => {
                let values: Vec<i64> = cells()
                    .filter_map(|cell| match cell {
                        Value::Integer(count) => Some(i64::try_from(*count).unwrap_or(i64::MAX)),
                        _ => None,
                    })
                    .collect();
                writer.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
            }
            ColumnKind::Number(_) | ColumnKind::Share(_) => {
                let values: Vec<f64> = cells()
                    .filter_map(|cell| if let Value::Number(figure) = cell { Some(*figure) } else { None })
                    .collect();
                writer.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
            }
        }
        Ok(())
    }
}

fn field(column: &Column) -> Result<Arc<Type>, Cause> {
    let (physical, logical) = match column.kind {
        ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Integer => (Physical::INT64, None),
        ColumnKind::Number(_) | ColumnKind::Share(_) => (Physical::DOUBLE, None),
    };
    let converted = if logical.is_some() { ConvertedType::UTF8 } else { ConvertedType::NONE };
    Type::primitive_type_builder(column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .with_converted_type(converted)
        .build()
        .map(Arc::new)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn written_tables_are_read_back_with_types_and_gaps() {
        let columns = [
            ("method", "method", ColumnKind::Text),
            ("bytes", "bytes", ColumnKind::Integer),
            ("reduction", "saved", ColumnKind::Share(1)),
        ];
        let mut table = Dataset::new("methods", &columns);
        table.push(vec!["précise".into(), 1_000_u64.into(), Value::Missing]);
        table.push(vec!["flow-digest".into(), 540_u64.into(), 0.46.into()]);
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
        let path = std::env::temp_dir().join(format!("report-{}-{nanoseconds}.parquet", std::process::id()));
        table.write_parquet(&path).expect("written");
        let reader = SerializedFileReader::new(File::open(&path).expect("there")).expect("Parquet");
        let rows: Vec<_> = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_string(0).expect("text"), "précise");
        assert!(rows[0].get_double(2).is_err(), "nothing is there");
        assert_eq!(rows[1].get_long(1).expect("a count"), 540);
        assert!((rows[1].get_double(2).expect("a share") - 0.46).abs() < 1e-12);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        let table = Dataset::new("methods", &[("bytes", "bytes", ColumnKind::Integer)]);
        let error = table.write_parquet(Path::new("/proc/no/such/methods.parquet")).expect_err("no such folder");
        assert!(error.to_string().contains("/proc/no/such/methods.parquet"), "{error}");
    }
}
