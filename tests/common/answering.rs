//! A program that answers questions line by line, and the memory of processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A program that answers each line with a line. Dropping this ends it.
pub struct Answering {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answering {
    pub fn new(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let questions = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Answering {
            child,
            questions,
            answers,
        }
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Asks a question. Fails where the program is gone, or does not answer in time.
    pub fn ask(&mut self, question: &str, patience: Duration) -> Result<String, String> {
        let sent = writeln!(self.questions, "{question}");
        sent.map_err(|e| format!("the program is gone: {e}"))?;
        let answer = self.answers.recv_timeout(patience);
        answer.map_err(|e| format!("the program says nothing: {e}"))
    }
}

/// The peak memory of a process in KiB; `None` where it is gone.
pub fn most_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}
