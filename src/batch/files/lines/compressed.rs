//! Zstandard, frame after frame, without a C compiler.

use std::io::{self, BufRead, Read, Write};

use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::errors::ReadFrameHeaderError::SkipFrame;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// Bytes that are compressed into one frame.
const FRAME: usize = 4 << 20;

/// Unpacks frames; their sums are checked.
pub(super) struct FromZstd<R> {
    source: R,
    decoder: FrameDecoder,
    is_open: bool,
}

impl<R: BufRead> FromZstd<R> {
    pub(super) fn new(source: R) -> Self {
        FromZstd {
            source,
            decoder: FrameDecoder::new(),
            is_open: false,
        }
    }
}

impl<R: BufRead> Read for FromZstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let FromZstd {
            source, decoder, ..
        } = self;
        while !into.is_empty() {
            if !self.is_open {
                if source.fill_buf()?.is_empty() {
                    break;
                }
                match decoder.init(&mut *source) {
                    Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                        let mut skipped = source.take(length.into());
                        if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        continue;
                    }
                    opened => opened.map_err(io::Error::other)?,
                }
                self.is_open = true;
            }
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = decoder.decode_blocks(&mut *source, one);
                decoded.map_err(io::Error::other)?;
            }
            match decoder.read(into)? {
                0 => self.is_open = false,
                read => return Ok(read),
            }
            let sum = decoder.get_checksum_from_data();
            if sum.is_some() && sum != decoder.get_calculated_checksum() {
                return Err(io::Error::other("its checksum is another: it is damaged"));
            }
        }
        Ok(0)
    }
}

/// Packs frames of a few megabytes.
pub(in crate::batch::files) struct ToZstd<W> {
    out: W,
    frame: Vec<u8>,
}

impl<W: Write> ToZstd<W> {
    pub(super) fn new(out: W) -> Self {
        let frame = Vec::new();
        ToZstd { out, frame }
    }
}

impl<W: Write> Write for ToZstd<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.frame.extend_from_slice(bytes);
        if self.frame.len() >= FRAME {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    /// Ends the frame.
    fn flush(&mut self) -> io::Result<()> {
        let packed = compress_to_vec(self.frame.as_slice(), CompressionLevel::Fastest);
        self.frame.clear();
        self.out.write_all(&packed)
    }
}
