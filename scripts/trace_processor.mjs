// Runs SQL queries on a trace with Perfetto's trace_processor, compiled to wasm:
//
//	node trace_processor.mjs DIR TRACE 'SELECT …' …
//
// DIR is the folder in which scripts/viewers.sh installed the engine. Prints one line of JSON per
// query: a list of rows. Fails if the trace cannot be loaded or a query is invalid.
import { readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { runInThisContext } from 'node:vm';

const [dir, trace, ...queries] = process.argv.slice(2);

// The engine is built for a web worker: define the globals of a web worker.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
Object.defineProperty(globalThis, 'location', { value: { href: pathToFileURL(dir).href + '/' }, configurable: true });

// patch replaces text in the source of the engine. It throws if the text is missing, as in another
// version of the engine.
function patch(source, from, to) {
  if (!source.includes(from)) throw new Error(`the engine has no ${JSON.stringify(from)}`);
  return source.replace(from, to);
}

function loadBridge() {
  globalThis.engineWasm = new Uint8Array(readFileSync(join(dir, 'trace_processor.wasm')));
  let source = readFileSync(join(dir, 'engine_bundle.node.js'), 'utf8');
  source = patch(source, 'this.useMemory64 = hasMemory64Support();', 'this.useMemory64 = false;');
  source = patch(source, 'locateFile: (s) => s,', 'locateFile: (s) => s, wasmBinary: globalThis.engineWasm,');
  source = patch(source, 'const wasmBridge = new wasm_bridge_1.WasmBridge();',
    'const wasmBridge = globalThis.engineBridge = new wasm_bridge_1.WasmBridge();');
  runInThisContext(source, { filename: 'engine_bundle.node.js' });
  return globalThis.engineBridge;
}

// openEngine connects an engine to the bridge over a message channel.
async function openEngine(bridge) {
  const { EngineBase } = await import(pathToFileURL(join(dir, 'engine.mjs')).href);
  const { port1, port2 } = new MessageChannel();
  class Engine extends EngineBase {
    mode = 'WASM';
    id = 'gpurec';
    rpcSendRequestBytes(bytes) { port2.postMessage(bytes); }
  }
  const engine = new Engine();
  port2.onmessage = (m) => { if (m.data instanceof Uint8Array) engine.onRpcResponseBytes(m.data); };
  bridge.initialize(port1);
  return engine;
}

// plain converts a value of the engine to a JSON value. Integers above 2^53 become strings.
function plain(v) {
  if (typeof v === 'bigint') return Number.isSafeInteger(Number(v)) ? Number(v) : String(v);
  return v instanceof Uint8Array ? Buffer.from(v).toString('hex') : v;
}

console.warn = () => {}; // the engine prints warnings about its protocol
const engine = await openEngine(loadBridge());
const bytes = new Uint8Array(readFileSync(trace));
const chunk = 32 << 20;
for (let at = 0; at < bytes.length; at += chunk) await engine.parse(bytes.subarray(at, at + chunk));
await engine.notifyEof();
for (const sql of queries) {
  const result = await engine.query(sql);
  const columns = result.columns();
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(Object.fromEntries(columns.map((c) => [c, plain(it.get(c))])));
  }
  writeSync(1, JSON.stringify(rows) + '\n');
}
process.exit(0);
