use super::*;
use crate::AlignedBuffer;

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("espalier-blockio-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        SystemDisk.create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn open_modes_keep_their_word() {
    let dir = Scratch::new("modes");
    let path = dir.0.join("f");
    let kind = |options| SystemDisk.open(&path, options).map(|_| ()).map_err(|e| e.kind());
    assert_eq!(kind(OpenOptions::read()), Err(DiskErrorKind::NotFound));
    assert_eq!(kind(OpenOptions::write()), Err(DiskErrorKind::NotFound));
    assert_eq!(kind(OpenOptions::create_new()), Ok(()));
    assert_eq!(kind(OpenOptions::create_new()), Err(DiskErrorKind::AlreadyExists));
    let file = SystemDisk.open(&path, OpenOptions::write_or_create()).unwrap();
    file.write_at(b"hello", 3).unwrap();
    assert_eq!(file.len().unwrap(), 8);
    let mut buffer = [9; 6];
    assert_eq!(file.read_at(&mut buffer, 2).unwrap(), 6);
    assert_eq!(&buffer, b"\0hello");
    assert_eq!(file.read_exact_at(&mut buffer, 4).unwrap_err().kind(), DiskErrorKind::UnexpectedEnd);
    assert_eq!(SystemDisk.open(&path, OpenOptions::write()).unwrap().len().unwrap(), 8);
    assert!(SystemDisk.open(&path, OpenOptions::create()).unwrap().is_empty().unwrap());
}

#[test]
fn names_are_listed_linked_renamed_and_removed() {
    let dir = Scratch::new("names");
    let at = |name: &str| dir.0.join(name);
    SystemDisk.create_dir_all(&at("b/c")).unwrap();
    SystemDisk.open(&at("a"), OpenOptions::create_new()).unwrap();
    SystemDisk.hard_link(&at("a"), &at("d")).unwrap();
    assert_eq!(SystemDisk.hard_link(&at("a"), &at("d")).unwrap_err().kind(), DiskErrorKind::AlreadyExists);
    SystemDisk.rename(&at("a"), &at("e")).unwrap();
    SystemDisk.sync_dir(&dir.0).unwrap();
    let names =
        |disk: &SystemDisk| disk.list(&dir.0).unwrap().into_iter().map(|e| (e.name, e.is_dir)).collect::<Vec<_>>();
    assert_eq!(names(&SystemDisk), [("b".into(), true), ("d".into(), false), ("e".into(), false)]);
    SystemDisk.remove_file(&at("d")).unwrap();
    SystemDisk.remove_dir_all(&at("b")).unwrap();
    assert_eq!(names(&SystemDisk), [("e".into(), false)]);
    assert!(SystemDisk.exists(&at("e")).unwrap() && !SystemDisk.exists(&at("b")).unwrap());
    assert!(SystemDisk.space(&dir.0).unwrap().free_bytes > 0);
}

#[test]
fn a_held_directory_is_refused_and_names_its_holder() {
    let dir = Scratch::new("lock");
    let lock = SystemDisk.lock_dir(&dir.0).unwrap();
    let refused = SystemDisk.lock_dir(&dir.0).unwrap_err();
    assert_eq!(refused.kind(), DiskErrorKind::Locked);
    assert!(refused.to_string().contains(&format!("pid {}", std::process::id())), "{refused}");
    drop(lock);
    SystemDisk.lock_dir(&dir.0).unwrap();
}

#[test]
fn block_writes_are_read_back_whichever_way_they_went() {
    let dir = Scratch::new("blocks");
    for (name, options) in [("direct", OpenOptions::create_new().blocks()), ("plain", OpenOptions::create_new())] {
        let file = SystemDisk.open(&dir.0.join(name), options).unwrap();
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
