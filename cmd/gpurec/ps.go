//go:build linux

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/terminal"
	"github.com/spf13/cobra"

	"github.com/gpurec/gpurec/record/nvml"
	"github.com/gpurec/gpurec/record/ps"
)

var psOutputFormats = []string{"table", "json", "csv"}

func newPsCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the processes that use CUDA now",
		Long: `ps lists the processes that use CUDA now: compute processes according to NVML, and
processes that have libcuda.so.1 mapped. It prints one line per process and GPU, sorted
by GPU and PID. Processes without GPU memory come last. ps attaches no probes.

COMMAND    The process name that "record --comm" compares.
SM%        The share of time in which a kernel of the process ran. The value is the newest
           driver sample of the last 3 s.
RANK       RANK/WORLD_SIZE from the environment of the process.
CONTAINER  The first characters of the container ID.
SINCE      The age of the process.
-          Unknown: no sample, no NVML, or not readable for this user.

Without root, ps shows processes of other users only if NVML lists them.
--format json and csv contain bytes and Unix nanoseconds, and omit unknown values.
The exit status is 0 even if no process uses CUDA.`,
		Example: `  sudo gpurec ps
  sudo gpurec record -p 4242 -d 10s                           # record a listed process
  gpurec ps --format json | jq '.processes[] | select(.rank == 0).pid'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !slices.Contains(psOutputFormats, format) {
				return message.Usagef(
					"gpurec ps --help",
					"--format %s: must be one of %s",
					format,
					strings.Join(psOutputFormats, ", "),
				)
			}
			return listProcesses(format)
		},
	}
	cmd.Flags().StringVar(&format, "format", psOutputFormats[0], "print as "+strings.Join(psOutputFormats, ", "))
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(
		"format",
		cobra.FixedCompletions(psOutputFormats, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

// listProcesses prints the processes that use CUDA to standard output, and notes on missing data to
// standard error.
func listProcesses(format string) error {
	list := ps.List(true)
	notes := describeMissingData(list)
	for _, note := range notes {
		message.Notef("%s", note)
	}
	out := os.Stdout
	switch format {
	case "json":
		return printPsJSON(out, list, notes)
	case "csv":
		return printPsCSV(out, list)
	}
	width, _, _ := terminal.Inspect(out, terminal.ColorNever)
	return printPsTable(out, list, time.Now(), width)
}

// describeMissingData returns notes on missing data in the list: unknown GPU values, and processes
// that gpurec could not read. An empty list has a note too.
func describeMissingData(list ps.Listing) []string {
	var notes []string
	if len(list.Processes) == 0 {
		notes = append(notes, "no process uses CUDA now")
	}
	if err := list.NVMLErr; err != nil {
		cause := strings.ReplaceAll(err.Error(), "\n", "; ")
		notes = append(notes, "GPU, memory and SM% are unknown or incomplete: "+cause)
	}
	if n := list.Unseen; n > 0 {
		notes = append(notes, fmt.Sprintf("NVML lists %s missing from /proc", formatProcessCount(n)))
	}
	if n := list.Denied; n > 0 {
		note := describeDeniedProcesses(n)
		if os.Geteuid() != 0 {
			note += "; run sudo gpurec ps"
		}
		notes = append(notes, note)
	}
	for _, pid := range list.Unanswered {
		notes = append(
			notes,
			fmt.Sprintf("process %d is not listed: reading /proc/%[1]d timed out; run cat /proc/%[1]d/status", pid),
		)
	}
	return notes
}

// describeDeniedProcesses returns a clause about n processes that gpurec may not read. Without
// root, these are processes of other users.
func describeDeniedProcesses(n int) string {
	switch root := os.Geteuid() == 0; {
	case root:
		return formatProcessCount(n) + " could not be read: permission denied"
	case n == 1:
		return "1 process of another user could not be read"
	}
	return fmt.Sprintf("%d processes of other users could not be read", n)
}

func formatProcessCount(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}

// psLine is one line of the list: a process and its use of one GPU. use is nil for a process that
// uses no GPU.
type psLine struct {
	*ps.Process
	use *nvml.GPUUse
}

// listPsLines returns a line for each process and GPU, sorted by GPU and PID. Processes without a
// GPU come last.
func listPsLines(list ps.Listing) []psLine {
	var lines []psLine
	for i := range list.Processes {
		p := &list.Processes[i]
		for j := range p.GPUs {
			lines = append(lines, psLine{p, &p.GPUs[j]})
		}
	}
	slices.SortStableFunc(lines, func(a, b psLine) int { return a.use.Index - b.use.Index })
	for i := range list.Processes {
		if p := &list.Processes[i]; len(p.GPUs) == 0 {
			lines = append(lines, psLine{p, nil})
		}
	}
	return lines
}

// printPsTable prints the list as a table and cuts its lines at width characters; width 0 is no
// limit. It prints nothing for an empty list.
func printPsTable(out io.Writer, list ps.Listing, now time.Time, width int) error {
	if len(list.Processes) == 0 {
		return nil
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PID\tUSER\tCOMMAND\tGPU\tMEMORY\tSM%\tRANK\tJOB\tCONTAINER\tSINCE\tCOMMAND LINE")
	for _, l := range listPsLines(list) {
		fmt.Fprintln(w, strings.Join(l.formatCells(now), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, " \n")
		if runes := []rune(line); width > 0 && len(runes) > width {
			line = string(runes[:width])
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// formatCells returns the cells of the table line, "-" for unknown values. now is the time for the
// age.
func (l psLine) formatCells(now time.Time) []string {
	gpu, memory, sm, rank, container, since := "", "", "", "", "", ""
	if l.use != nil {
		gpu = strconv.Itoa(l.use.Index)
		sm = formatNumber(l.use.SMPercent)
		if bytes := l.use.MemoryBytes; bytes != nil {
			memory = units.FormatBytes(*bytes)
		}
	}
	if rank = formatNumber(l.Rank); rank != "" && l.WorldSize != nil {
		rank += "/" + formatNumber(l.WorldSize)
	}
	container = l.ContainerID[:min(len(l.ContainerID), 12)]
	if l.StartedUnixNs != 0 {
		since = formatAge(now.Sub(time.Unix(0, l.StartedUnixNs)))
	}
	user := l.User
	if user == "" {
		user = formatNumber(l.UID)
	}
	cells := []string{
		strconv.Itoa(l.Pid),
		user,
		l.Command,
		gpu,
		memory,
		sm,
		rank,
		l.Job,
		container,
		since,
		strings.Join(l.CommandLine, " "),
	}
	for i, cell := range cells {
		if cells[i] = strings.Map(message.Printable, cell); cell == "" {
			cells[i] = "-"
		}
	}
	return cells
}

// formatNumber formats a number, "" for an unknown one (nil).
func formatNumber(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// formatAge formats a duration in its two largest units: 2d3h, 3h12m, 5m10s, 12s.
func formatAge(d time.Duration) string {
	seconds := max(0, int64(d/time.Second))
	units := []struct {
		seconds int64
		name    string
	}{{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}}
	for i, u := range units[:3] {
		if seconds >= u.seconds {
			next := units[i+1]
			return fmt.Sprintf("%d%s%d%s", seconds/u.seconds, u.name, seconds%u.seconds/next.seconds, next.name)
		}
	}
	return fmt.Sprintf("%ds", seconds)
}

// printPsJSON prints the list as one JSON object: the processes, the number of processes that
// gpurec could not read, and the notes of standard error.
func printPsJSON(out io.Writer, list ps.Listing, notes []string) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Processes   []ps.Process `json:"processes"`
		Denied      int          `json:"denied"`
		NotLookedAt int          `json:"not_looked_at"` // the earlier name of denied
		Notes       []string     `json:"notes"`
	}{append([]ps.Process{}, list.Processes...), list.Denied, list.Denied, append([]string{}, notes...)})
}

// psCSVColumns are the column names of the CSV output.
var psCSVColumns = []string{
	"pid",
	"user",
	"uid",
	"command",
	"gpu_index",
	"gpu_uuid",
	"gpu_name",
	"memory_bytes",
	"sm_percent",
	"rank",
	"world_size",
	"local_rank",
	"job",
	"container_id",
	"cgroup",
	"started_unix_ns",
	"command_line",
}

// printPsCSV prints the list as CSV: a line for each process and GPU, with empty unknown values.
func printPsCSV(out io.Writer, list ps.Listing) error {
	w := csv.NewWriter(out)
	if err := w.Write(psCSVColumns); err != nil {
		return err
	}
	for _, l := range listPsLines(list) {
		use, index, memory, started := nvml.GPUUse{}, "", "", ""
		if l.use != nil {
			use, index = *l.use, strconv.Itoa(l.use.Index)
		}
		if use.MemoryBytes != nil {
			memory = strconv.FormatInt(*use.MemoryBytes, 10)
		}
		if l.StartedUnixNs != 0 {
			started = strconv.FormatInt(l.StartedUnixNs, 10)
		}
		if err := w.Write([]string{
			strconv.Itoa(l.Pid),
			escapeCSVText(l.User),
			formatNumber(l.UID),
			escapeCSVText(l.Command),
			index,
			use.UUID,
			use.Name,
			memory,
			formatNumber(
				use.SMPercent,
			),
			formatNumber(l.Rank),
			formatNumber(l.WorldSize),
			formatNumber(l.LocalRank),
			escapeCSVText(l.Job),
			l.ContainerID,
			escapeCSVText(l.Cgroup),
			started,
			escapeCSVText(strings.Join(l.CommandLine, " ")),
		}); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// escapeCSVText returns a text for a CSV cell: valid UTF-8, with a leading quote if a spreadsheet
// would evaluate the text as a formula.
func escapeCSVText(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
