//go:build linux

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/nvml"
	"github.com/gpurec/gpurec/record/ps"
)

var psNow = time.Unix(1_790_000_000, 0)

// psList returns a list of three processes: one with all values known, one with all values unknown,
// and one with hostile names.
func psList() ps.Listing {
	ptr := func(n int) *int { return &n }
	bytes := int64(3 << 30)
	full := ps.Process{
		Pid:         4242,
		User:        "ada",
		UID:         ptr(1000),
		Command:     "python3",
		CommandLine: []string{"python3", "train.py"},
		GPUs: []nvml.GPUUse{
			{Index: 0, UUID: "GPU-a", Name: "NVIDIA H200", MemoryBytes: &bytes, SMPercent: ptr(0)},
			{Index: 1, UUID: "GPU-b", Name: "NVIDIA H200"},
		},
		ContainerID: strings.Repeat(
			"0123456789abcdef",
			4,
		),
		Cgroup:        "/docker/x",
		StartedUnixNs: psNow.Add(-195 * time.Minute).UnixNano(),
	}
	full.Rank, full.WorldSize, full.LocalRank, full.Job = ptr(3), ptr(8), ptr(1), "1234"
	second := ps.Process{Pid: 17, User: "bob", Command: "a.out", GPUs: full.GPUs[1:], StartedUnixNs: psNow.UnixNano()}
	second.Rank = ptr(0)
	return ps.Listing{Processes: []ps.Process{
		full, second,
		{Pid: 18, UID: ptr(77), Command: "=\x1b[31m\n\xff", CommandLine: []string{"<script>", "ü\t" + escapes}},
	}}
}

func TestPsTable(t *testing.T) {
	testclass.Unit(t)
	const want = `PID   USER  COMMAND   GPU  MEMORY   SM%  RANK  JOB   CONTAINER     SINCE  COMMAND LINE
4242  ada   python3   0    3.0 GiB  0    3/8   1234  0123456789ab  3h15m  python3 train.py
4242  ada   python3   1    -        -    3/8   1234  0123456789ab  3h15m  python3 train.py
17    bob   a.out     1    -        -    0     -     -             0s     -
18    77    =?[31m?` + "\ufffd" + `  -    -        -    -     -     -             -      <script> ü??]0;evil??[31m
`
	var got bytes.Buffer
	must(t, printPsTable(&got, psList(), psNow, 0))
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	got.Reset()
	must(t, printPsTable(&got, psList(), psNow, 20))
	for line := range strings.Lines(got.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 20 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	got.Reset()
	must(t, printPsTable(&got, ps.Listing{}, psNow, 0))
	if got.Len() != 0 {
		t.Errorf("the table of an empty list is %q", got.String())
	}
}

func TestPsCSV(t *testing.T) {
	testclass.Unit(t)
	var out bytes.Buffer
	must(t, printPsCSV(&out, psList()))
	lines, err := csv.NewReader(&out).ReadAll()
	must(t, err)
	id := strings.Repeat("0123456789abcdef", 4)
	want := [][]string{
		psCSVColumns,
		{
			"4242",
			"ada",
			"1000",
			"python3",
			"0",
			"GPU-a",
			"NVIDIA H200",
			"3221225472",
			"0",
			"3",
			"8",
			"1",
			"1234",
			id,
			"/docker/x",
			"1789988300000000000",
			"python3 train.py",
		},
		{
			"4242",
			"ada",
			"1000",
			"python3",
			"1",
			"GPU-b",
			"NVIDIA H200",
			"",
			"",
			"3",
			"8",
			"1",
			"1234",
			id,
			"/docker/x",
			"1789988300000000000",
			"python3 train.py",
		},
		{
			"17",
			"bob",
			"",
			"a.out",
			"1",
			"GPU-b",
			"NVIDIA H200",
			"",
			"",
			"0",
			"",
			"",
			"",
			"",
			"",
			"1790000000000000000",
			"",
		},
		{
			"18",
			"",
			"77",
			"'=\x1b[31m\n\ufffd",
			"",
			"",
			"",
			"",
			"",
			"",
			"",
			"",
			"",
			"",
			"",
			"",
			"<script> ü\t" + escapes,
		},
	}
	if fmt.Sprintf("%q", lines) != fmt.Sprintf("%q", want) {
		t.Errorf("got\n%q\nwant\n%q", lines, want)
	}
}

func TestPsJSON(t *testing.T) {
	testclass.Unit(t)
	list := psList()
	list.Denied = 2
	var out bytes.Buffer
	must(t, printPsJSON(&out, list, []string{"a note"}))
	if strings.ContainsFunc(strings.ReplaceAll(out.String(), "\n", ""), unicode.IsControl) {
		t.Errorf("the JSON has control characters: %q", out.String())
	}
	var got struct {
		Processes   []map[string]any
		Denied      *int `json:"denied"`
		NotLookedAt *int `json:"not_looked_at"`
		Notes       []string
	}
	must(t, json.Unmarshal(out.Bytes(), &got))
	if len(got.Processes) != 3 || *got.Denied != 2 || *got.NotLookedAt != 2 ||
		!slices.Equal(got.Notes, []string{"a note"}) ||
		got.Processes[0]["rank"] != 3.0 {
		t.Errorf("%+v", got)
	}
	out.Reset()
	must(t, printPsJSON(&out, ps.Listing{}, nil))
	const empty = "{\n  \"processes\": [],\n  \"denied\": 0,\n  \"not_looked_at\": 0,\n  \"notes\": []\n}\n"
	if out.String() != empty {
		t.Errorf("the JSON of an empty list is %s", out.String())
	}
}

func TestPsNotes(t *testing.T) {
	testclass.Unit(t)
	list := psList()
	if notes := describeMissingData(list); notes != nil {
		t.Errorf("%q", notes)
	}
	notes := describeMissingData(ps.Listing{
		Unseen:     1,
		Denied:     3,
		Unanswered: []int{7},
		NVMLErr:    errors.Join(errors.New("GPU 0 is lost"), errors.New("GPU 1 too")),
	})
	denied := "3 processes could not be read: permission denied"
	if os.Geteuid() != 0 {
		denied = "3 processes of other users could not be read; run sudo gpurec ps"
	}
	want := []string{
		"no process uses CUDA now",
		"GPU, memory and SM% are unknown or incomplete: GPU 0 is lost; GPU 1 too",
		"NVML lists 1 process missing from /proc",
		denied,
		"process 7 is not listed: reading /proc/7 timed out; run cat " +
			"/proc/7/status",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("got\n%q\nwant\n%q", notes, want)
	}
}

func TestAge(t *testing.T) {
	testclass.Unit(t)
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", 25 * time.Hour: "1d1h", 3*time.Hour + 59*time.Minute: "3h59m",
	} {
		if got := formatAge(d); got != want {
			t.Errorf("%v: %s", d, got)
		}
	}
}

// TestPsOfAHostileProcess runs gpurec ps with a process that has a command line of 1 TiB, and a
// name with terminal escape sequences.
func TestPsOfAHostileProcess(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	driver, err := os.ReadFile(filepath.Join(simcudaDir(), "libcuda.so.1"))
	if err != nil {
		testclass.Missing(t, "simcuda is not built: make simcuda")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "libcuda.so.1"), driver, 0o755))
	program := startHostile(t, nil, dir)
	program.mapFiles()
	pid := program.cmd.Process.Pid
	var stdout, stderr string
	var code int
	took := time.Hour
	for try := 0; try < 3 && took > 10*time.Second; try++ { // the machine may be busy
		begin := time.Now()
		stdout, stderr, code = runGpurec(t, "ps")
		took = min(took, time.Since(begin))
	}
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^%d .*$`, pid)).FindString(stdout)
	if code != message.ExitOK || !strings.Contains(line, " ?]0;e?<script> ") {
		t.Errorf("exit %d, %q, %.2000q", code, line, stderr)
	}
	if text := strings.ReplaceAll(
		stdout+stderr,
		"\n",
		"",
	); strings.ContainsFunc(
		text,
		func(r rune) bool { return !unicode.IsPrint(r) },
	) {
		t.Errorf("gpurec ps prints escape sequences of a process: %.2000q", text)
	}
	if len(line) > 40<<10 || took > 10*time.Second {
		t.Errorf("gpurec ps printed a line of %d bytes after %v", len(line), took)
	}
}

// TestRecordWithoutTargetOnATerminal checks that "gpurec record" without a target prints the
// processes that use CUDA, and a command to paste.
func TestRecordWithoutTargetOnATerminal(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	dir, env := simEnvironment(t)
	leak := startLeak(t, dir, env)
	master, slave := openTerminal(t)
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	cmd := exec.Command(gpurec, "record")
	cmd.Env, cmd.Stderr = env, slave
	must(t, cmd.Start())
	must(t, slave.Close())
	text := readTerminal(master) // reads until gpurec has exited
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != message.ExitUsage {
		t.Errorf("%v", err)
	}
	first := regexp.MustCompile(`(?m)^(\d+) `).FindStringSubmatch(text)
	if first == nil || !strings.HasPrefix(text, "PID ") ||
		!regexp.MustCompile(fmt.Sprintf(`(?m)^%d .* leak `, leak)).MatchString(text) {
		t.Fatalf("gpurec printed no table: %q", text)
	}
	for _, want := range []string{"error: nothing to record: use -p PID, --all or -- COMMAND", "hint: sudo gpurec " +
		"record -p " + first[1] + " -d 10s"} {
		if !strings.Contains(text, want) {
			t.Errorf("gpurec did not print %q: %q", want, text)
		}
	}
}

// startLeak starts a program that uses CUDA until the end of the test, and returns its PID.
func startLeak(t *testing.T, dir string, env []string) int {
	t.Helper()
	ready := filepath.Join(dir, "leak-ready")
	cmd := exec.Command(filepath.Join(dir, "simcuda/leak"), "--steps", "0", "--step-ms", "20", "--ready", ready)
	cmd.Env = env
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	waitForFile(t, ready)
	return cmd.Process.Pid
}

// openTerminal opens a pseudo-terminal of 200 columns.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { master.Close() })
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	must(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200}))
	return master, slave
}

// readTerminal returns all text written to the terminal. It returns when the writing side is
// closed.
func readTerminal(master *os.File) string {
	var text []byte
	buffer := make([]byte, 64<<10)
	for {
		n, err := master.Read(buffer)
		text = append(text, buffer[:n]...)
		if err != nil {
			return strings.ReplaceAll(
				string(text),
				"\r\n",
				"\n",
			) // EIO: the writing side is closed and all text is read
		}
	}
}
