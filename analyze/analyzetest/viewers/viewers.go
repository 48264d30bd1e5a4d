// Package viewers runs the programs that read gpurec's output: DuckDB, trace_processor, node and
// Chromium. scripts/viewers.sh installs them. A test that lacks one is skipped, or fails if
// GPUREC_MUST_RUN is 1.
package viewers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/internal/testclass"
)

// ToolPath returns the path of a program that scripts/viewers.sh installs. It skips the test if the
// program is missing.
func ToolPath(t *testing.T, elements ...string) string {
	t.Helper()
	path := analyzetest.RepositoryPath(t, append([]string{"build", "tools"}, elements...)...)
	if _, err := os.Stat(path); err != nil {
		testclass.Missing(t, path+" is not installed: run scripts/viewers.sh")
	}
	return path
}

// RunNode runs a script with node and returns the lines of its output.
func RunNode(t *testing.T, args ...string) [][]byte {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		testclass.Missing(t, "node is not installed")
	}
	cmd := exec.Command("node", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node %s: %v\n%s", args[0], err, stderr.Bytes())
	}
	var lines [][]byte
	in := bufio.NewScanner(bytes.NewReader(out))
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		lines = append(lines, bytes.Clone(in.Bytes()))
	}
	return lines
}

// QueryPerfetto loads a file into Perfetto's trace processor and runs queries. Each result is a
// list of rows, each a map from column to value.
func QueryPerfetto(t *testing.T, path string, queries ...string) [][]map[string]any {
	t.Helper()
	lines := RunNode(
		t,
		append(
			[]string{
				analyzetest.RepositoryPath(t, "scripts", "trace_processor.mjs"),
				ToolPath(t, "trace_processor"),
				path,
			},
			queries...)...)
	if len(lines) != len(queries) {
		t.Fatalf("%d results of %d queries", len(lines), len(queries))
	}
	results := make([][]map[string]any, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal(line, &results[i]); err != nil {
			t.Fatal(err)
		}
	}
	return results
}

// PerfettoErrorsQuery returns the errors and data losses that Perfetto found in a trace.
const PerfettoErrorsQuery = `select name, value from stats where severity in ('error', 'data_loss') and value > 0`

// EncodeJSON returns v as JSON.
func EncodeJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ChromiumPath returns the path of a browser. It skips the test if there is none.
func ChromiumPath(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	testclass.Missing(t, "Chromium is not installed: run scripts/viewers.sh, or set CHROMIUM to its path")
	return ""
}

// duckdbQueryScript prints the rows of each query as a line of JSON. It is written to the folder of
// the installed module, where node resolves imports.
const duckdbQueryScript = `import { DuckDBInstance } from '@duckdb/node-api';
const db = await (await DuckDBInstance.create()).connect();
for (const sql of process.argv.slice(2)) {
  const rows = (await db.runAndReadAll(sql)).getRowObjectsJson();
  console.log(JSON.stringify(rows));
}
`

// QueryDuckDB runs queries with DuckDB. Each result is a list of rows as JSON.
func QueryDuckDB(t *testing.T, queries ...string) []string {
	t.Helper()
	module := ToolPath(t, "duckdb", "node_modules", "@duckdb", "node-api")
	script := filepath.Join(module, "..", "..", "..", "query.mjs")
	if err := os.WriteFile(script, []byte(duckdbQueryScript), 0o600); err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, line := range RunNode(t, append([]string{script}, queries...)...) {
		results = append(results, string(line))
	}
	if len(results) != len(queries) {
		t.Fatalf("%d results of %d queries", len(results), len(queries))
	}
	return results
}

// DuckDBFolder returns a folder with a program duckdb, to put on PATH: the one that is installed, or
// scripts/duckdb_shell.mjs. The npm registry has DuckDB's engine, but not its shell. It skips the test
// without both.
func DuckDBFolder(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("duckdb"); err == nil {
		return filepath.Dir(path)
	}
	module := ToolPath(t, "duckdb", "node_modules", "@duckdb", "node-api", "lib", "index.js")
	node, err := exec.LookPath("node")
	if err != nil {
		testclass.Missing(t, "node is not installed")
	}
	shell := analyzetest.RepositoryPath(t, "scripts", "duckdb_shell.mjs")
	folder := t.TempDir()
	text := "#!/bin/sh\nexec '" + node + "' '" + shell + "' '" + module + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(folder, "duckdb"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}
