// A client of the Model Context Protocol, by its official SDK. It starts a server, and prints a line of JSON for the
// handshake, for the tools, and for each call. The SDK checks answers against the schemas of the tools.
// Usage: node mcp_client.mjs SDK-FOLDER CALLS SERVER [ARGUMENT]... ; CALLS is a JSON list of {name, arguments}.
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [sdk, calls, command, ...args] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(path.join(sdk, 'dist', 'esm', 'client', file)));
const { Client } = await load('index.js');
const { StdioClientTransport } = await load('stdio.js');

const client = new Client({ name: 'test', version: '1.0.0' });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
const print = (value) => console.log(JSON.stringify(value));
print({ server: client.getServerVersion(), capabilities: client.getServerCapabilities(), instructions: client.getInstructions() });
print(await client.listTools());
for (const call of JSON.parse(calls)) {
  try {
    print(await client.callTool(call));
  } catch (error) {
    print({ refused: String(error) });
  }
}
await client.close();
