//! `bench-graphs COUNT DIMENSION uniform|clustered DIRECTORY`: builds a graph of COUNT vectors with each library, and
//! searches it for the ten nearest of new vectors with several widths. Each line names the library, the processor
//! seconds of the build, and for a width the processor microseconds of a search and the recall, which is the share of
//! the true nearest vectors that were found. All distances are euclidean.

#![forbid(unsafe_code)]

mod graphs;
mod set;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use graphs::{Build, DiskAnn, Graph, Hnsw, Ours, Usearch};
use set::VectorSet;

const SEARCHES: usize = 200;
const WANTED: usize = 10;
const WIDTHS: [usize; 6] = [32, 64, 128, 256, 512, 1024];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let set = match arguments.as_slice() {
        [count, dimension, kind, _] => VectorSet::parse(count, dimension, kind),
        _ => None,
    };
    let Some(set) = set else {
        eprintln!("usage: bench-graphs COUNT DIMENSION uniform|clustered DIRECTORY");
        return ExitCode::from(2);
    };
    match measure(&set, Path::new(&arguments[3])) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The processor time of the process with all its threads.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measure(set: &VectorSet, directory: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(directory)?;
    let vectors: Vec<Vec<f32>> = (0..set.count).map(|number| set.vector(number)).collect();
    let searched: Vec<Vec<f32>> = (0..SEARCHES).map(|number| set.vector(set.count + number)).collect();
    let nearest: Vec<Vec<usize>> = searched.iter().map(|wanted| set::nearest(&vectors, wanted, WANTED)).collect();
    let builds: [(&str, Build); 4] =
        [("ours", Ours::build), ("usearch", Usearch::build), ("hnsw_rs", Hnsw::build), ("diskann-rs", DiskAnn::build)];
    for (name, build) in builds {
        let start = cpu_time();
        let graph = build(&vectors, directory)?;
        println!(
            "{name}: build {:.2} s, {:.0} bytes per vector",
            (cpu_time() - start).as_secs_f64(),
            graph.bytes_per_vector()
        );
        for width in WIDTHS {
            search(name, &*graph, width, &searched, &nearest)?;
        }
    }
    Ok(())
}

fn search(
    name: &str,
    graph: &dyn Graph,
    width: usize,
    searched: &[Vec<f32>],
    nearest: &[Vec<usize>],
) -> Result<(), Box<dyn Error>> {
    // The first search of each vector fills the caches.
    for wanted in searched {
        graph.search(wanted, WANTED, width)?;
    }
    let (start, mut hits) = (cpu_time(), 0);
    for (wanted, nearest) in searched.iter().zip(nearest) {
        let found = graph.search(wanted, WANTED, width)?;
        hits += found.iter().filter(|number| nearest.contains(number)).count();
    }
    let micros = (cpu_time() - start).as_secs_f64() * 1e6 / searched.len() as f64;
    println!(
        "{name}: width {width}, search {micros:.0} µs, recall {:.3}",
        hits as f64 / (searched.len() * WANTED) as f64
    );
    Ok(())
}
