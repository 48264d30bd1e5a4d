package analyze

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/export/sql"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// sqlFlags holds the flags of "gpurec analyze sql".
type sqlFlags struct {
	*reportFlags
	format     string
	printViews bool
	examples   bool
}

func newSQLCommand() *cobra.Command {
	f := &sqlFlags{reportFlags: &reportFlags{command: "sql", values: sql.Sections}}
	cmd := &cobra.Command{
		Use:   "sql [FILE]... [QUERY]",
		Short: "Query recordings with DuckDB, with a view for each subject",
		Long: `sql runs DuckDB with views over one or several recordings: calls, launches, allocations,
blocks, operations, stacks, steps, processes, devices, samples, collectives, notes and others.
The column recording names the file of a row. The last argument is the query if it has spaces and is
no file. Without it, sql runs the statements of standard input. On a terminal it opens the
shell of DuckDB.

DuckDB is a program of its own (duckdb.org). It runs in memory, without ~/.duckdbrc, and
its SQL can open no other files. --print-views prints the views as SQL instead. --explain
describes their columns, and --examples prints queries.`,
		Example: `  gpurec analyze sql run.parquet "select site, count(*) from launches group by site"
  gpurec analyze sql --format csv rank0.parquet rank1.parquet "select * from collectives"
  gpurec analyze sql run.parquet
  gpurec analyze sql --print-views run.parquet > views.sql`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "table", "output format: table, csv, json")
	flags.BoolVar(&f.printViews, "print-views", false, "print the SQL of the views, and do not run DuckDB")
	flags.BoolVar(&f.examples, "examples", false, "print ten queries")
	flags.BoolVar(&f.explain, "explain", false, "only describe the columns of the views")
	return cmd
}

// run executes the command.
func (f *sqlFlags) run(ctx context.Context, args []string) error {
	mode, ok := duckDBModes[f.format]
	switch {
	case f.explain:
		return analyze.ExplainSections(os.Stdout, f.values)
	case f.examples:
		_, err := fmt.Print(sql.Examples)
		return err
	case !ok:
		return message.Usagef(f.helpCommand(), "--format %s: must be one of table, csv, json", f.format)
	}
	paths, query := splitSQLArgs(args)
	var program string
	if !f.printViews {
		var err error
		if program, err = findDuckDB(ctx); err != nil {
			return err
		}
	}
	sources, err := f.openSources(paths, query)
	if err != nil {
		return err
	}
	if f.printViews {
		if err := sql.WriteViews(os.Stdout, sources); err != nil {
			return fmt.Errorf("write views: %w", err)
		}
		return nil
	}
	return runDuckDB(ctx, program, mode, sources, query)
}

// splitSQLArgs divides the arguments into the files and the query. The last argument is a query if it
// has spaces, and does not look like a recording.
func splitSQLArgs(args []string) (paths []string, query string) {
	if len(args) == 0 {
		return nil, ""
	}
	last := args[len(args)-1]
	if _, err := os.Stat(last); err == nil || !strings.ContainsAny(last, " \t\n") ||
		strings.HasSuffix(last, ".parquet") || strings.HasSuffix(last, format.SegmentSuffix) {
		return args, ""
	}
	return args[:len(args)-1], last
}

// openSources reads what the views need of the recordings. Without paths it takes the newest recording
// of the current folder.
func (f *sqlFlags) openSources(paths []string, query string) ([]*sql.Source, error) {
	if len(paths) == 0 {
		newest, err := findNewestRecording(".")
		if err != nil {
			return nil, err
		}
		message.Notef("reading %s", newest)
		paths = []string{newest}
	}
	// Steps need a pass over all calls. A query that does not name them does not pay for it.
	withSteps := query == "" || strings.Contains(strings.ToLower(query), "steps")
	var sources []*sql.Source
	seen := make(map[string]bool)
	for _, path := range paths {
		path = filepath.Clean(path)
		if seen[path] {
			return nil, message.Usagef(f.helpCommand(), "%s is given twice", path)
		}
		seen[path] = true
		s, err := openSource(path, withSteps)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// openSource reads what the views need of one recording.
func openSource(path string, withSteps bool) (*sql.Source, error) {
	rec, err := openRecordingFile(path)
	if err != nil {
		return nil, err
	}
	defer rec.Close()
	source, err := sql.NewSource(path, rec)
	if err != nil {
		return nil, message.ExplainOpen(path, err)
	}
	if !withSteps {
		return source, nil
	}
	t, err := timeline.Open(rec)
	if err != nil {
		return nil, message.ExplainOpen(path, err)
	}
	if source.Steps, err = sql.FindSteps(t); err != nil {
		return nil, message.ExplainOpen(path, err)
	}
	return source, nil
}

// isInteractive reports whether DuckDB can open its shell.
func isInteractive() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}
