package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/gpurec/gpurec/internal/testclass"
)

// write writes a recording to a file in a folder.
func write(recording *analyzetest.TestRecording, folder, name string) {
	recording.Path = filepath.Join(folder, name)
	recording.WriteAndOpen()
}

// recordings returns a folder with recordings: one with problems, one of another kind, and one with hostile names.
func recordings(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "jobs"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(rulecases.TroubledRecording(t), folder, "troubled.parquet")
	write(analyzetest.TrainingRecording(t), folder, filepath.Join("jobs", "training.parquet"))
	write(analyzetest.HostileRecording(t), folder, "hostile.parquet")
	return folder
}

// tool is a tool as tools/list describes it.
type tool struct {
	Name, Title, Description string
	InputSchema              object `json:"inputSchema"`
	OutputSchema             object `json:"outputSchema"`
	Annotations              object
}

// listTools returns the tools of a server.
func (c *client) listTools() []tool {
	c.t.Helper()
	var list struct{ Tools []tool }
	c.decode(c.request("tools/list", object{}), &list)
	return list.Tools
}

// TestHandshake checks that the handshake names the server and its only capability, and each tool
// promises to only read.
func TestHandshake(t *testing.T) {
	testclass.Unit(t)
	c := connect(t, t.TempDir(), Options{Version: "v1.2.3"})
	if m := c.request("tools/list", object{}); m.Error == nil {
		t.Error("tools before the handshake")
	}
	result := c.initialize()
	server, _ := result["serverInfo"].(object)
	capabilities, _ := result["capabilities"].(object)
	if result["protocolVersion"] != "2025-06-18" || server["name"] != "gpurec" || server["version"] != "v1.2.3" ||
		len(
			capabilities,
		) != 1 || capabilities["tools"] == nil || !strings.Contains(fmt.Sprint(result["instructions"]), "data") {
		t.Errorf("%v", result)
	}
	var names []string
	for _, tool := range c.listTools() {
		names = append(names, tool.Name)
		if tool.Annotations["readOnlyHint"] != true || tool.Annotations["destructiveHint"] != false ||
			tool.Annotations["openWorldHint"] != false || tool.Description == "" || tool.InputSchema["type"] != "object" {
			t.Errorf("%+v", tool)
		}
	}
	slices.Sort(names)
	if want := []string{"digest", "explain", "list_recordings", "report"}; !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
	if m := c.request("ping", object{}); m.Error != nil {
		t.Errorf("ping: %+v", m.Error)
	}
	for _, method := range []string{"resources/list", "prompts/list", "no/such"} {
		if m := c.request(method, object{}); method == "no/such" && m.Error == nil {
			t.Errorf("%s has a result: %s", method, m.Result)
		}
	}
	if m := c.request("tools/call", object{"name": "shell", "arguments": object{}}); m.Error == nil {
		t.Error("an unknown tool has a result")
	}
	c.in.Close()
	if err := <-c.done; err != nil {
		t.Errorf("end of the input: %v", err)
	}
}

// TestTools checks that each tool works with each report, in both formats, within its limit.
func TestTools(t *testing.T) {
	testclass.Unit(t)
	c := connect(t, recordings(t), Options{})
	c.initialize()
	for _, name := range []string{"troubled.parquet", "jobs/training.parquet", "hostile.parquet"} {
		for _, format := range []string{"", "md", "json"} {
			a := object{"recording": name}
			if format != "" {
				a["format"] = format
			}
			checkAnswer(t, c.mustCall("digest", a), format, digest.DefaultMaxChars)
			for _, r := range analyze.Reports {
				a["report"] = r.Name
				text := c.mustCall("report", a)
				checkAnswer(t, text, format, digest.DefaultMaxChars)
				if !strings.Contains(text, dataNote) {
					t.Errorf("%s of %s does not say that its texts are data: %s", r.Name, name, text)
				}
			}
		}
	}
	for _, r := range analyze.Reports {
		checkAnswer(t, c.mustCall("explain", object{"report": r.Name}), "md", digest.DefaultMaxChars)
	}
	if text := c.mustCall(
		"explain",
		object{"report": "leaks", "key": "live_bytes"},
	); !strings.Contains(
		text,
		"live_bytes",
	) ||
		strings.Contains(text, "freed_pct") {
		t.Error(text)
	}
}

// checkAnswer checks the length, the characters and the format of an answer.
func checkAnswer(t *testing.T, text, format string, maxChars int) {
	t.Helper()
	if n := utf8.RuneCountInString(text); n > maxChars || n < 20 {
		t.Errorf("%d characters, at most %d", n, maxChars)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("character %q in %s", text[i:], text)
	}
	if format == "json" && !json.Valid([]byte(text)) {
		t.Errorf("no JSON: %s", text)
	}
}

// TestReportOptions checks that windows, filters, order and stacks of a report work as on the command
// line.
func TestReportOptions(t *testing.T) {
	testclass.Unit(t)
	c := connect(t, recordings(t), Options{})
	c.initialize()
	report := func(a object) string {
		a["recording"] = "troubled.parquet"
		a["format"] = "json"
		return c.mustCall("report", a)
	}
	rows := func(text, table string) int {
		var content map[string]json.RawMessage
		var list []object
		if err := json.Unmarshal([]byte(text), &content); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(content[table], &list); err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := rows(report(object{"report": "leaks", "top": 1}), "leaks"); n != 1 {
		t.Errorf("%d rows with top 1", n)
	}
	whole, part := report(object{"report": "summary"}), report(object{"report": "summary", "from": "10s", "to": "20s"})
	if !strings.Contains(whole, `"dur_ns": 60000000000`) || !strings.Contains(part, `"dur_ns": 10000000000`) {
		t.Errorf("window: %.300s, %.300s", whole, part)
	}
	if n := rows(report(object{"report": "kernels", "kernel": "^nothing$"}), "kernels"); n != 0 {
		t.Errorf("%d kernels", n)
	}
	if n := rows(report(object{"report": "leaks", "pids": []int{7}}), "leaks"); n != 0 {
		t.Errorf("%d leaks of another process", n)
	}
	if n := rows(
		report(object{"report": "leaks", "group_by": "function", "sort": "allocs", "min_bytes": 1 << 30}),
		"leaks",
	); n > 3 {
		t.Errorf("%d leaks of large blocks", n)
	}
	if text := report(object{"report": "leaks", "stacks": true}); !strings.Contains(text, `"func": "train_step"`) {
		t.Errorf("no stack: %s", text)
	}
	if text := report(object{"report": "leaks"}); strings.Contains(text, `"func": "train_step"`) {
		t.Errorf("a stack: %s", text)
	}
	text := c.mustCall("report", object{"recording": "troubled.parquet", "report": "leaks", "stacks": true})
	if !strings.Contains(text, "### stack of leaks, row 1") {
		t.Errorf("no stack in Markdown: %s", text)
	}
	text = c.mustCall("digest", object{"recording": "troubled.parquet", "from": "1s", "pids": []int{42}})
	if !strings.Contains(text, "`gpurec analyze leaks --from 1s --pid 42 troubled.parquet`") {
		t.Errorf("commands lack the filter: %s", text)
	}
}

// TestWrongArguments checks that wrong arguments are errors of the tool, whose texts help, and the
// server continues.
func TestWrongArguments(t *testing.T) {
	testclass.Unit(t)
	c := connect(t, recordings(t), Options{})
	c.initialize()
	const name = "troubled.parquet"
	for _, wrong := range []struct {
		tool      string
		arguments any
		want      string
	}{
		{"digest", object{}, "recording"},
		{"digest", object{"recording": 7}, "recording"},
		{"digest", []any{name}, ""},
		{"digest", object{"recording": name, "format": "html"}, "format"},
		{"digest", object{"recording": name, "max_chars": 10}, "max_chars"},
		{"digest", object{"recording": name, "colour": "red"}, "colour"},
		{"digest", object{"recording": name, "from": "soon"}, "from"},
		{"digest", object{"recording": name, "from": "20s", "to": "10s"}, "from 20s is after to 10s"},
		{"digest", object{"recording": name, "pids": []any{"all"}}, "pids"},
		{"digest", object{"recording": name, "pids": []any{1 << 40}}, ""},
		{"report", object{"recording": name}, "report"},
		{"report", object{"recording": name, "report": "sql"}, "report"},
		{"report", object{"recording": name, "report": "leaks", "top": 0}, "top"},
		{"report", object{"recording": name, "report": "leaks", "top": 5000}, "top"},
		{"report", object{"recording": name, "report": "leaks", "sort": "colour"}, "use one of verdict"},
		{"report", object{"recording": name, "report": "leaks", "group_by": "colour"}, "use one of"},
		{"report", object{"recording": name, "report": "leaks", "streams": []any{"first"}}, "streams"},
		{"report", object{"recording": name, "report": "kernels", "kernel": "("}, "kernel"},
		{"report", object{"recording": name, "report": "kernels", "kernel": strings.Repeat("a", 501)}, "at most 500"},
		{"explain", object{}, "report"},
		{"explain", object{"report": "no"}, "report"},
		{"list_recordings", object{"folder": "absent"}, "absent"},
		{"list_recordings", object{"folder": ".."}, "outside"},
		{"list_recordings", object{"folder": "/"}, "outside"},
		{"list_recordings", object{"folder": 1}, "folder"},
	} {
		text := c.mustFail(wrong.tool, wrong.arguments)
		if !strings.Contains(text, wrong.want) || utf8.RuneCountInString(text) > 2*maxErrorChars {
			t.Errorf("%s %v: %s", wrong.tool, wrong.arguments, text)
		}
	}
	c.mustCall("digest", object{"recording": name})
}

// TestLimits checks that answers keep the limits of the call and of the server, and say what they
// leave out.
func TestLimits(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	recording := analyzetest.NewTestRecording(t)
	for site := range int64(300) {
		id := int32(site + 1)
		recording.AddStack(id, fmt.Sprintf("function_%d", site))
		row := recording.AddAlloc(site*analyzetest.Ms, 1000, 0x7000+site*analyzetest.Mib, analyzetest.Mib)
		analyzetest.SetStackAndSite(
			row,
			id,
			fmt.Sprintf("function_%d (app.cc:%d) %s", site, site, strings.Repeat("long ", 100)),
		)
	}
	write(recording, folder, "run.parquet")
	for i := range 150 {
		if err := os.Link(recording.Path, filepath.Join(folder, fmt.Sprintf("copy-%03d.parquet", i))); err != nil {
			t.Fatal(err)
		}
	}
	c := connect(t, folder, Options{MaxChars: 8000})
	c.initialize()
	for _, limit := range []int{1000, 2000, 8000, 100_000} {
		for _, format := range []string{"md", "json"} {
			a := object{
				"recording": "run.parquet",
				"report":    "leaks",
				"top":       1000,
				"max_chars": limit,
				"format":    format,
			}
			text, result := c.call("report", a)
			if result.IsError { // JSON of one row does not fit 1,000 characters
				if limit > 2000 || !strings.Contains(text, "raise max_chars") {
					t.Errorf("%v: %s", a, text)
				}
				continue
			}
			checkAnswer(t, text, format, min(limit, 8000))
			if !strings.Contains(text, "tables are cut to ") {
				t.Errorf("%v: the answer does not say that it was cut: %s", a, text)
			}
		}
		text := c.mustCall("digest", object{"recording": "run.parquet", "max_chars": limit})
		checkAnswer(t, text, "md", min(limit, 8000))
	}
	_, result := c.call("list_recordings", object{})
	var list listing
	if err := json.Unmarshal(result.Structured, &list); err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, string(result.Structured), "json", 8000)
	if n := len(list.Recordings); n == 0 || n+list.LeftOut != 151 {
		t.Errorf("%d recordings, %d left out", n, list.LeftOut)
	}
	checkAnswer(t, c.mustCall("explain", object{"report": "rules"}), "md", 8000)
}

// TestListRecordings checks that the listing has the recordings of all folders, and matches the schema
// that the server promises.
func TestListRecordings(t *testing.T) {
	testclass.Unit(t)
	folder := recordings(t)
	for name, content := range map[string]string{"notes.txt": "x", "bad.parquet": "no Parquet", "jobs/empty.parquet": ""} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(folder, "live.parquet.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(analyzetest.NewTestRecording(t), folder, "a`b\n.parquet")
	c := connect(t, folder, Options{})
	c.initialize()
	tools := c.listTools()
	i := slices.IndexFunc(tools, func(tool tool) bool { return tool.Name == "list_recordings" })
	_, result := c.call("list_recordings", object{})
	var content any
	if err := json.Unmarshal(result.Structured, &content); err != nil {
		t.Fatal(err)
	}
	checkSchema(t, "listing", tools[i].OutputSchema, content)
	var list listing
	if err := json.Unmarshal(result.Structured, &list); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]*listedRecording)
	for _, r := range list.Recordings {
		got[r.Name] = r
	}
	if len(got) != 6 || list.Skipped != 1 || list.LeftOut != 0 || list.Incomplete {
		t.Errorf("%s", result.Structured)
	}
	training := got["jobs/training.parquet"]
	if training == nil || training.Duration != "1m0s" || training.Host != "box" || training.SizeBytes < 1000 {
		t.Errorf("%+v", training)
	}
	for name, want := range map[string]string{
		"bad.parquet": "is not a Parquet file", "jobs/empty.parquet": "is empty", "live.parquet.d": "holds no finished segment",
	} {
		if got[name] == nil || !strings.Contains(got[name].Error, want) {
			t.Errorf("%s: %+v", name, got[name])
		}
	}
	_, result = c.call("list_recordings", object{"folder": "jobs"})
	if text := string(
		result.Structured,
	); !strings.Contains(text, "jobs/training.parquet") ||
		strings.Contains(text, "troubled") {
		t.Error(text)
	}
}

// checkSchema checks a value against the types, the required keys and the items of a JSON schema.
func checkSchema(t *testing.T, at string, schema object, v any) {
	t.Helper()
	types, ok := schema["type"].([]any)
	if !ok {
		types = []any{schema["type"]}
	}
	is := map[string]bool{}
	switch v := v.(type) {
	case nil:
		is["null"] = true
	case string:
		is["string"] = true
	case bool:
		is["boolean"] = true
	case float64:
		is["number"], is["integer"] = true, v == float64(int64(v))
	case []any:
		is["array"] = true
		items, _ := schema["items"].(object)
		for i, item := range v {
			checkSchema(t, fmt.Sprintf("%s[%d]", at, i), items, item)
		}
	case object:
		is["object"] = true
		properties, _ := schema["properties"].(object)
		required, _ := schema["required"].([]any)
		for _, key := range required {
			if _, ok := v[key.(string)]; !ok {
				t.Errorf("%s lacks %s", at, key)
			}
		}
		for key, item := range v {
			property, ok := properties[key].(object)
			if !ok {
				t.Errorf("%s has %s, which is not in the schema", at, key)
				continue
			}
			checkSchema(t, at+"."+key, property, item)
		}
	}
	if !slices.ContainsFunc(types, func(name any) bool { return is[fmt.Sprint(name)] }) {
		t.Errorf("%s is %v, the schema wants %v", at, v, types)
	}
}
