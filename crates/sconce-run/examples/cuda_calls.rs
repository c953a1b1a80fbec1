//! Calls the driver's own library as a CUDA program does, with nothing else installed: what
//! `scripts/gpu-truth` runs inside and outside of a container.
//!
//! ```text
//! cuda_calls count              cards: a line `card UUID CAPABILITY` each, and where libcuda lies
//! cuda_calls kernel             compiles a kernel with the driver, runs it, checks its result
//! cuda_calls load SECONDS MIB   holds MIB of card 0 and keeps it busy
//! cuda_calls fill               takes memory of card 0 until there is no more: exit code 42
//! ```
//!
//! Exit codes: 3 no libcuda, 4 a call failed (its number is printed), 42 the card's memory is full.
#![expect(
    unsafe_code,
    reason = "the driver's library is C and is loaded at run time"
)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: c_int = 2;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];

/// Writes `7 * its number` into each of 64 words. Cards since Turing take this target.
const KERNEL: &CStr = c".version 6.3
.target sm_75
.address_size 64
.visible .entry sevens(.param .u64 where)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [where];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r1, %tid.x;
  mul.lo.u32 %r2, %r1, 7;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
  ret;
}
";

/// Why it ended early.
enum Failed {
    NoLibrary,
    NoFunction(&'static CStr),
    Call(&'static CStr, c_int),
    Wrong(&'static str),
}

/// The driver's library.
struct Cuda(*mut c_void);

/// Calls a function of cuda.h, named as it is exported there, with its parameter types.
macro_rules! call {
    ($cuda:expr, $name:literal, $($argument:expr => $kind:ty),* $(,)?) => {{
        let function = $cuda.function($name)?;
        // SAFETY: the types are those of cuda.h for this exported name, and every pointer is to a
        // live value of this frame or came from the library itself.
        let status = unsafe {
            let function: unsafe extern "C" fn($($kind),*) -> c_int = std::mem::transmute(function);
            function($($argument),*)
        };
        match status {
            0 => Ok(()),
            status => Err(Failed::Call($name, status)),
        }
    }};
}

impl Cuda {
    fn start() -> Result<Self, Failed> {
        // SAFETY: a plain call with a C string; the library is never closed.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Err(Failed::NoLibrary);
        }
        let cuda = Self(handle);
        call!(cuda, c"cuInit", 0 => c_uint)?;
        Ok(cuda)
    }

    fn function(&self, name: &'static CStr) -> Result<*mut c_void, Failed> {
        // SAFETY: the handle is open and the name is a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if found.is_null() {
            return Err(Failed::NoFunction(name));
        }
        Ok(found)
    }

    fn devices(&self) -> Result<c_int, Failed> {
        let mut count = 0;
        call!(self, c"cuDeviceGetCount", &raw mut count => *mut c_int)?;
        Ok(count)
    }

    fn device(&self, index: c_int) -> Result<c_int, Failed> {
        let mut device = 0;
        call!(self, c"cuDeviceGet", &raw mut device => *mut c_int, index => c_int)?;
        Ok(device)
    }

    fn capability(&self, device: c_int) -> Result<[c_int; 2], Failed> {
        let mut parts = [0; 2];
        for (part, name) in parts.iter_mut().zip(CAPABILITY) {
            call!(self, c"cuDeviceGetAttribute",
                std::ptr::from_mut(part) => *mut c_int, name => c_int, device => c_int)?;
        }
        Ok(parts)
    }

    /// As nvidia-smi writes it.
    fn uuid(&self, device: c_int) -> Result<String, Failed> {
        let mut bytes = [0_u8; 16];
        call!(self, c"cuDeviceGetUuid_v2", &raw mut bytes => *mut [u8; 16], device => c_int)?;
        let mut text = "GPU".to_owned();
        for (at, byte) in bytes.iter().enumerate() {
            if [0, 4, 6, 8, 10].contains(&at) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        Ok(text)
    }

    /// Makes the first card's own context this thread's.
    fn enter(&self) -> Result<(), Failed> {
        let device = self.device(0)?;
        let mut context = std::ptr::null_mut::<c_void>();
        call!(self, c"cuDevicePrimaryCtxRetain",
            &raw mut context => *mut *mut c_void, device => c_int)?;
        call!(self, c"cuCtxSetCurrent", context => *mut c_void)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, Failed> {
        let mut address = 0_u64;
        call!(self, c"cuMemAlloc_v2", &raw mut address => *mut u64, bytes => usize)?;
        Ok(address)
    }

    fn wait(&self) -> Result<(), Failed> {
        call!(self, c"cuCtxSynchronize",)
    }
}

fn count(cuda: &Cuda) -> Result<(), Failed> {
    for index in 0..cuda.devices()? {
        let device = cuda.device(index)?;
        let [major, minor] = cuda.capability(device)?;
        println!("card {} {major}.{minor}", cuda.uuid(device)?);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = maps
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(5))
        .find(|path| path.contains("/libcuda.so"));
    println!("library {}", library.unwrap_or("unknown"));
    Ok(())
}

fn kernel(cuda: &Cuda) -> Result<(), Failed> {
    const THREADS: u32 = 64;
    let [major, minor] = cuda.capability(cuda.device(0)?)?;
    if (major, minor) < (7, 5) {
        println!("left out: this card is older than the kernel's target");
        return Ok(());
    }
    cuda.enter()?;
    let mut module = std::ptr::null_mut::<c_void>();
    call!(cuda, c"cuModuleLoadData",
        &raw mut module => *mut *mut c_void, KERNEL.as_ptr().cast() => *const c_void)?;
    let mut function = std::ptr::null_mut::<c_void>();
    call!(cuda, c"cuModuleGetFunction",
        &raw mut function => *mut *mut c_void, module => *mut c_void,
        c"sevens".as_ptr() => *const c_char)?;
    let mut words = [0_u32; THREADS as usize];
    let mut address = cuda.allocate(size_of_val(&words))?;
    let mut parameters = [(&raw mut address).cast::<c_void>()];
    call!(cuda, c"cuLaunchKernel",
        function => *mut c_void,
        1 => c_uint, 1 => c_uint, 1 => c_uint,
        THREADS => c_uint, 1 => c_uint, 1 => c_uint,
        0 => c_uint, std::ptr::null_mut() => *mut c_void,
        parameters.as_mut_ptr() => *mut *mut c_void,
        std::ptr::null_mut() => *mut *mut c_void)?;
    cuda.wait()?;
    call!(cuda, c"cuMemcpyDtoH_v2",
        words.as_mut_ptr().cast() => *mut c_void, address => u64, size_of_val(&words) => usize)?;
    if !words
        .iter()
        .zip(0..)
        .all(|(&word, number)| word == 7 * number)
    {
        return Err(Failed::Wrong("the kernel's result"));
    }
    println!("compiled by the driver, run, right");
    Ok(())
}

/// Setting memory is a kernel to the card.
fn load(cuda: &Cuda, seconds: u64, mib: usize) -> Result<(), Failed> {
    cuda.enter()?;
    let bytes = mib << 20;
    let address = cuda.allocate(bytes)?;
    println!("holding {mib} MiB");
    let began = Instant::now();
    let mut value = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..16 {
            value += 1;
            call!(cuda, c"cuMemsetD32_v2",
                address => u64, value => c_uint, bytes / 4 => usize)?;
        }
        cuda.wait()?;
    }
    Ok(())
}

fn fill(cuda: &Cuda) -> Result<(), Failed> {
    cuda.enter()?;
    let mut bytes = 1_usize << 30;
    let mut held = 0_usize;
    // Ever smaller pieces, so that the last refusal is of one that any card with room would give.
    loop {
        match cuda.allocate(bytes) {
            Ok(_) => held += bytes,
            Err(Failed::Call(_, OUT_OF_MEMORY)) if bytes > 2 << 20 => bytes /= 2,
            Err(failed) => {
                println!("held {} MiB", held >> 20);
                return Err(failed);
            }
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = Cuda::start().and_then(|cuda| match words[..] {
        ["count"] => count(&cuda),
        ["kernel"] => kernel(&cuda),
        ["load", seconds, mib] => match (seconds.parse(), mib.parse()) {
            (Ok(seconds), Ok(mib)) => load(&cuda, seconds, mib),
            _ => Err(Failed::Wrong("the arguments")),
        },
        ["fill"] => fill(&cuda),
        _ => Err(Failed::Wrong("the arguments")),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::NoLibrary) => {
            eprintln!("the loader does not find libcuda.so.1");
            3.into()
        }
        Err(Failed::Call(name, OUT_OF_MEMORY)) => {
            eprintln!("{}: the card's memory is full", name.to_string_lossy());
            42.into()
        }
        Err(Failed::Call(name, status)) => {
            eprintln!("{} failed with {status}", name.to_string_lossy());
            4.into()
        }
        Err(Failed::NoFunction(name)) => {
            eprintln!("libcuda has no {}", name.to_string_lossy());
            4.into()
        }
        Err(Failed::Wrong(what)) => {
            eprintln!("wrong: {what}");
            4.into()
        }
    }
}
