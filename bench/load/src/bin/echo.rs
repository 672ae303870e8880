//! The minimum cost of answering: a server that sends a fixed number of bytes for each fixed number of bytes that it
//! receives, on the runtime that Espalier's server uses, and a client that keeps a number of requests in flight.
//!
//! `echo serve REQUEST ANSWER` prints its port and serves until its standard input ends. `echo drive PORT CONNECTIONS
//! IN_FLIGHT REQUEST ANSWER SECONDS` prints how many requests were answered.
//!
//! No database on this runtime can save what the server spends here. The orchestrator subtracts it where a bar says so.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const BUFFER_BYTES: usize = 64 * 1024;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = words.iter().skip(1).filter_map(|word| word.parse().ok()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = runtime.and_then(|runtime| match (words.first().map(String::as_str), numbers.as_slice()) {
        (Some("serve"), &[request, answer]) => runtime.block_on(serve(request, answer)),
        (Some("drive"), &[port, connections, in_flight, request, answer, seconds]) => {
            let sizes = Sizes { request, answer };
            runtime.block_on(drive(port, connections, in_flight, sizes, Duration::from_secs(seconds as u64)))
        }
        _ => Err(io::Error::other(
            "usage: echo serve REQUEST ANSWER | echo drive PORT CONNECTIONS IN_FLIGHT REQUEST ANSWER SECONDS",
        )),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(request: usize, answer: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer_all(socket, request, answer));
        }
    });
    // The orchestrator holds the other end of the pipe. This process therefore ends when the orchestrator ends.
    let mut input = tokio::io::stdin();
    let mut byte = [0];
    while input.read(&mut byte).await? > 0 {}
    std::process::exit(0);
}

async fn answer_all(mut socket: TcpStream, request: usize, answer: usize) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut received = vec![0; BUFFER_BYTES];
    let answers = vec![0; (BUFFER_BYTES / request + 1) * answer];
    let mut rest = 0;
    loop {
        let count = socket.read(&mut received).await?;
        if count == 0 {
            return Ok(());
        }
        let complete = (rest + count) / request;
        rest = (rest + count) % request;
        socket.write_all(&answers[..complete * answer]).await?;
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    request: usize,
    answer: usize,
}

async fn drive(port: usize, connections: usize, in_flight: usize, sizes: Sizes, duration: Duration) -> io::Result<()> {
    let answered = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + duration;
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let mut socket = TcpStream::connect(("127.0.0.1", port as u16)).await?;
        socket.set_nodelay(true)?;
        let (each, answered) = ((in_flight / connections).max(1), answered.clone());
        tasks.push(tokio::spawn(async move {
            let requests = vec![0; BUFFER_BYTES.max(each * sizes.request)];
            let mut received = vec![0; BUFFER_BYTES];
            socket.write_all(&requests[..each * sizes.request]).await?;
            let mut rest = 0;
            while Instant::now() < end {
                let count = socket.read(&mut received).await?;
                let complete = (rest + count) / sizes.answer;
                rest = (rest + count) % sizes.answer;
                answered.fetch_add(complete as u64, Ordering::Relaxed);
                socket.write_all(&requests[..complete * sizes.request]).await?;
            }
            io::Result::Ok(())
        }));
    }
    for task in tasks {
        task.await.map_err(io::Error::other)??;
    }
    println!("{}", answered.load(Ordering::Relaxed));
    Ok(())
}
