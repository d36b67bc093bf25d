// build: asc tally.ts -Oz --runtime incremental -o tally.wasm

// Tally counts the words of all inputs. Its answer is the turn's output. The
// inputs "fail", "trap" and "spin" end the turn in these ways; "keep" makes the
// memory grow.

// @ts-ignore: decorator
@external("agent", "start")
declare function agentStart(ptr: usize, len: usize): u64;
// @ts-ignore: decorator
@external("agent", "output")
declare function agentOutput(ptr: usize, len: usize): u64;
// @ts-ignore: decorator
@external("agent", "reply")
declare function agentReply(ptr: usize, len: usize): u64;
// @ts-ignore: decorator
@external("agent", "fail")
declare function agentFail(ptr: usize, len: usize): u64;
// @ts-ignore: decorator
@external("agent", "read")
declare function agentRead(ptr: usize, cap: usize): usize;

type Request = (ptr: usize, len: usize) => u64;

// response is that of the last request.
let response = "";

// ask sends a request and tells whether the status is 0.
function ask(how: Request, body: string): bool {
  const request = String.UTF8.encode(body);
  const result = how(changetype<usize>(request), request.byteLength);
  const buffer = new ArrayBuffer(<i32>(<u32>result));
  const n = agentRead(changetype<usize>(buffer), buffer.byteLength);
  response = String.UTF8.decodeUnsafe(changetype<usize>(buffer), n);
  return result >> 32 == 0;
}

class Word {
  count: u32 = 0;
  constructor(public text: string) {}
}

const words = new Array<Word>();
const index = new Map<string, Word>();
const kept = new Array<Uint8Array>();
let letters: u64 = 0;

function add(text: string): void {
  if (!index.has(text)) {
    const word = new Word(text);
    index.set(text, word);
    words.push(word);
  }
  index.get(text).count++;
  letters += text.length;
}

function alphanumeric(c: i32): bool {
  return (c >= 48 && c <= 57) || (c >= 97 && c <= 122) || (c >= 65 && c <= 90);
}

function answer(text: string): string {
  for (let from = 0, i = 0; i <= text.length; i++) {
    if (i == text.length || !alphanumeric(text.charCodeAt(i))) {
      if (i > from) add(text.substring(from, i));
      from = i + 1;
    }
  }
  const total = words.reduce<u32>((sum, word) => sum + word.count, 0);
  let most = new Word("");
  for (let i = 0; i < words.length; i++) {
    if (words[i].count > most.count) most = words[i];
  }
  const mean = <u32>((100.0 * <f64>letters) / <f64>max(total, 1) + 0.5);
  return `${total} words, ${words.length} different, most often ${most.text} (${most.count}), mean length ${mean / 100}.` +
    (mean % 100).toString().padStart(2, "0");
}

function keep(): string {
  const block = kept.length > 0 ? kept[kept.length - 1].slice() : new Uint8Array(300 << 10).fill(7);
  kept.push(block);
  return `${kept.length} kept`;
}

// lastText finds the text of the last input, as it stands in the JSON.
function lastText(start: string): string {
  const mark = '{"text":"';
  const at = start.lastIndexOf(mark);
  if (at < 0) return "";
  const from = at + mark.length;
  return start.substring(from, start.indexOf('"', from));
}

export function agent_abi_v1(): void {}

export function agent_describe(): i32 {
  const text = '{"id":"tally","version":"assemblyscript","capabilities":{"resumability":"RESUMABILITY_REQUIRES_MEMORY_SNAPSHOT","fork_safe":true}}';
  return ask(agentReply, text) ? 0 : 1;
}

export function agent_run(): i32 {
  if (!ask(agentStart, "")) return 1;
  const text = lastText(response);
  let said: string;
  if (text == "fail") {
    ask(agentFail, '{"code":3,"description":"asked to fail"}');
    return 1;
  } else if (text == "trap") {
    said = words[words.length].text;
  } else if (text == "spin") {
    while (true) letters = letters * 31 + (letters >> 7);
  } else if (text == "keep") {
    said = keep();
  } else {
    said = answer(text);
  }
  return ask(agentOutput, `{"role":"assistant","parts":[{"text":{"text":"${said}"}}]}`) ? 0 : 1;
}
