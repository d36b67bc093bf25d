// build: rustc --edition 2021 --crate-type cdylib --target wasm32-unknown-unknown -C opt-level=s -C lto -C panic=abort -C strip=symbols -C target-feature=+bulk-memory,+sign-ext,+nontrapping-fptoint -o tally.wasm tally.rs

//! Tally counts the words of all inputs. Its answer is what it asks the model.
//! The inputs "fail", "trap" and "spin" end the turn in these ways; "keep" makes
//! the memory grow.

use std::collections::BTreeMap;

mod agent {
    #[link(wasm_import_module = "agent")]
    extern "C" {
        pub fn start(ptr: *const u8, len: usize) -> u64;
        pub fn model(ptr: *const u8, len: usize) -> u64;
        pub fn reply(ptr: *const u8, len: usize) -> u64;
        pub fn fail(ptr: *const u8, len: usize) -> u64;
        pub fn read(ptr: *mut u8, cap: usize) -> usize;
    }
}

type Request = unsafe extern "C" fn(*const u8, usize) -> u64;

/// ask sends a request and returns the response, unless the status is not 0.
fn ask(request: Request, body: &str) -> Option<Vec<u8>> {
    let result = unsafe { request(body.as_ptr(), body.len()) };
    let mut response = vec![0; result as u32 as usize];
    let n = unsafe { agent::read(response.as_mut_ptr(), response.len()) };
    response.truncate(n);
    (result >> 32 == 0).then(|| response)
}

#[derive(Default)]
struct Tally {
    words: Vec<(String, u32)>,
    index: BTreeMap<String, usize>,
    letters: u64,
    kept: Vec<Vec<u8>>,
}

impl Tally {
    fn add(&mut self, word: &str) {
        let words = &mut self.words;
        let at = *self.index.entry(word.to_string()).or_insert_with(|| {
            words.push((word.to_string(), 0));
            words.len() - 1
        });
        self.words[at].1 += 1;
        self.letters += word.len() as u64;
    }

    fn answer(&mut self, text: &str) -> String {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()) {
            self.add(word);
        }
        let total: u32 = self.words.iter().map(|w| w.1).sum();
        let most = self.words.iter().fold(("", 0), |most, w| if w.1 > most.1 { (&w.0, w.1) } else { most });
        let mean = (100.0 * self.letters as f64 / f64::from(total.max(1)) + 0.5) as u32;
        format!(
            "{} words, {} different, most often {} ({}), mean length {}.{:02}",
            total, self.words.len(), most.0, most.1, mean / 100, mean % 100
        )
    }

    fn keep(&mut self) -> String {
        let block = self.kept.last().cloned().unwrap_or_else(|| vec![7; 300 << 10]);
        self.kept.push(block);
        format!("{} kept", self.kept.len())
    }
}

/// last_text finds the text of the last input, as it stands in the JSON.
fn last_text(start: &[u8]) -> String {
    let json = String::from_utf8_lossy(start);
    let rest = json.rsplit("{\"text\":\"").next().unwrap_or("");
    rest.split('"').next().unwrap_or("").to_string()
}

static mut TALLY: Option<Tally> = None;

#[no_mangle]
pub extern "C" fn agent_abi_v1() {}

#[no_mangle]
pub extern "C" fn agent_describe() -> i32 {
    let text = r#"{"id":"tally","version":"rust","capabilities":{"resumability":"RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT","fork_safe":true}}"#;
    ask(agent::reply, text).map_or(1, |_| 0)
}

#[no_mangle]
pub extern "C" fn agent_run() -> i32 {
    let tally = unsafe { (*std::ptr::addr_of_mut!(TALLY)).get_or_insert_with(Tally::default) };
    let start = match ask(agent::start, "") {
        Some(start) => start,
        None => return 1,
    };
    let text = last_text(&start);
    let answer = match text.as_str() {
        "fail" => {
            ask(agent::fail, r#"{"code":3,"description":"asked to fail"}"#);
            return 1;
        }
        "trap" => tally.words[tally.words.len()].0.clone(),
        "spin" => loop {
            tally.letters = tally.letters.wrapping_mul(31).rotate_left(7);
        },
        "keep" => tally.keep(),
        text => tally.answer(text),
    };
    let call = format!(r#"{{"messages":[{{"role":"user","parts":[{{"text":{{"text":"{}"}}}}]}}]}}"#, answer);
    ask(agent::model, &call).map_or(1, |_| 0)
}
