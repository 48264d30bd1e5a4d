// A simulated shell of DuckDB for tests: the engine of @duckdb/node-api with those options of the shell
// that gpurec uses. Usage: node duckdb_shell.mjs MODULE [-init FILE] [-csv|-json|-box] [-bail] [-c SQL]
// [:memory:]. Without -c it reads standard input, and without -init ~/.duckdbrc. Dot commands are ignored.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [module, ...args] = process.argv.slice(2);
const { DuckDBInstance } = await import(pathToFileURL(module));
const options = { mode: 'box', init: path.join(os.homedir(), '.duckdbrc') };
for (let i = 0; i < args.length; i++) {
  switch (args[i]) {
    case '--version': options.version = true; break;
    case '-init': options.init = args[++i]; break;
    case '-c': options.sql = args[++i]; break;
    case '-csv': case '-json': case '-box': options.mode = args[i].slice(1); break;
    case '-bail': case ':memory:': break;
    default:
      console.error(`unknown option ${args[i]}`);
      process.exit(1);
  }
}

const db = await (await DuckDBInstance.create(':memory:')).connect();

async function run(sql, print) {
  const lines = sql.split('\n').filter((line) => !line.startsWith('.')).join('\n');
  const statements = await db.extractStatements(lines);
  for (let i = 0; i < statements.count; i++) {
    const result = await (await statements.prepare(i)).runAndReadAll();
    if (print && result.columnCount > 0) print(result);
  }
}

function csvCell(value) {
  if (value === null) return 'NULL';
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const printers = {
  csv(result) {
    const rows = [result.columnNames(), ...result.getRowsJson()];
    fs.writeSync(1, rows.map((row) => row.map(csvCell).join(',') + '\n').join(''));
  },
  json(result) { fs.writeSync(1, JSON.stringify(result.getRowObjectsJson()) + '\n'); },
  box(result) {
    const rows = [result.columnNames(), ...result.getRowsJson()];
    fs.writeSync(1, rows.map((row) => `│ ${row.map((cell) => String(cell)).join(' │ ')} │\n`).join(''));
  },
};

try {
  if (options.version) {
    const [[version]] = (await db.runAndReadAll('select version()')).getRowsJson();
    console.log(`${version} (simulated) 0`);
    process.exit(0);
  }
  if (fs.existsSync(options.init)) await run(fs.readFileSync(options.init, 'utf8'));
  await run(options.sql ?? fs.readFileSync(0, 'utf8'), printers[options.mode]);
} catch (e) {
  console.error(e.message);
  process.exit(1);
}
