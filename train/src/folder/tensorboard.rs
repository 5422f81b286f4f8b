//! TensorBoard event files: records with checksums. The records contain protocol buffers, which are encoded by hand.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::first_free;
use crate::error::{Result, io};

#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Starts a file in `folder` whose first step is `step`. The file makes TensorBoard drop this step and all later steps of
    /// older files.
    pub(super) fn create(folder: &Path, step: u64) -> Result<EventFile> {
        let now = seconds();
        // The name begins with the time, because TensorBoard reads the files of a run in the order of their names.
        let name = |number| format!("events.out.tfevents.{:010}.advlab.{number:04}", now as u64);
        let path = |number| folder.join(name(number));
        let (path, file) = first_free(path, |path| File::create_new(path))?;
        let mut events = EventFile { path, file };
        // Field 3 is `file_version`. Field 7 is `session_log`, whose field 1, `status`, is 1 for START.
        events.record(&event(now, 0, 3, b"brain.Event:2"))?;
        events.record(&event(now, step, 7, &[0x08, 0x01]))?;
        Ok(events)
    }

    /// Writes the values that are numbers, and skips all other values.
    pub(super) fn scalars(&mut self, step: u64, values: &Map<String, Value>) -> Result<()> {
        let mut summary = Vec::new();
        let numbers = values.iter();
        for (tag, value) in numbers.filter_map(|(tag, value)| Some((tag, value.as_f64()?))) {
            let mut scalar = Vec::new();
            bytes(&mut scalar, 1, tag.as_bytes());
            varint(&mut scalar, 2 << 3 | 5);
            // TensorBoard's scalars are in f32.
            scalar.extend((value as f32).to_le_bytes());
            bytes(&mut summary, 1, &scalar);
        }
        self.record(&event(seconds(), step, 5, &summary))
    }

    fn record(&mut self, data: &[u8]) -> Result<()> {
        let length = &(data.len() as u64).to_le_bytes();
        let crc = |of: &[u8]| masked_crc(of).to_le_bytes();
        let record = [length, &crc(length)[..], data, &crc(data)].concat();
        let written = self.file.write_all(&record);
        written.map_err(io("write", &self.path))
    }
}

/// Returns the time in seconds since 1970.
pub(super) fn seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |now| now.as_secs_f64())
}

/// Returns the checksum of TFRecord: a CRC-32C, rotated and offset, because a plain CRC is unreliable on data that contains CRCs.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// Returns an `Event`: field 1 is `wall_time`, field 2 is `step`, and the field with the number `field` has the bytes `content`.
/// The key of a field is the field's number times 8, plus the wire type: 0 for a varint, 1 for eight bytes, 2 for a length and
/// bytes, 5 for four bytes.
fn event(wall_time: f64, step: u64, field: u64, content: &[u8]) -> Vec<u8> {
    let mut event = Vec::new();
    varint(&mut event, 1 << 3 | 1);
    event.extend(wall_time.to_le_bytes());
    varint(&mut event, 2 << 3);
    varint(&mut event, step);
    bytes(&mut event, field, content);
    event
}

fn bytes(out: &mut Vec<u8>, field: u64, content: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, content.len() as u64);
    out.extend(content);
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        // The low seven bits are written first; the high bit of the byte says that more bytes follow.
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_tfrecord() {
        // CRC-32C of "123456789" is the standard's check value.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked_crc(b"123456789"), 0xc78a_b0e5u32);
    }

    #[test]
    fn an_event_is_the_protocol_buffer_by_hand() {
        let expected: &[u8] = &[
            0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0x10, 0xac, 0x02, 0x1a, 0x02, b'h', b'i',
        ];
        assert_eq!(event(1.5, 300, 3, b"hi"), expected);
    }

    #[test]
    fn a_file_has_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = EventFile::create(folder.path(), 4).unwrap();
        let row = serde_json::json!({ "pass@1": 0.5, "length": 7.0, "version": "a" });
        events.scalars(4, row.as_object().unwrap()).unwrap();
        EventFile::create(folder.path(), 5).unwrap();
        let bytes = std::fs::read(&events.path).unwrap();
        let mut rest = &bytes[..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let data = &rest[12..12 + length];
            assert_eq!(rest[8..12], masked_crc(&rest[..8]).to_le_bytes());
            assert_eq!(
                rest[12 + length..16 + length],
                masked_crc(data).to_le_bytes()
            );
            records.push(data);
            rest = &rest[16 + length..];
        }
        assert_eq!(records.len(), 3);
        assert!(records[2].windows(6).any(|part| part == b"pass@1"));
        assert!(
            records[2]
                .windows(4)
                .any(|part| part == 0.5f32.to_le_bytes())
        );
    }
}
