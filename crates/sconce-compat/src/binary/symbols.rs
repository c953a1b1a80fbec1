//! PyTorch's symbols among the dynamic ones: what an extension needs of the PyTorch beside it, and
//! what PyTorch has; and those of CUDA's libraries, which need each other in the same version.
//!
//! Which names are PyTorch's is told from the mangled name (Itanium C++ ABI, "Mangling"):
//! everything in the namespaces `c10`, `at`, `torch`, `caffe2` and `c10d`, functions and data,
//! their vtables, typeinfo, thunks and guards; and what it exports outside of any namespace, the
//! Python bindings (`THPVariable_Wrap`) and the C interface (`aoti_torch_…`, `torch_…`).
//! Left out are templates of others over its types (`std::vector<c10::…>`), which every library
//! has its own of.

use super::bytes::{BlockReader, ByteSource, u16_at, u32_at};
use super::dynamic::DynamicSection;
use super::elf::ElfLayout;
use super::{BinaryError, MalformedPart};
use crate::library::{ElfLibrary, symbol_hash};

/// Bytes of a symbol.
pub(super) const SYMBOL: usize = 24;
const GLOBAL: u8 = 1;
const WEAK: u8 = 2;
/// `STB_GNU_UNIQUE`: as global, once in a process.
const UNIQUE: u8 = 10;
const DEFAULT: u8 = 0;
const PROTECTED: u8 = 3;
const UNDEFINED: u16 = 0;
/// The most symbols. libtriton has 138,000.
const MAX_SYMBOLS: u64 = 1 << 22;
/// The most bytes of PyTorch's names in one library: they can overlap each other.
const MAX_NAMES_BYTES: usize = 256 << 20;
/// How much of the symbols is read at once.
const BLOCK: usize = 64 << 10;

/// Namespaces, as they are mangled.
const NAMESPACES: [&[u8]; 5] = [b"3c10", b"2at", b"5torch", b"6caffe2", b"4c10d"];

/// Puts PyTorch's symbols into `library`.
///
/// Undefined weak ones are left out, as nothing fails without them, and those that are hidden.
pub(super) fn read(
    bytes: &dyn ByteSource,
    layout: &ElfLayout,
    dynamic: &DynamicSection,
    library: &mut ElfLibrary,
) -> Result<(), BinaryError> {
    let Some(address) = dynamic.symbols else {
        return Ok(());
    };
    let count = count(bytes, layout, dynamic, address)?;
    if count > MAX_SYMBOLS {
        return Err(BinaryError::TooLarge {
            part: MalformedPart::Symbols,
            size: count,
            most: MAX_SYMBOLS,
        });
    }
    if count == 0 {
        return Ok(());
    }
    let offset = layout
        .locate_address(address, MalformedPart::Symbols)?
        .offset;
    let mut window = BlockReader::new(bytes, BLOCK);
    let mut left = MAX_NAMES_BYTES;
    // The first one is none.
    for number in 1..count {
        let at = offset.saturating_add(number * SYMBOL as u64);
        let symbol = window.read_array::<SYMBOL>(at, MalformedPart::Symbols)?;
        let (bind, visibility) = (symbol[4] >> 4, symbol[5] & 3);
        let undefined = u16_at(symbol, 6) == UNDEFINED;
        let counts = match bind {
            GLOBAL | UNIQUE => true,
            WEAK => !undefined,
            _ => false,
        };
        let name = u32_at(symbol, 0);
        if !counts
            || ![DEFAULT, PROTECTED].contains(&visibility)
            || !is_kept(dynamic.strings.bytes_from(name))
        {
            continue;
        }
        let name = dynamic.strings.name_at(name)?;
        left = left.checked_sub(name.len()).ok_or(BinaryError::TooLarge {
            part: MalformedPart::Symbols,
            size: name.len() as u64,
            most: MAX_NAMES_BYTES as u64,
        })?;
        if undefined {
            let name = String::from_utf8_lossy(name).into_owned();
            library.undefined.push(name);
        } else {
            library.defined.push(symbol_hash(name));
        }
    }
    library.undefined.sort_unstable();
    library.undefined.dedup();
    library.defined.sort_unstable();
    library.defined.dedup();
    Ok(())
}

/// How many symbols there are. The dynamic segment does not say; the section header does, and where
/// there is none, the tables that they are looked up with.
fn count(
    bytes: &dyn ByteSource,
    layout: &ElfLayout,
    dynamic: &DynamicSection,
    symbols: u64,
) -> Result<u64, BinaryError> {
    if let Some(count) = layout.symbols_at(symbols) {
        return Ok(count);
    }
    let mut window = BlockReader::new(bytes, BLOCK);
    let mut word = |at: u64| {
        let word = window.read_array::<4>(at, MalformedPart::Symbols)?;
        Ok(u32_at(word, 0))
    };
    if let Some(address) = dynamic.hash {
        let at = layout
            .locate_address(address, MalformedPart::Symbols)?
            .offset;
        return word(at.saturating_add(4)).map(u64::from);
    }
    let Some(address) = dynamic.gnu_hash else {
        return Ok(0);
    };
    // Four words; a filter of 64-bit words; the first symbol of each bucket; and for each symbol
    // from `first` on a word, whose lowest bit marks the last of its bucket.
    let at = layout
        .locate_address(address, MalformedPart::Symbols)?
        .offset;
    let (buckets, first, filter) = (word(at)?, word(at + 4)?, word(at + 8)?);
    let bucket_at = at.saturating_add(16 + 8 * u64::from(filter));
    let mut last = 0;
    for bucket in 0..u64::from(buckets).min(MAX_SYMBOLS) {
        last = last.max(word(bucket_at.saturating_add(4 * bucket))?);
    }
    if last < first {
        return Ok(u64::from(first));
    }
    let chain_at = bucket_at.saturating_add(4 * u64::from(buckets));
    let mut symbol = u64::from(last);
    while symbol < MAX_SYMBOLS {
        let at = chain_at.saturating_add(4 * (symbol - u64::from(first)));
        symbol += 1;
        if word(at)? & 1 == 1 {
            break;
        }
    }
    Ok(symbol)
}

/// Whether a name that begins so is one of those that are kept.
fn is_kept(name: &[u8]) -> bool {
    is_pytorch(name) || crate::loader::is_cuda_symbol(name)
}

/// Whether a name that begins so is one of PyTorch's.
fn is_pytorch(name: &[u8]) -> bool {
    let Some(mangled) = name.strip_prefix(b"_Z") else {
        let plain: [&[u8]; 3] = [b"THP", b"aoti_torch_", b"torch_"];
        return plain.iter().any(|begin| name.starts_with(begin));
    };
    // Only the beginning is looked at, which is where the outermost name stands.
    let name = entity(&mangled[..mangled.len().min(64)]);
    if let Some(nested) = name.strip_prefix(b"N") {
        // Of a member function: const, volatile, restrict, & and &&.
        let end = nested.iter().position(|byte| !b"rVKRO".contains(byte));
        let scope = &nested[end.unwrap_or(nested.len())..];
        return NAMESPACES.iter().any(|space| scope.starts_with(space));
    }
    let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
    name[digits.count()..].starts_with(b"THP")
}

/// What a mangled name is about: the class of a vtable, the function of a thunk or of a static
/// variable in it.
fn entity(mut name: &[u8]) -> &[u8] {
    const ABOUT: [&[u8]; 9] = [
        b"TV", b"TI", b"TS", b"TT", b"TC", b"TW", b"TH", b"GV", b"GR",
    ];
    loop {
        let inner = name.strip_prefix(b"Z");
        let about = || ABOUT.iter().find_map(|kind| name.strip_prefix(*kind));
        let Some(rest) = inner.or_else(about).or_else(|| thunk(name)) else {
            return name;
        };
        name = rest;
    }
}

/// What follows `Th` and an offset, or `Tv` and two.
fn thunk(name: &[u8]) -> Option<&[u8]> {
    let (offsets, rest) = match name {
        [b'T', b'h', rest @ ..] => (1, rest),
        [b'T', b'v', rest @ ..] => (2, rest),
        _ => return None,
    };
    (0..offsets).try_fold(rest, |rest, _| {
        let rest = rest.strip_prefix(b"n").unwrap_or(rest);
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        rest[digits.count()..].strip_prefix(b"_")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytorch_names_are_told_from_others() {
        for name in [
            // c10::Error::Error(…), at::Tensor::size(long) const, torch::autograd::…
            "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            "_ZNK2at10TensorBase4sizeEl",
            "_ZNKR3c106IValue8toTensorEv",
            "_ZN5torch8autograd13AutogradMetaE",
            "_ZN6caffe28TypeMeta4MakeIfEES0_v",
            "_ZN4c10d12ProcessGroupD1Ev",
            "_ZN3c10lsERSoNS_6DeviceE",
            "_ZTVN3c105ErrorE",
            "_ZTIN5torch8autograd4NodeE",
            "_ZTSN2at6TensorE",
            "_ZTTN3c1010IndexErrorE",
            "_ZThn16_N5torch8autograd4NodeD0Ev",
            "_ZTv0_n24_N3c105ErrorD1Ev",
            "_ZGVZN2at13globalContextEvE8globals_",
            "_ZZN2at13globalContextEvE8globals_",
            "_ZTHN3c1010tls_stateE",
            "_Z16THPVariable_WrapN2at10TensorBaseE",
            "THPVariableClass",
            "aoti_torch_get_dtype",
            "torch_call_dispatcher",
        ] {
            assert!(is_pytorch(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "_Z",
            "_ZN",
            "_ZNK",
            "_ZTh",
            "_ZTv1_",
            "_ZGV",
            "malloc",
            "PyInit__C",
            "_ZNSt6vectorIN3c106IValueESaIS1_EE17_M_realloc_insertEv",
            "_ZN6vision3ops3nmsERKN2at6TensorES4_d",
            "_ZN3atlas4loadEv",
            "_ZStlsRSoRKN3c106DeviceE",
            "_Z3addN2at6TensorE",
        ] {
            assert!(!is_pytorch(name.as_bytes()), "{name}");
        }
    }
}
