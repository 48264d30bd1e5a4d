package analyze

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func newDigestCommand() *cobra.Command {
	f := &reportFlags{command: "digest", values: digest.Sections}
	var format string
	var maxChars int
	cmd := &cobra.Command{
		Use:   "digest [FILE]",
		Short: "Write a short text about a recording, for people and language models",
		Long: `digest describes a job and its problems, each with evidence, confidence, and the command
that shows more. The text has at most 12,000 characters, about 4,000 tokens.

Each value is from another report: rules, xid, errors, hang, oom, leaks, frag, ranks, gpu,
gaps, steps or summary. With --format json, "from" names the report and the place in its
JSON. If the text is too long, digest leaves out whole items and says how many.

Names in a recording come from the recorded programs. digest quotes and shortens them: a
language model must read them as data.`,
		Example: `  gpurec analyze digest run.parquet
  gpurec analyze digest --max-chars 4000 --from 10s --to 20s run.parquet
  gpurec analyze digest --format json run.parquet | jq '.findings[].next'
  gpurec analyze digest --fail-on 'problems>0' run.parquet`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			args, err := f.checkDigestArguments(args, format, maxChars)
			if err != nil {
				return err
			}
			return f.openRecording(args, func(path string, t *timeline.Timeline) error {
				return f.explainError(path, f.writeDigest(path, t, format, maxChars))
			})
		},
	}
	f.addScopeFlags(cmd.Flags())
	cmd.Flags().StringVar(&format, "format", digest.Formats[0], "output format: "+strings.Join(digest.Formats, ", "))
	cmd.Flags().IntVar(&maxChars, "max-chars", digest.DefaultMaxChars, "write at most `N` characters")
	return cmd
}

// checkDigestArguments returns the recording that the arguments name. It returns an error for several recordings, and
// for wrong values of the flags of digest.
func (f *reportFlags) checkDigestArguments(args []string, format string, maxChars int) ([]string, error) {
	if f.explain {
		return nil, nil
	}
	if maxChars < digest.MinMaxChars {
		return nil, message.Usagef(f.helpCommand(), "--max-chars must be at least %d", digest.MinMaxChars)
	}
	if format != "md" && format != "json" {
		return nil, message.Usagef(f.helpCommand(), "--format: unknown format %q; the formats are %s", format,
			strings.Join(digest.Formats, ", "))
	}
	paths, err := expandArguments(args)
	if err != nil {
		return nil, err
	}
	if len(paths) > 1 {
		return nil, message.Usagef("gpurec analyze ranks "+joinPaths(paths),
			"digest reads one recording; ranks, hang and the summary compare several")
	}
	return paths, nil
}

// joinPaths returns paths as words of a command. It names at most four.
func joinPaths(paths []string) string {
	const most = 4
	var words []string
	for i, path := range paths {
		if i == most {
			words = append(words, "…")
			break
		}
		words = append(words, rules.QuoteShellWord(path))
	}
	return strings.Join(words, " ")
}

// writeDigest prints the digest of a recording and applies --fail-on.
func (f *reportFlags) writeDigest(path string, t *timeline.Timeline, format string, maxChars int) error {
	var text bytes.Buffer
	d, err := digest.Write(t, &text, format, maxChars, digest.Options{
		Filter: f.opt.Filter, Name: path, Flags: f.scopeWords(), Progress: newProgressPrinter(),
	})
	if err != nil {
		return err
	}
	r := &report.Report{Command: f.command, Totals: d.Totals, Quality: d.Quality, NoMatch: d.NoMatch}
	failed, err := f.evaluateFailOn(r) // before printing: --fail-on may be a usage error
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write digest: %w", err)
	}
	return f.finishReport(r, failed)
}

// scopeWords returns the flags for the same window and processes, as words of a command.
func (f *reportFlags) scopeWords() (words []string) {
	add := func(flag, value string) {
		if value != "" {
			words = append(words, "--"+flag, rules.QuoteShellWord(value))
		}
	}
	numbers := func(flag string, list []int32) {
		for _, n := range list {
			add(flag, strconv.Itoa(int(n)))
		}
	}
	add("from", f.from)
	add("to", f.to)
	pids := f.opt.Pids
	if f.opt.Choice != nil { // RestrictProcesses replaced them
		pids = f.opt.Choice.Pids
	}
	numbers("pid", pids)
	numbers("rank", f.only.Ranks)
	for _, name := range f.only.Jobs {
		add("job", name)
	}
	for _, name := range f.only.Containers {
		add("container", name)
	}
	numbers("device", f.opt.Devices)
	return words
}
