// A Rust program whose global allocator counts what it hands on: to the C library's malloc, or, with --cfg jemalloc, to
// a jemalloc whose functions are called _rjem_*, just as the crates jemallocator and tikv-jemallocator call them. Speaks
// the protocol of workload.h.
use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};

#[cfg(jemalloc)]
mod jemalloc {
    use std::alloc::{GlobalAlloc, Layout};
    use std::ffi::{c_int, c_void};

    extern "C" {
        fn _rjem_malloc(size: usize) -> *mut c_void;
        fn _rjem_calloc(count: usize, size: usize) -> *mut c_void;
        fn _rjem_realloc(block: *mut c_void, size: usize) -> *mut c_void;
        fn _rjem_mallocx(size: usize, flags: c_int) -> *mut c_void;
        fn _rjem_rallocx(block: *mut c_void, size: usize, flags: c_int) -> *mut c_void;
        fn _rjem_sdallocx(block: *mut c_void, size: usize, flags: c_int);
    }

    const MALLOCX_ZERO: c_int = 0x40;
    pub struct Jemalloc;

    fn flags(layout: &Layout) -> c_int {
        if layout.align() <= 16 && layout.align() <= layout.size() {
            return 0;
        }
        layout.align().trailing_zeros() as c_int
    }

    unsafe impl GlobalAlloc for Jemalloc {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            match flags(&layout) {
                0 => _rjem_malloc(layout.size()) as *mut u8,
                flags => _rjem_mallocx(layout.size(), flags) as *mut u8,
            }
        }
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            match flags(&layout) {
                0 => _rjem_calloc(1, layout.size()) as *mut u8,
                flags => _rjem_mallocx(layout.size(), flags | MALLOCX_ZERO) as *mut u8,
            }
        }
        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            match flags(&layout) {
                0 => _rjem_realloc(block as *mut c_void, size) as *mut u8,
                flags => _rjem_rallocx(block as *mut c_void, size, flags) as *mut u8,
            }
        }
        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            _rjem_sdallocx(block as *mut c_void, layout.size(), flags(&layout))
        }
    }
}

#[cfg(jemalloc)]
use jemalloc::Jemalloc as Inner;
#[cfg(not(jemalloc))]
use std::alloc::System as Inner;

static ALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static FREED_BYTES: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);

fn allocated(size: usize) {
    ALLOCATED_BYTES.fetch_add(size as u64, SeqCst);
    ALLOCATIONS.fetch_add(1, SeqCst);
}

fn freed(size: usize) {
    FREED_BYTES.fetch_add(size as u64, SeqCst);
    FREES.fetch_add(1, SeqCst);
}

struct Counting;

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        Inner.alloc(layout)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        Inner.alloc_zeroed(layout)
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocated(size);
        freed(layout.size());
        Inner.realloc(block, layout, size)
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        freed(layout.size());
        Inner.dealloc(block, layout)
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[repr(align(64))]
#[derive(Clone)]
struct CacheLines(#[allow(dead_code)] [u8; 192]);

/// Visible from outside, so that what is stored here counts as seen.
#[no_mangle]
pub static SINK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// The optimizer removes pairs of malloc and free whose block no one sees.
fn escaped<T>(list: Vec<T>) -> Vec<T> {
    SINK.store(list.as_ptr() as *mut u8, SeqCst);
    list
}

/// Grows, shrinks and drops collections; what it returns stays.
fn work(seed: usize) -> Vec<String> {
    let mut numbers = Vec::new();
    for i in 0..3000 {
        numbers.push(i * seed);
    }
    numbers.truncate(100);
    numbers.shrink_to_fit();
    let zeroed = vec![0u8; 10_000 + seed % 1000];
    let aligned = vec![CacheLines([1; 192]); 5];
    let mut names: HashMap<String, Vec<usize>> = HashMap::new();
    for i in 0..500 {
        names.entry(format!("name {}", i % 97)).or_default().push(i);
    }
    let sorted: BTreeMap<&String, usize> = names.iter().map(|(name, list)| (name, list.len())).collect();
    let kept = sorted.keys().take(seed % 7).map(|name| name.to_uppercase()).collect();
    drop((escaped(zeroed), escaped(aligned), escaped(numbers)));
    kept
}

const THREADS: usize = 3;

struct Shared {
    begin: Barrier,
    end: Barrier,
    kept: Mutex<Vec<Vec<String>>>,
}

fn print_truth(output: &mut impl Write) {
    let figures = [&ALLOCATED_BYTES, &ALLOCATIONS, &FREED_BYTES, &FREES].map(|figure| figure.load(SeqCst));
    let [allocated_bytes, allocations, freed_bytes, frees] = figures;
    writeln!(
        output,
        "{{\"case\":\"collections\",\"allocated_bytes\":{allocated_bytes},\"allocations\":{allocations},\
         \"freed_bytes\":{freed_bytes},\"frees\":{frees},\"live_bytes\":{},\"live_blocks\":{},\
         \"sums_are_minimum\":false,\"unknown_frees\":0,\"unknown_frees_are_minimum\":false,\"abandoned_at_most\":0,\
         \"mapped_bytes\":0,\"unmapped_bytes\":0,\"sites\":{{}}}}",
        allocated_bytes - freed_bytes,
        allocations - frees
    )
    .unwrap();
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--list") {
        return println!("collections");
    }
    let shared = Arc::new(Shared {
        begin: Barrier::new(THREADS + 1),
        end: Barrier::new(THREADS + 1),
        kept: Mutex::new(Vec::with_capacity(1_000_000)),
    });
    for index in 0..THREADS {
        let shared = shared.clone();
        std::thread::spawn(move || loop {
            shared.begin.wait();
            for round in 0..20 {
                let kept = work(index * 20 + round);
                shared.kept.lock().unwrap().push(kept);
            }
            shared.end.wait();
        });
    }
    let run = || {
        shared.begin.wait();
        shared.end.wait();
    };
    run(); // each thread's first use of everything
    shared.kept.lock().unwrap().clear();
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stdout().lock();
    let mut line = String::with_capacity(64);
    for figure in [&ALLOCATED_BYTES, &ALLOCATIONS, &FREED_BYTES, &FREES] {
        figure.store(0, SeqCst);
    }
    writeln!(output, "ready {}", std::process::id()).unwrap();
    while input.read_line(&mut line).unwrap() > 0 {
        match line.trim_end() {
            "go" => run(),
            quit => std::process::exit(quit.strip_prefix("quit ").map_or(0, |status| status.parse().unwrap())),
        }
        print_truth(&mut output);
        line.clear();
    }
}
