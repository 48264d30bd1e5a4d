//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/export/sql"
	"github.com/gpurec/gpurec/internal/testclass"
)

// sqlRun runs "gpurec analyze sql" with DuckDB on PATH in a folder. The home folder has a ~/.duckdbrc that
// would change every result.
func sqlRun(t *testing.T, folder, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	home := t.TempDir()
	must(
		t,
		os.WriteFile(filepath.Join(home, ".duckdbrc"), []byte("create table calls as select 1 as changed;\n"), 0o600),
	)
	cmd := exec.Command(lookGpurec(t), append([]string{"analyze", "sql"}, args...)...)
	cmd.Dir, cmd.Stdin = folder, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home,
		"PATH="+viewers.DuckDBFolder(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(home, "gpurec-sql-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left behind: %v %v", left, err)
	}
	return out.String(), messages.String(), cmd.ProcessState.ExitCode()
}

// sqlRecording writes a recording with `launches` launches to the path.
func sqlRecording(t *testing.T, path string, launches int) {
	t.Helper()
	recording := analyzetest.NewTestRecording(t)
	for i := range int64(launches) {
		recording.AddLaunch(i*analyzetest.Ms, 1000, "axpy", 7, 0)
	}
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	recording.Path = path
	recording.WriteAndOpen()
}

// TestSQLPaths queries recordings whose paths could be patterns, partitions, addresses or SQL.
func TestSQLPaths(t *testing.T) {
	testclass.Browser(t)
	dir := t.TempDir()
	names := []string{
		"run.parquet",
		"it's; drop view calls; --.parquet",
		"a*.parquet",
		"a1.parquet",
		"[1]?.parquet",
		"year=7/x y.parquet",
		`back\slash\.parquet`,
		`"quoted".parquet`,
		"line\nbreak\x1b.parquet",
		"http:x.parquet",
		"🚀.parquet",
		"-init.parquet",
	}
	var args []string
	want := make(map[string]int)
	for i, name := range names {
		sqlRecording(t, filepath.Join(dir, name), i+1)
		args = append(args, filepath.Join(dir, name))
		want[filepath.Join(dir, name)] = i + 1
	}
	out, stderr, code := sqlRun(t, dir, "", append(append([]string{"--format", "json"}, args...),
		"select recording, count(*)::integer as n from launches group by all")...)
	var rows []struct {
		Recording string
		N         int
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != 0 {
		t.Fatal(err, code, out, stderr)
	}
	for _, r := range rows {
		if want[r.Recording] != r.N {
			t.Errorf("%q has %d launches, want %d", r.Recording, r.N, want[r.Recording])
		}
		delete(want, r.Recording)
	}
	if len(want) > 0 {
		t.Errorf("no rows of %v", want)
	}
	sqlRecording(t, filepath.Join(dir, "x\xff.parquet"), 1)
	if _, stderr, code := sqlRun(t, dir, "", "x\xff.parquet", "select 1 as a"); code != 1 ||
		!strings.Contains(stderr, "is not valid UTF-8") {
		t.Errorf("a path with invalid UTF-8: exit status %d, %s", code, stderr)
	}
}

// TestSQLHasNoAccess checks that statements reach no files but the recordings, and no configuration.
func TestSQLHasNoAccess(t *testing.T) {
	testclass.Browser(t)
	t.Parallel()
	dir := t.TempDir()
	sqlRecording(t, filepath.Join(dir, "run.parquet"), 3)
	sqlRecording(t, filepath.Join(dir, "other.parquet"), 3)
	for _, statement := range []string{
		"select * from 'other.parquet'", "select * from read_text('/etc/passwd')", "select * from glob('/etc/*')",
		"copy (select 1) to 'new.csv'", "attach 'new.db'", "set enable_external_access = true",
		"copy (select 1) to 'run.parquet' (format parquet)", "install httpfs", "export database 'new'",
		"set allowed_directories = ['/']",
	} {
		out, stderr, code := sqlRun(t, dir, "", "run.parquet", statement)
		if code != 1 || stderr == "" {
			t.Errorf("%s: exit status %d, prints %s%s", statement, code, out, stderr)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("files %v, %v", files, err)
	}
	out, stderr, code := sqlRun(t, dir, "", "--format", "csv", "run.parquet", "select count(*) as n from calls")
	if out != "n\n3\n" || code != 0 {
		t.Errorf("prints %q, %s", out, stderr)
	}
}

// TestSQLExamples runs every example, from the arguments and all from standard input.
func TestSQLExamples(t *testing.T) {
	testclass.Browser(t)
	dir := docsFolder(t)
	examples := strings.Split(sql.Examples, "\n\n")
	if len(examples) != 10 {
		t.Errorf("%d examples, want 10", len(examples))
	}
	out, stderr, code := sqlRun(t, dir, "", "--examples")
	if code != 0 {
		t.Fatal(stderr)
	}
	for _, files := range [][]string{{"torch.parquet"}, {"leak.parquet", "host.parquet", "killed.parquet.d"}} {
		if _, stderr, code := sqlRun(t, dir, out, append([]string{"--format", "json"}, files...)...); code != 0 {
			t.Errorf("%s: %s", files, stderr)
		}
	}
	for _, e := range examples[:2] { // they have rows in this recording
		out, stderr, code := sqlRun(t, dir, "", "--format", "csv", "--", "leak.parquet", e) // e begins with a comment
		if code != 0 || strings.Count(out, "\n") < 2 {
			t.Errorf("%s: exit status %d, %s%s", e, code, out, stderr)
		}
	}
}

// TestSQLUsage checks errors, and what needs no DuckDB.
func TestSQLUsage(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	sqlRecording(t, filepath.Join(dir, "run.parquet"), 3)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--format", "xml", "run.parquet"}, 2, "must be one of table, csv, json"},
		{[]string{"absent.parquet", "select 1 as a"}, 1, "absent.parquet does not exist"},
		{[]string{"run.parquet", "run.parquet", "select 1 as a"}, 2, "run.parquet is given twice"},
		{[]string{"run.parquet", "select nothing from calls"}, 1, "nothing"},
		{[]string{"--print-views", "run.parquet"}, 0, "create or replace view calls as"},
		{[]string{"--explain"}, 0, "end_by"},
	} {
		out, stderr, code := sqlRun(t, dir, "", c.args...)
		if code != c.code || !strings.Contains(out+stderr, c.want) {
			t.Errorf("%q: exit status %d, %s%s", c.args, code, out, stderr)
		}
	}
	t.Setenv("PATH", filepath.Dir(lookGpurec(t)))
	var failed *exec.ExitError
	out, err := exec.Command(lookGpurec(t), "analyze", "sql", filepath.Join(dir, "run.parquet"), "select 1 as a").
		CombinedOutput()
	want := "gpurec: error: duckdb is not on PATH: install it from https://duckdb.org/install, or export the rows\n" +
		"gpurec: hint: gpurec analyze export csv FILE\n"
	if !errors.As(err, &failed) || failed.ExitCode() != 1 || string(out) != want {
		t.Errorf("without DuckDB: %v, %s", err, out)
	}
	for version, want := range map[string]string{"v1.1.3 old": "sql needs 1.2 or newer", "3.40.1 other": "prints no version"} {
		folder := t.TempDir()
		script := fmt.Sprintf("#!/bin/sh\necho '%s'\n", version)
		must(t, os.WriteFile(filepath.Join(folder, "duckdb"), []byte(script), 0o700))
		cmd := exec.Command(lookGpurec(t), "analyze", "sql", filepath.Join(dir, "run.parquet"), "select 1 as a")
		cmd.Env = append(os.Environ(), "PATH="+folder+":/bin:/usr/bin")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("DuckDB %s: %v, %s", version, err, out)
		}
	}
}
