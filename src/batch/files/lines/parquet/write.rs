//! Lines of JSON as rows of parquet. A column has one type: the lines wait in a file until all are known, and become
//! columns group by group.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::batch::files::lines::rows::Value;

/// Bytes of lines that become one group of rows.
const GROUP: usize = 64 << 20;

/// The type of a column, as far as its values tell.
#[derive(Debug, PartialEq)]
enum Shape {
    /// Nothing but null.
    Null,
    Bool,
    Int,
    /// Integers of which some are no f64.
    Wide,
    Float,
    Text,
    /// Values of several kinds, each as its JSON.
    Json,
    List(Box<Shape>),
    Fields(Vec<(String, Shape)>),
}

impl Shape {
    fn of(value: &Value) -> Shape {
        match value {
            Value::Null => Shape::Null,
            Value::Bool(_) => Shape::Bool,
            Value::Int(value) if value.unsigned_abs() > 1 << f64::MANTISSA_DIGITS => Shape::Wide,
            Value::Int(_) => Shape::Int,
            Value::Float(_) => Shape::Float,
            Value::Text(_) => Shape::Text,
            Value::Digits(_) => Shape::Json,
            Value::List(items) => {
                let shapes = items.iter().map(Shape::of);
                Shape::List(Box::new(shapes.fold(Shape::Null, Shape::with)))
            }
            // Parquet has no structures without fields.
            Value::Fields(fields) if fields.is_empty() => Shape::Json,
            Value::Fields(fields) => Shape::of_fields(fields),
        }
    }

    fn of_fields(fields: &[(String, Value)]) -> Shape {
        let fields = fields.iter();
        Shape::Fields(
            fields
                .map(|(name, value)| (name.clone(), Shape::of(value)))
                .collect(),
        )
    }

    /// The type that has room for both.
    fn with(self, other: Shape) -> Shape {
        match (self, other) {
            (Shape::Null, shape) | (shape, Shape::Null) => shape,
            (Shape::Float, Shape::Int) | (Shape::Int, Shape::Float) => Shape::Float,
            (Shape::Wide, Shape::Int) | (Shape::Int, Shape::Wide) => Shape::Wide,
            (Shape::List(items), Shape::List(more)) => Shape::List(Box::new(items.with(*more))),
            (Shape::Fields(mut fields), Shape::Fields(more)) => {
                for (name, shape) in more {
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        None => fields.push((name, shape)),
                        Some((_, known)) => {
                            *known = std::mem::replace(known, Shape::Null).with(shape);
                        }
                    }
                }
                Shape::Fields(fields)
            }
            (one, other) if one == other => one,
            _ => Shape::Json,
        }
    }

    /// The columns that hold values of several kinds.
    fn mixed(&self, name: &str, told: &mut Vec<String>) {
        match self {
            Shape::Json => told.push(format!(
                "`{name}` has values of several kinds: it is written as strings, of JSON"
            )),
            Shape::List(items) => items.mixed(name, told),
            Shape::Fields(fields) => {
                for (field, shape) in fields {
                    shape.mixed(&format!("{name}.{field}"), told);
                }
            }
            _ => {}
        }
    }

    fn to_parquet(&self, name: &str) -> Result<TypePtr> {
        let optional = Repetition::OPTIONAL;
        let group = |name: &str, repetition, fields, logical| {
            let group = Type::group_type_builder(name).with_repetition(repetition);
            let group = group.with_fields(fields).with_logical_type(logical);
            Ok(Arc::new(group.build()?))
        };
        let (physical, logical) = match self {
            Shape::List(items) => {
                let items = vec![items.to_parquet("element")?];
                let list = group("list", Repetition::REPEATED, items, None)?;
                return group(name, optional, vec![list], Some(LogicalType::List));
            }
            Shape::Fields(fields) => {
                let fields = fields.iter().map(|(name, shape)| shape.to_parquet(name));
                return group(name, optional, fields.collect::<Result<_>>()?, None);
            }
            Shape::Bool => (Physical::BOOLEAN, None),
            Shape::Int | Shape::Wide => (Physical::INT64, None),
            Shape::Float => (Physical::DOUBLE, None),
            Shape::Null | Shape::Text | Shape::Json => {
                (Physical::BYTE_ARRAY, Some(LogicalType::String))
            }
        };
        let leaf = Type::primitive_type_builder(name, physical).with_repetition(optional);
        Ok(Arc::new(leaf.with_logical_type(logical).build()?))
    }

    /// Columns for the values below, in their order.
    fn leaves(&self) -> Vec<Leaf<'_>> {
        match self {
            Shape::List(items) => items.leaves(),
            Shape::Fields(fields) => fields.iter().flat_map(|(_, of)| of.leaves()).collect(),
            shape => vec![Leaf {
                shape,
                values: Vec::new(),
                defined: Vec::new(),
                repeated: Vec::new(),
            }],
        }
    }

    /// How many columns there are below.
    fn width(&self) -> usize {
        match self {
            Shape::List(items) => items.width(),
            Shape::Fields(fields) => fields.iter().map(|(_, of)| of.width()).sum(),
            _ => 1,
        }
    }

    /// Adds a value to the columns below.
    fn shred(&self, value: &Value, at: Place, mut leaves: &mut [Leaf]) {
        match (self, value) {
            (Shape::Fields(fields), Value::Fields(values)) => {
                let defined = at.defined + 1;
                for (name, of) in fields {
                    let (own, others) = leaves.split_at_mut(of.width());
                    let mut values = values.iter();
                    let value = values.find(|(field, _)| field == name);
                    let value = value.map_or(&Value::Null, |(_, value)| value);
                    of.shred(value, Place { defined, ..at }, own);
                    leaves = others;
                }
            }
            (Shape::List(of), Value::List(items)) if !items.is_empty() => {
                let depth = at.depth + 1;
                for (index, item) in items.iter().enumerate() {
                    let place = Place {
                        repeated: if index == 0 { at.repeated } else { depth },
                        depth,
                        defined: at.defined + 2,
                    };
                    of.shred(item, place, leaves);
                }
            }
            // Of an empty list there is the list alone.
            (Shape::Fields(_) | Shape::List(_), value) => {
                let defined = at.defined + i16::from(matches!(value, Value::List(_)));
                leaves.iter_mut().for_each(|leaf| leaf.add(at, defined));
            }
            (_, Value::Null) => leaves[0].add(at, at.defined),
            (_, value) => {
                leaves[0].values.push(value.clone());
                leaves[0].add(at, at.defined + 1);
            }
        }
    }
}

/// The place of a value in the row that it is part of.
#[derive(Clone, Copy)]
struct Place {
    /// The level at which it repeats, and the lists that it is in.
    repeated: i16,
    depth: i16,
    /// How much of its path is there.
    defined: i16,
}

impl Place {
    /// A row is there and has no level of its own, unlike the structures in it.
    const ROW: Place = Place {
        repeated: 0,
        depth: 0,
        defined: -1,
    };
}

/// The values of one column, with Dremel's levels.
struct Leaf<'a> {
    shape: &'a Shape,
    values: Vec<Value>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
}

impl Leaf<'_> {
    fn add(&mut self, at: Place, defined: i16) {
        self.defined.push(defined);
        self.repeated.push(at.repeated);
    }

    /// Writes what it has. Its shape has room for all its values.
    fn write(&mut self, mut column: SerializedColumnWriter) -> Result<()> {
        let of = &mut column;
        match self.shape {
            Shape::Bool => self.put::<BoolType>(of, |value| *value == Value::Bool(true)),
            Shape::Int | Shape::Wide => self.put::<Int64Type>(of, |value| match value {
                Value::Int(value) => *value,
                _ => 0,
            }),
            Shape::Float => self.put::<DoubleType>(of, |value| match value {
                Value::Int(value) => *value as f64,
                Value::Float(value) => *value,
                _ => f64::NAN,
            }),
            shape => self.put::<ByteArrayType>(of, |value| match value {
                Value::Text(text) if *shape == Shape::Text => text.as_str().into(),
                value => value.to_string().as_str().into(),
            }),
        }?;
        column.close()
    }

    fn put<T: DataType>(
        &mut self,
        column: &mut SerializedColumnWriter,
        value: impl Fn(&Value) -> T::T,
    ) -> Result<()> {
        let values: Vec<T::T> = self.values.drain(..).map(|one| value(&one)).collect();
        let levels = [&self.defined, &self.repeated].map(|levels| Some(&levels[..]));
        let column = column.typed::<T>();
        column.write_batch(&values, levels[0], levels[1])?;
        self.defined.clear();
        self.repeated.clear();
        Ok(())
    }
}

/// Takes lines, and writes them as parquet when all are there.
pub(in crate::batch::files) struct ToParquet<W> {
    out: W,
    lines: BufWriter<File>,
    /// The end of what came, which is no whole line yet.
    rest: Vec<u8>,
    shape: Shape,
}

impl<W: Write + Send> ToParquet<W> {
    pub(in crate::batch::files::lines) fn new(out: W) -> io::Result<Self> {
        Ok(ToParquet {
            out,
            lines: BufWriter::new(tempfile::tempfile()?),
            rest: Vec::new(),
            shape: Shape::Null,
        })
    }

    /// Keeps a line until the types of all columns are known.
    fn keep(&mut self, line: &[u8]) -> io::Result<()> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let shape = Shape::of_fields(&fields(line)?);
        self.shape = std::mem::replace(&mut self.shape, Shape::Null).with(shape);
        self.lines.write_all(line)?;
        self.lines.write_all(b"\n")
    }

    /// Writes the file, and tells what is in it otherwise than it was in the lines.
    pub(in crate::batch::files::lines) fn finish(mut self) -> io::Result<Vec<String>> {
        let rest = std::mem::take(&mut self.rest);
        self.keep(&rest)?;
        let Shape::Fields(columns) = &self.shape else {
            return Err(io::Error::other("there are no lines to write"));
        };
        let mut told = Vec::new();
        columns
            .iter()
            .for_each(|(name, shape)| shape.mixed(name, &mut told));
        let mut lines = self.lines.into_inner()?;
        lines.rewind()?;
        let written = write(&self.shape, columns, BufReader::new(lines), self.out);
        written.map_err(io::Error::other)?;
        Ok(told)
    }
}

fn fields(line: &[u8]) -> io::Result<Vec<(String, Value)>> {
    Value::of_line(std::str::from_utf8(line).map_err(io::Error::other)?)
}

fn write(
    row: &Shape,
    columns: &[(String, Shape)],
    mut lines: impl BufRead,
    out: impl Write + Send,
) -> Result<()> {
    let types = columns.iter().map(|(name, shape)| shape.to_parquet(name));
    let schema = Type::group_type_builder("schema").with_fields(types.collect::<Result<_>>()?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let schema = Arc::new(schema.build()?);
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?;
    let mut leaves = row.leaves();
    let (mut line, mut bytes) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line)?;
        if read > 0 {
            row.shred(&Value::Fields(fields(&line)?), Place::ROW, &mut leaves);
        }
        bytes += read;
        if bytes > 0 && (read == 0 || bytes > GROUP) {
            let mut group = file.next_row_group()?;
            for leaf in &mut leaves {
                if let Some(column) = group.next_column()? {
                    leaf.write(column)?;
                }
            }
            group.close()?;
            bytes = 0;
        }
        if read == 0 {
            break;
        }
    }
    file.close().map(drop)
}

impl<W: Write + Send> Write for ToParquet<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        for end in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            let mut line = std::mem::take(&mut self.rest);
            line.extend_from_slice(&bytes[from..end.0]);
            self.keep(&line)?;
            from = end.0 + 1;
        }
        self.rest.extend_from_slice(&bytes[from..]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
