//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/internal/testclass"
)

// servedFolder returns a folder with a recording that has problems.
func servedFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	recording := rulecases.TroubledRecording(t)
	recording.Path = filepath.Join(folder, "run.parquet")
	recording.WriteAndOpen()
	return folder
}

// TestMCPOfficialClient checks that the client of the protocol's official SDK for node can use each
// tool of the server.
func TestMCPOfficialClient(t *testing.T) {
	testclass.Unit(t)
	sdk := viewers.ToolPath(t, "mcp", "node_modules", "@modelcontextprotocol", "sdk")
	call := func(name string, arguments map[string]any) map[string]any {
		return map[string]any{"name": name, "arguments": arguments}
	}
	calls := []map[string]any{
		call("list_recordings", map[string]any{}),
		call("digest", map[string]any{"recording": "run.parquet"}),
		call("report", map[string]any{"recording": "run.parquet", "report": "leaks", "format": "json"}),
		call("explain", map[string]any{"report": "leaks", "key": "live_bytes"}),
		call("digest", map[string]any{"recording": "../run.parquet"}),
		call("digest", map[string]any{}),
		call("no_such_tool", map[string]any{}),
	}
	lines := viewers.RunNode(t, analyzetest.RepositoryPath(t, "scripts", "mcp_client.mjs"), sdk,
		viewers.EncodeJSON(t, calls), lookGpurec(t), "mcp", "--dir", servedFolder(t))
	if len(lines) != 2+len(calls) {
		t.Fatalf("%d lines: %s", len(lines), lines)
	}
	for i, want := range []string{
		`"name":"gpurec"`, `"name":"list_recordings"`, `"structuredContent":{"incomplete":false,"left_out":0,"recordings":[{"duration":"1m0s"`,
		"growing-site", `growing`, "live_bytes", "outside of the folder", "recording", "unknown tool",
	} {
		line := string(lines[i])
		isWrong := strings.Contains(line, `"isError":true`) || strings.Contains(line, `"refused"`)
		if !strings.Contains(line, want) || isWrong != (i >= 6) {
			t.Errorf("line %d has no %q, or is an error: %s", i, want, line)
		}
	}
}

// TestMCPProcess checks that the server as a process has no socket, opens no file outside of its
// folder but those of a Go program, and ends with its input.
func TestMCPProcess(t *testing.T) {
	testclass.Unit(t)
	folder := servedFolder(t)
	cmd := exec.Command(lookGpurec(t), "mcp", "--dir", folder)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	request := func(text string) (answer struct {
		Result struct{ IsError bool }
		Error  any
	},
	) {
		t.Helper()
		_, err := io.WriteString(in, text+"\n")
		must(t, err)
		if !lines.Scan() {
			t.Fatalf("no answer to %s: %v", text, lines.Err())
		}
		must(t, json.Unmarshal(lines.Bytes(), &answer))
		if answer.Error != nil || answer.Result.IsError {
			t.Errorf("%s: %s", text, lines.Bytes())
		}
		return answer
	}
	request(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	must(t, err)
	for i, tool := range []string{
		`"list_recordings","arguments":{}`, `"digest","arguments":{"recording":"run.parquet"}`,
		`"report","arguments":{"recording":"run.parquet","report":"summary"}`,
	} {
		request(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%s}}`, i+2, tool))
	}
	checkOpenFiles(t, cmd.Process.Pid, folder)
	must(t, in.Close())
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// checkOpenFiles checks the descriptors that a server opened. It has inherited others from this process.
func checkOpenFiles(t *testing.T, pid int, folder string) {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(fds)
	must(t, err)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(fds, e.Name()))
		must(t, err)
		if own, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && own == target {
			continue
		}
		isFile := strings.HasPrefix(target, "/") && target != "/dev/null" &&
			!strings.HasPrefix(target, "/sys/fs/cgroup/")
		if strings.HasPrefix(target, "socket:") || isFile && target != folder && e.Name() != "2" {
			t.Errorf("descriptor %s is %s", e.Name(), target)
		}
	}
}

// TestMCPUsage checks that wrong command lines of mcp are usage errors.
func TestMCPUsage(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct{ args, stderr string }{
		{"", "--dir is missing"},
		{"--dir /", "--dir / is the whole system"},
		{"--dir . --max-chars 10", "--max-chars must be at least 1000"},
		{"--dir /no/such/folder", "--dir: "},
		{"--dir . extra", "unknown command"},
	} {
		cmd := exec.Command(lookGpurec(t), append([]string{"mcp"}, strings.Fields(c.args)...)...)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.stderr) || !strings.Contains(string(out), "hint: ") {
			t.Errorf("%q: %v, %s", c.args, err, out)
		}
	}
}
