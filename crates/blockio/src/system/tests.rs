use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use testkit::TemporaryDirectory;

use super::*;
use crate::{AlignedBuffer, BlockRead, BlockRing, CompletedWrite, Frame, QueueMeans, ReadAhead};

#[test]
fn open_modes_have_their_documented_effects() {
    let dir = TemporaryDirectory::create();
    let path = dir.0.join("f");
    let kind = |options| SystemDisk::new().open(&path, options).map(|_| ()).map_err(|e| e.kind());
    assert_eq!(kind(OpenOptions::read()), Err(DiskErrorKind::NotFound));
    assert_eq!(kind(OpenOptions::write()), Err(DiskErrorKind::NotFound));
    assert_eq!(kind(OpenOptions::create_new()), Ok(()));
    assert_eq!(kind(OpenOptions::create_new()), Err(DiskErrorKind::AlreadyExists));
    let file = SystemDisk::new().open(&path, OpenOptions::write_or_create()).unwrap();
    file.write_at(b"hello", 3).unwrap();
    assert_eq!(file.len().unwrap(), 8);
    let mut buffer = [9; 6];
    assert_eq!(file.read_at(&mut buffer, 2).unwrap(), 6);
    assert_eq!(&buffer, b"\0hello");
    assert_eq!(file.read_exact_at(&mut buffer, 4).unwrap_err().kind(), DiskErrorKind::UnexpectedEnd);
    assert_eq!(SystemDisk::new().open(&path, OpenOptions::write()).unwrap().len().unwrap(), 8);
    assert!(SystemDisk::new().open(&path, OpenOptions::create()).unwrap().is_empty().unwrap());
}

#[test]
fn files_and_directories_are_their_owners_alone() {
    let dir = TemporaryDirectory::create();
    let (disk, inner) = (SystemDisk::new(), dir.join("a/b/c"));
    disk.create_dir_all(&inner).unwrap();
    disk.open(&inner.join("f"), OpenOptions::create_new().blocks()).unwrap();
    let _lock = disk.lock_dir(&inner).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&dir.join("a")), mode(&dir.join("a/b")), mode(&inner)], [0o700; 3]);
    assert_eq!([mode(&inner.join("f")), mode(&inner.join(LOCK_FILE))], [0o600; 2]);
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let dir = TemporaryDirectory::create();
    let pipe = dir.0.join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let error = SystemDisk::new().open(&pipe, OpenOptions::read()).unwrap_err();
    assert_eq!(error.kind(), DiskErrorKind::Unsupported);
}

#[test]
fn names_are_listed_linked_renamed_and_removed() {
    let dir = TemporaryDirectory::create();
    let at = |name: &str| dir.0.join(name);
    SystemDisk::new().create_dir_all(&at("b/c")).unwrap();
    SystemDisk::new().open(&at("a"), OpenOptions::create_new()).unwrap();
    SystemDisk::new().hard_link(&at("a"), &at("d")).unwrap();
    assert_eq!(SystemDisk::new().hard_link(&at("a"), &at("d")).unwrap_err().kind(), DiskErrorKind::AlreadyExists);
    SystemDisk::new().rename(&at("a"), &at("e")).unwrap();
    SystemDisk::new().sync_dir(&dir.0).unwrap();
    let names =
        |disk: &SystemDisk| disk.list(&dir.0).unwrap().into_iter().map(|e| (e.name, e.is_dir)).collect::<Vec<_>>();
    assert_eq!(names(&SystemDisk::new()), [("b".into(), true), ("d".into(), false), ("e".into(), false)]);
    SystemDisk::new().remove_file(&at("d")).unwrap();
    SystemDisk::new().remove_dir_all(&at("b")).unwrap();
    assert_eq!(names(&SystemDisk::new()), [("e".into(), false)]);
    assert!(SystemDisk::new().exists(&at("e")).unwrap() && !SystemDisk::new().exists(&at("b")).unwrap());
    assert!(SystemDisk::new().space(&dir.0).unwrap().free_bytes > 0);
}

#[test]
fn a_held_directory_is_refused_and_names_its_holder() {
    let dir = TemporaryDirectory::create();
    let lock = SystemDisk::new().lock_dir(&dir.0).unwrap();
    let refused = SystemDisk::new().lock_dir(&dir.0).unwrap_err();
    assert_eq!(refused.kind(), DiskErrorKind::Locked);
    assert!(refused.to_string().contains(&format!("pid {}", std::process::id())), "{refused}");
    drop(lock);
    SystemDisk::new().lock_dir(&dir.0).unwrap();
}

#[test]
fn block_writes_are_read_back_in_every_mode() {
    let dir = TemporaryDirectory::create();
    for (name, options) in [("direct", OpenOptions::create_new().blocks()), ("plain", OpenOptions::create_new())] {
        let file = SystemDisk::new().open(&dir.0.join(name), options).unwrap();
        let mut buffer = AlignedBuffer::new(3 * BLOCK_SIZE);
        for (i, byte) in buffer.iter_mut().enumerate() {
            *byte = (i / 7) as u8;
        }
        file.allocate(0, 1 << 20).unwrap();
        file.write_blocks(buffer.all_blocks(), 8192, Durability::AtNextSync).unwrap();
        file.write_blocks(buffer.blocks(4096..8192), 0, Durability::Durable).unwrap();
        let mut back = vec![0; 5 * BLOCK_SIZE];
        file.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back[..4096], buffer[4096..8192]);
        assert_eq!(back[8192..], buffer[..]);
        assert!(file.write_blocks(buffer.all_blocks(), 100, Durability::Durable).is_err());
        file.sync_data().unwrap();
    }
}

/// Blocks of a ring, each filled with its number.
fn frames(count: u64) -> Vec<Frame> {
    let ring = Arc::new(BlockRing::new(count as usize * BLOCK_SIZE));
    let block = BLOCK_SIZE as u64;
    for number in 0..count {
        let mut reservation = ring.reserve(|at| Some(at..at + block)).unwrap();
        let range = reservation.range();
        reservation.bytes(range).fill(number as u8);
    }
    ring.seal(|at| at);
    let batch = Arc::new(ring.take_sealed().unwrap().filled().unwrap());
    (0..count).map(|number| batch.frame(number * block..(number + 1) * block)).collect()
}

#[test]
fn all_queued_writes_complete_with_and_without_a_ring() {
    let dir = TemporaryDirectory::create();
    let block = BLOCK_SIZE as u64;
    for (name, disk) in [("ring", SystemDisk::new()), ("plain", SystemDisk::without_ring())] {
        for (kind, options) in [("direct", OpenOptions::create_new().blocks()), ("buffered", OpenOptions::create_new())]
        {
            let file = disk.open(&dir.0.join(format!("{name}-{kind}")), options).unwrap();
            let mut queue = file.block_queue().unwrap();
            if (name, kind) != ("ring", "direct") {
                assert!(matches!(queue.means(), QueueMeans::Plain { .. }));
            }
            let mut written = Vec::new();
            // More than the kernel accepts at once.
            for (number, frame) in frames(200).into_iter().enumerate() {
                let durability = if number % 2 == 0 { Durability::Durable } else { Durability::AtNextSync };
                queue.submit(frame, number as u64 * block, durability);
            }
            while queue.in_flight() > 0 {
                match queue.next_written() {
                    Some(CompletedWrite { frame, result, .. }) => {
                        result.unwrap();
                        written.push(frame.range().start / block);
                    }
                    None => queue.wait(None).unwrap(),
                }
            }
            written.sort();
            assert_eq!(written, (0..200).collect::<Vec<_>>());
            let mut back = vec![0; 200 * BLOCK_SIZE];
            file.read_exact_at(&mut back, 0).unwrap();
            assert!(back.chunks(BLOCK_SIZE).zip(0u8..).all(|(bytes, number)| bytes.iter().all(|byte| *byte == number)));
        }
    }
}

#[test]
fn a_queue_is_woken_by_another_thread_once_per_wake_up() {
    let dir = TemporaryDirectory::create();
    for (name, disk) in [("ring", SystemDisk::new()), ("plain", SystemDisk::without_ring())] {
        let file = disk.open(&dir.0.join(name), OpenOptions::create_new().blocks()).unwrap();
        let mut queue = file.block_queue().unwrap();
        for _ in 0..100 {
            let waker = queue.waker();
            let waking = std::thread::spawn(move || waker.wake());
            queue.wait(None).unwrap();
            waking.join().unwrap();
        }
        queue.wait(Some(Instant::now() + Duration::from_millis(1))).unwrap();
    }
}

#[test]
fn a_dropped_queue_finishes_its_writes_and_reports_failures() {
    let dir = TemporaryDirectory::create();
    let file = SystemDisk::new().open(&dir.0.join("f"), OpenOptions::create_new().blocks()).unwrap();
    let mut queue = file.block_queue().unwrap();
    for frame in frames(20) {
        let offset = frame.range().start;
        queue.submit(frame, offset, Durability::Durable);
    }
    queue.wait(Some(Instant::now())).unwrap();
    drop(queue);
    assert_eq!(file.len().unwrap(), 20 * BLOCK_SIZE as u64);
    let read_only = SystemDisk::new().open(Path::new("/dev/full"), OpenOptions::write()).unwrap();
    let mut queue = read_only.block_queue().unwrap();
    queue.submit(frames(1).remove(0), 0, Durability::Durable);
    let failed = queue.next_written().unwrap().result.unwrap_err();
    assert_eq!((failed.kind(), failed.offset()), (DiskErrorKind::Full, Some(0)));
}

#[test]
fn reads_that_bypass_the_page_cache_return_the_same_bytes() {
    let dir = TemporaryDirectory::create();
    let path = dir.0.join("f");
    let length = 3 * DIRECT_READ_BYTES + 2 * BLOCK_SIZE + 77;
    let bytes: Vec<u8> = (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let file = SystemDisk::new().open(&path, OpenOptions::create_new()).unwrap();
    file.write_at(&bytes, 0).unwrap();
    file.sync_data().unwrap();
    let file = SystemDisk::new().open(&path, OpenOptions::read().blocks()).unwrap();
    if let BlockWrites::Buffered { reason } = file.block_writes() {
        assert!(reason.contains("O_DIRECT is refused here"), "{reason}");
    }
    let lengths =
        [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, DIRECT_READ_BYTES, DIRECT_READ_BYTES + 1, length + 9];
    let offsets =
        [0, 1, BLOCK_SIZE - 1, BLOCK_SIZE, DIRECT_READ_BYTES - 1, length - BLOCK_SIZE, length - 1, length, length + 1];
    for offset in offsets {
        for wanted in lengths {
            let expected = bytes.get(offset..).unwrap_or_default();
            let expected = &expected[..expected.len().min(wanted)];
            let mut buffer = vec![9; wanted];
            let got = file.read_at(&mut buffer, offset as u64).unwrap();
            assert!(buffer[..got] == *expected, "{wanted} bytes at {offset}: got {got}");
        }
    }
}

#[test]
fn a_read_that_may_not_wait_returns_cached_bytes_or_would_block() {
    let dir = TemporaryDirectory::create();
    let path = dir.0.join("f");
    let bytes: Vec<u8> = (0..3 * BLOCK_SIZE as u32).map(|number| (number / 7) as u8).collect();
    let file = SystemDisk::new().open(&path, OpenOptions::create_new()).unwrap();
    file.write_at(&bytes, 0).unwrap();
    file.sync_data().unwrap();
    for options in [OpenOptions::read(), OpenOptions::read().blocks()] {
        let file = SystemDisk::new().open(&path, options).unwrap();
        let mut buffer = vec![0; bytes.len()];
        let read = file.read_at_nowait(&mut buffer, 100);
        let is_direct = options.blocks && file.block_writes() == BlockWrites::Direct;
        match read {
            Ok(length) => assert!(!is_direct && buffer[..length] == bytes[100..]),
            // Not every file system can tell.
            Err(error) => assert_eq!(error.kind(), DiskErrorKind::WouldWait),
        }
        let length = file.read_at(&mut buffer, 100).unwrap();
        assert!(buffer[..length] == bytes[100..]);
    }
}

#[test]
fn a_read_past_the_cache_returns_the_same_bytes() {
    let dir = TemporaryDirectory::create();
    let path = dir.0.join("f");
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(i) / 11) as u8).collect();
    SystemDisk::new().open(&path, OpenOptions::create_new()).unwrap().write_at(&bytes, 0).unwrap();
    for options in [OpenOptions::read(), OpenOptions::read().blocks(), OpenOptions::write().blocks()] {
        let file = SystemDisk::new().open(&path, options).unwrap();
        for (offset, length) in [(0, 300_000), (0, 0), (5, 100_000), (4096, 8192), (299_990, 100), (300_000, 9)] {
            let mut read = vec![0; length];
            let got = file.read_once_at(&mut read, offset).unwrap();
            assert_eq!(read[..got], bytes[offset as usize..][..length.min(300_000 - offset as usize)]);
        }
        assert_eq!(file.read_exact_once_at(&mut [0; 9], 299_999).unwrap_err().kind(), DiskErrorKind::UnexpectedEnd);
    }
}

/// A file of this many bytes, whose writes bypassed the page cache except for its end.
fn file_of(path: &Path, length: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..length).map(|at| (at / 7 + at / 4096) as u8).collect();
    let whole = length / BLOCK_SIZE * BLOCK_SIZE;
    let file = SystemDisk::new().open(path, OpenOptions::create().blocks()).unwrap();
    let mut blocks = AlignedBuffer::new(length);
    blocks[..length].copy_from_slice(&bytes);
    file.write_blocks(blocks.blocks(0..whole), 0, Durability::AtNextSync).unwrap();
    file.write_at(&bytes[whole..], whole as u64).unwrap();
    file.sync_data().unwrap();
    bytes
}

#[test]
fn read_ahead_returns_the_file_wherever_it_is_cached() {
    const PIECE: usize = 3 * BLOCK_SIZE;
    let dir = TemporaryDirectory::create();
    for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE, 5 * PIECE + 5_000] {
        let path = dir.0.join(length.to_string());
        let bytes = file_of(&path, length);
        for (disk, options) in [
            (SystemDisk::new(), OpenOptions::read().blocks()),
            (SystemDisk::new(), OpenOptions::read()),
            (SystemDisk::without_ring(), OpenOptions::read().blocks()),
        ] {
            let mut ahead = ReadAhead::new(disk.open(&path, options).unwrap());
            assert!(ahead.finish().unwrap().is_none());
            let mut buffers = vec![AlignedBuffer::new(PIECE + BLOCK_SIZE), AlignedBuffer::new(PIECE + BLOCK_SIZE)];
            let mut found = Vec::new();
            for offset in (0..).step_by(PIECE) {
                let buffer = buffers.pop().unwrap();
                ahead.begin(BlockRead { buffer, range: BLOCK_SIZE..BLOCK_SIZE + PIECE, offset });
                let (read, got) = ahead.finish().unwrap().unwrap();
                assert_eq!(read.offset, offset);
                found.extend_from_slice(&read.buffer[BLOCK_SIZE..][..got]);
                assert!(read.buffer[..BLOCK_SIZE].iter().all(|byte| *byte == 0), "nothing beside the range");
                buffers.insert(0, read.buffer);
                if got < PIECE {
                    break;
                }
            }
            assert!(found == bytes, "{length} bytes, {options:?}");
            // This brings all of it into the page cache for the next check.
            SystemDisk::new().open(&path, OpenOptions::read()).unwrap().read_at(&mut vec![0; length], 0).unwrap();
        }
    }
}

#[test]
fn the_buffer_of_an_abandoned_read_stays_allocated_until_it_ends() {
    let dir = TemporaryDirectory::create();
    let path = dir.0.join("f");
    file_of(&path, 64 * BLOCK_SIZE);
    for _ in 0..50 {
        let mut ahead = ReadAhead::new(SystemDisk::new().open(&path, OpenOptions::read().blocks()).unwrap());
        let buffer = AlignedBuffer::new(64 * BLOCK_SIZE);
        ahead.begin(BlockRead { buffer, range: 0..64 * BLOCK_SIZE, offset: 0 });
        drop(ahead);
    }
}

#[test]
fn residence_in_the_page_cache_is_reported() {
    let dir = TemporaryDirectory::create();
    let path = dir.0.join("f");
    file_of(&path, 8 * BLOCK_SIZE);
    let file = fs::File::open(&path).unwrap();
    file.read_exact_at(&mut [0; 8 * BLOCK_SIZE], 0).unwrap();
    if !page_cache::has_all(&file, 0, 8 * BLOCK_SIZE) {
        return println!("this system does not tell");
    }
    assert!(!page_cache::has_all(&file, 0, 9 * BLOCK_SIZE), "there are no more");
}
