//! The edge to C: pointers that callers give, and the macros that write entry points.
//!
//! All of it rests on one rule of every C interface here: a pointer argument is null or leads to what
//! its type says, for as long as the call lasts. Beyond this file an entry point needs no `unsafe`.

use std::ffi::{CStr, c_char, c_void};

/// An address that is only told apart, never followed.
pub type Handle = usize;

/// Where an answer goes.
#[repr(transparent)]
#[derive(Debug)]
pub struct OutPointer<T>(*mut T);

impl<T> OutPointer<T> {
    /// Writes the answer, if the caller wants one.
    pub fn write(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so the caller's, of this type. It may hold nothing yet, hence no drop.
            unsafe { self.0.write(value) }
        }
    }

    /// Whether the caller wants no answer.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub fn from_address(address: *mut T) -> Self {
        Self(address)
    }

    /// The same place, for another library to write to.
    pub fn as_mut_ptr(&self) -> *mut T {
        self.0
    }

    /// The same place, for an answer of another type: some calls say by a number what they want.
    pub fn narrow<U>(self) -> OutPointer<U> {
        OutPointer(self.0.cast())
    }
}

/// Where arguments lie.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct InPointer<T>(*const T);

impl<T: Copy> InPointer<T> {
    pub fn get(self) -> Option<T> {
        // SAFETY: null, or the caller's, of this type.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// One of several that stand in a row.
    pub fn read_at(self, index: usize) -> Option<T> {
        // SAFETY: null, or the caller's, with at least as many as it says.
        (!self.0.is_null()).then(|| unsafe { self.0.add(index).read_unaligned() })
    }

    pub fn address(self) -> usize {
        self.0 as usize
    }
}

/// A C string.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct CTextPointer(*const c_char);

impl CTextPointer {
    pub fn to_string_lossy(self) -> String {
        match self.0.is_null() {
            true => String::new(),
            // SAFETY: not null, so the caller's, and C strings end.
            false => unsafe { CStr::from_ptr(self.0) }
                .to_string_lossy()
                .into_owned(),
        }
    }
}

/// A text for C that lives as long as the process.
pub fn text_pointer(value: &'static CStr) -> *const c_char {
    value.as_ptr()
}

/// Writes a name into a field or a caller's buffer, ended as C strings are.
pub fn write_text(to: usize, size: usize, value: &str) {
    if to == 0 || size == 0 {
        return;
    }
    let bytes = &value.as_bytes()[..value.len().min(size - 1)];
    // SAFETY: the caller's buffer has `size` bytes, of which one more than these is written.
    unsafe {
        let to = to as *mut u8;
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        to.add(bytes.len()).write(0);
    }
}

/// Sets bytes of memory of this process.
pub fn fill_bytes(to: usize, value: u8, size: usize) {
    // SAFETY: the caller gives `size` bytes there.
    unsafe { std::ptr::write_bytes(to as *mut u8, value, size) }
}

/// Copies between memory of this process.
pub fn copy_bytes(to: usize, from: usize, size: usize) {
    // SAFETY: the caller gives `size` bytes at both; they may overlap.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, size) }
}

/// Bytes of memory of this process.
pub fn read_bytes(from: usize, size: usize) -> Vec<u8> {
    // SAFETY: the caller gives `size` bytes there.
    unsafe { std::slice::from_raw_parts(from as *const u8, size) }.to_vec()
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: i32) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn free(address: *mut c_void);
}

/// The first definition of a name that the process has: this library's, as it goes ahead.
pub fn find_symbol(name: &CStr) -> Option<usize> {
    // SAFETY: a null handle is RTLD_DEFAULT; the name ends.
    let found = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) } as usize;
    (found != 0).then_some(found)
}

/// A library that the process has loaded.
pub fn find_loaded_library(name: &CStr) -> Option<Handle> {
    const LAZY_NOLOAD: i32 = 1 | 4;
    // SAFETY: the name ends. Nothing is loaded, so no code of the library runs.
    let found = unsafe { dlopen(name.as_ptr(), LAZY_NOLOAD) } as usize;
    (found != 0).then_some(found)
}

/// A definition of [`find_loaded_library`]'s library, or of one that it needs.
pub fn symbol_of(library: Handle, name: &CStr) -> Option<usize> {
    // SAFETY: the library is `dlopen`'s, and stays; the name ends.
    let found = unsafe { dlsym(library as *mut c_void, name.as_ptr()) } as usize;
    (found != 0).then_some(found)
}

/// Page-aligned memory of this process, zeroed. 0 where there is none.
pub fn host_alloc(size: usize) -> usize {
    const PAGE: usize = 4096;
    let size = size.max(1).next_multiple_of(PAGE);
    // SAFETY: the size is a multiple of the alignment.
    let address = unsafe { aligned_alloc(PAGE, size) } as usize;
    if address != 0 {
        fill_bytes(address, 0, size);
    }
    address
}

/// Gives back what [`host_alloc`] gave.
pub fn host_free(address: usize) {
    // SAFETY: the caller had it from `host_alloc`, or it is null.
    unsafe { free(address as *mut c_void) }
}

/// Writes entry points whose answer is a status: `fn NAME(arguments) { … }`, where the block ends in
/// `Result<(), E>` and `$status` makes a number of it.
macro_rules! entries {
    ($status:path; $(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> i32 {
            let answer = || $body;
            $status(answer())
        }
    )*};
}

/// Writes entry points that succeed and do nothing: on a card they would change bytes that are not
/// there, or settings that change no answer.
macro_rules! nothing {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> i32 {
            0
        }
    )*};
}

/// Writes entry points that make something of which only the handle matters: it goes to the first
/// argument.
macro_rules! made {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(handle: crate::abi::OutPointer<crate::abi::Handle>) -> i32 {
            handle.write(crate::machine::lock_state().next_handle());
            0
        }
    )*};
}

/// Writes entry points that the virtual GPU has no answer to: each says its name and fails with the
/// interface's status for "not supported".
macro_rules! refused {
    ($status:expr; $($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> i32 {
            crate::unknown::report_unknown_call(stringify!($name));
            $status as i32
        }
    )*};
}

/// Writes an interface's statuses: `Error`, and `said`, which gives the name and the text of a status.
/// The first line is of success, the last of a status that is not among them.
macro_rules! statuses {
    ($success:literal $success_text:literal;
        $($error:ident = $code:literal $name:literal $text:literal;)*
        _ $unknown:literal $unknown_text:literal;
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Error {
            $($error = $code),*
        }

        fn said(status: i32) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
            match status {
                0 => ($success, $success_text),
                $($code => ($name, $text),)*
                _ => ($unknown, $unknown_text),
            }
        }
    };
}

pub(crate) use {entries, made, nothing, refused, statuses};
