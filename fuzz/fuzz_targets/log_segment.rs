//! A segment of the commit log: judged, and every record of every run read.
#![no_main]

use commitlog::{RecordCursor, SegmentImage, Step};

const SEGMENT_SIZE_BYTES: u32 = 16 * 4096;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((horizon, bytes)) = bytes.split_first() else { return };
    let mut segment = bytes.to_vec();
    segment.resize(SEGMENT_SIZE_BYTES as usize, 0);
    let image = SegmentImage::new(uuid::Uuid::nil(), 1, segment, SEGMENT_SIZE_BYTES);
    let verdict = image.judge(u32::from(*horizon));
    let mut scratch = Vec::new();
    for run in verdict.runs {
        let mut cursor = RecordCursor::new(&image, run);
        while !matches!(cursor.next(&image, &mut scratch), Step::End) {}
    }
});
