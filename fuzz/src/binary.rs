//! ELF files, CUDA fat binaries and static libraries, of packages that anybody can have made.

#[path = "../../crates/sconce-compat/src/binary/testing.rs"]
mod made;

use sconce_compat::binary::{ParsedBinary, read, read_archive, read_fat_binary};
use sconce_compat::library::{ElfLibrary, GpuCode};
use sconce_schema::Hint as _;

use made::{EXACT, ElfFixture, FAMILY, PTX, SASS, SymbolHashKind};

/// Any file, and the same as an archive's member.
pub(crate) fn elf(data: &[u8]) {
    let found = match read(&data) {
        Ok(found) => found,
        Err(error) => return drop((error.to_string(), error.hint())),
    };
    let ParsedBinary::Library(library) = found else {
        return;
    };
    assert!(library.undefined.is_sorted() && library.defined.is_sorted());
    let kept = serde_json::to_vec(&library).expect("it can be written");
    let again: ElfLibrary = serde_json::from_slice(&kept).expect("it reads again");
    assert_eq!(again, *library);
    check(&library.gpu);
    let archive = made::build_archive(&[("an_object_with_a_long_name.o", data)]);
    let archive = read_archive(&&archive[..]).expect("its member reads alone");
    assert_eq!(archive.members[0].machine, Some(library.machine));
    assert_eq!(archive.gpu, library.gpu);
}

pub(crate) fn elf_seeds() -> Vec<Vec<u8>> {
    let stripped = |lookup| ElfFixture {
        section_headers: false,
        runpath: Some("$ORIGIN/lib"),
        lookup,
        ..made::extension_fixture()
    };
    vec![
        made::build_elf(&made::extension_fixture()),
        made::build_elf(&stripped(SymbolHashKind::Sysv)),
        made::build_elf(&stripped(SymbolHashKind::Gnu)),
    ]
}

/// A section of device code.
pub(crate) fn fatbin(data: &[u8]) {
    let code = read_fat_binary(&data).expect("bytes in memory can be read");
    check(&code);
    // A container that counts has a header of 16 bytes and one entry of 48 at least.
    let taken = u64::from(code.container_count()) * 64 + code.unread_bytes;
    assert!(taken <= data.len() as u64, "{code:?}");
    // Zeros before containers are padding.
    let padded = [&[0; 16], data].concat();
    assert_eq!(read_fat_binary(&&padded[..]).expect("as above"), code);
}

pub(crate) fn fatbin_seeds() -> Vec<Vec<u8>> {
    let two = made::build_container(&[
        made::build_entry(SASS, 80, 0),
        made::build_entry(SASS, 90, EXACT),
        made::build_entry(PTX, 120, FAMILY),
    ]);
    vec![
        two.clone(),
        [&two[..], &[0; 40], &two, b"noise...", &two, &[0; 4]].concat(),
    ]
}

/// Each kind of code is sorted, and there is some of it.
fn check(code: &GpuCode) {
    for kind in &code.coverage {
        assert!(!kind.targets.is_empty() && kind.targets.is_sorted() && kind.containers > 0);
    }
}

/// A static library.
pub(crate) fn ar(data: &[u8]) {
    match read_archive(&data) {
        Ok(archive) => {
            check(&archive.gpu);
            let sizes = archive.members.iter().map(|member| 60 + member.size);
            assert!(archive.thin || 8 + sizes.sum::<u64>() <= data.len() as u64);
        }
        Err(error) => drop((error.to_string(), error.hint())),
    }
}

pub(crate) fn ar_seeds() -> Vec<Vec<u8>> {
    let object = made::build_elf(&made::extension_fixture());
    let mut thin = b"!<thin>\n".to_vec();
    made::push_member(&mut thin, "//", b"folder/of/some/object.o/\n");
    made::member_header(&mut thin, "/0", 4000);
    let mut bsd = b"!<arch>\n".to_vec();
    made::push_member(&mut bsd, "#1/12", b"long_name.o\0text");
    vec![
        made::build_archive(&[("a.o", &object), ("an_object_with_a_long_name.o", b"text")]),
        thin,
        bsd,
    ]
}
