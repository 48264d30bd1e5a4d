package analyze

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/export/sql"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
)

// duckDBModes maps the values of --format to flags of DuckDB.
var duckDBModes = map[string]string{"table": "-box", "csv": "-csv", "json": "-json"}

// oldestDuckDBMajor and oldestDuckDBMinor are the oldest version of DuckDB with the setting allowed_paths.
const oldestDuckDBMajor, oldestDuckDBMinor = 1, 2

var duckDBVersion = regexp.MustCompile(`^v(\d+)\.(\d+)`)

// findDuckDB returns the path of DuckDB. It returns an error with a hint if DuckDB is not installed, or
// too old.
func findDuckDB(ctx context.Context) (string, error) {
	const hint = "gpurec analyze export csv FILE"
	program, err := exec.LookPath("duckdb")
	if err != nil {
		return "", message.WithHint(
			errors.New("duckdb is not on PATH: install it from https://duckdb.org/install, or export the rows"), hint)
	}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("run %s --version: %w", program, err)
	}
	m := duckDBVersion.FindSubmatch(out)
	if m == nil {
		return "", message.WithHint(fmt.Errorf("%s --version prints no version of DuckDB", program), hint)
	}
	major, _ := strconv.Atoi(string(m[1])) // the pattern allows digits only
	minor, _ := strconv.Atoi(string(m[2]))
	if major < oldestDuckDBMajor || major == oldestDuckDBMajor && minor < oldestDuckDBMinor {
		return "", message.WithHint(fmt.Errorf("%s is DuckDB %s, but sql needs %d.%d or newer",
			program, strings.TrimSpace(string(m[0])), oldestDuckDBMajor, oldestDuckDBMinor), hint)
	}
	return program, nil
}

// runDuckDB runs a query, the statements of standard input, or the shell. The exit status is 1 if DuckDB
// fails. DuckDB prints its own errors.
func runDuckDB(ctx context.Context, program, mode string, sources []*sql.Source, query string) error {
	folder, err := os.MkdirTemp("", "gpurec-sql-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	// A shell without all views and limits must not start. Errors of the user's statements do not end it.
	script := bytes.NewBufferString(".bail on\n")
	if err := errors.Join(
		sql.WriteViews(script, sources), sql.WriteLimits(script, sources, filepath.Join(folder, "spill")),
	); err != nil {
		return fmt.Errorf("write views: %w", err)
	}
	script.WriteString(".bail off\n")
	views := filepath.Join(folder, "views.sql")
	if err := os.WriteFile(views, script.Bytes(), 0o600); err != nil {
		return err
	}
	args := []string{"-init", views} // instead of ~/.duckdbrc
	switch {
	case query != "":
		args = append(args, mode, "-bail", "-c", query)
	case !isInteractive():
		args = append(args, mode, "-bail")
	}
	cmd := exec.CommandContext(ctx, program, append(args, ":memory:")...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Ctrl-C is for DuckDB: it stops the query that runs.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, os.Interrupt)
	defer signal.Stop(ignored)
	var failed *exec.ExitError
	if err := cmd.Run(); errors.As(err, &failed) && failed.Exited() {
		return &message.ExitStatus{Code: message.ExitFailed}
	} else if err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}
