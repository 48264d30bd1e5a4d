package mcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestBadRecordings checks that a recording that cannot be read is an error of the tool: the server
// continues.
func TestBadRecordings(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	write(rulecases.TroubledRecording(t), folder, "good.parquet")
	good, err := os.ReadFile(filepath.Join(folder, "good.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{
		"empty.parquet": nil, "text.parquet": []byte("PAR1 is not all"), "cut.parquet": good[:len(good)/2],
		"zeros.parquet": make([]byte, 4096), "tail.parquet": append([]byte("PAR1"), good[len(good)/2:]...),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		content := append([]byte(nil), good...)
		for range 1 + i*3 {
			content[random.IntN(len(content))] ^= byte(1 + random.IntN(255))
		}
		bad[fmt.Sprintf("flipped-%d.parquet", i)] = content
	}
	for name, content := range bad {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := connect(t, folder, Options{})
	c.initialize()
	failed := 0
	for name := range bad {
		for _, tool := range []string{"digest", "report"} {
			a := object{"recording": name}
			if tool == "report" {
				a["report"] = "summary"
			}
			text, result := c.call(tool, a)
			if result.IsError {
				failed++
			}
			if len(text) > 12_000*4 || !strings.HasPrefix(name, "flipped") && !result.IsError {
				t.Errorf("%s %s: %s", tool, name, text)
			}
		}
	}
	t.Logf("%d of %d calls failed", failed, 2*len(bad))
	c.mustCall("list_recordings", object{})
	c.mustCall("digest", object{"recording": "good.parquet"})
}

// TestConcurrentCalls checks that concurrent calls get the same answers as calls one after the other,
// and at most maxRunning reports run at once.
func TestConcurrentCalls(t *testing.T) {
	testclass.Unit(t)
	folder := recordings(t)
	c := connect(t, folder, Options{})
	c.initialize()
	type request struct {
		tool      string
		arguments object
	}
	var requests []request
	for _, name := range []string{"troubled.parquet", "jobs/training.parquet"} {
		requests = append(requests, request{"digest", object{"recording": name}})
		for _, report := range []string{"leaks", "hang", "rules", "errors", "steps"} {
			requests = append(
				requests,
				request{"report", object{"recording": name, "report": report, "format": "json"}},
			)
		}
	}
	want := make([]string, len(requests))
	for i, r := range requests {
		want[i] = c.mustCall(r.tool, r.arguments)
	}
	answers := make([]chan message, 2*len(requests))
	for i := range answers {
		r := requests[i%len(requests)]
		_, answers[i] = c.send("tools/call", object{"name": r.tool, "arguments": r.arguments})
	}
	for i, answer := range answers {
		var result toolResult
		c.decode(<-answer, &result)
		if len(result.Content) != 1 || result.Content[0].Text != want[i%len(want)] {
			t.Errorf("request %d: another answer than before: %+v", i, result)
		}
	}
}

// TestWorkers checks that workers run at most maxRunning functions, refuse calls if too many wait, and
// survive panics.
func TestWorkers(t *testing.T) {
	testclass.Unit(t)
	w := newWorkers()
	release, started := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for range maxRunning {
		wg.Go(func() {
			if text, err := w.do(context.Background(), func() (string, error) {
				started <- struct{}{}
				<-release
				return "done", nil
			}); text != "done" || err != nil {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
	for range maxRunning {
		<-started
	}
	ctx, cancel := context.WithCancel(context.Background())
	waiting := make(chan error)
	for range maxWaiting {
		go func() {
			_, err := w.do(ctx, func() (string, error) { t.Error("runs although it was canceled"); return "", nil })
			waiting <- err
		}()
	}
	for len(w.waiting) < cap(w.waiting) {
		select {
		case err := <-waiting:
			t.Fatal(err)
		default:
		}
	}
	if _, err := w.do(context.Background(), nil); !errors.Is(err, errBusy) {
		t.Errorf("one call too many: %v", err)
	}
	cancel()
	for range maxWaiting {
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	close(release)
	wg.Wait()
	if _, err := w.do(context.Background(), func() (string, error) { panic("at the disco") }); err == nil ||
		!strings.Contains(err.Error(), "at the disco") {
		t.Errorf("a panic: %v", err)
	}
	if text, err := w.do(
		context.Background(),
		func() (string, error) { return "again", nil },
	); text != "again" ||
		err != nil {
		t.Errorf("after a panic: %s, %v", text, err)
	}
}

// TestCancel checks that a call that is canceled while it waits gets an answer at once, and does not
// run.
func TestCancel(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	write(analyzetest.SteadyRecording(t), folder, "run.parquet")
	c := connect(t, folder, Options{})
	c.initialize()
	for range maxRunning {
		c.work.running <- struct{}{} // as if reports ran
	}
	for _, tool := range []string{"digest", "report", "list_recordings"} {
		a := object{"recording": "run.parquet", "report": "leaks"}
		switch tool {
		case "digest":
			delete(a, "report")
		case "list_recordings":
			a = object{}
		}
		id, answer := c.send("tools/call", object{"name": tool, "arguments": a})
		for len(c.work.waiting) == 0 {
			runtime.Gosched()
		}
		c.write(message{Method: "notifications/cancelled", Params: object{"requestId": id, "reason": "test"}})
		if m := <-answer; m.Error == nil && !strings.Contains(string(m.Result), "canceled") {
			t.Errorf("%s: %s", tool, m.Result)
		}
		for len(c.work.waiting) > 0 {
			runtime.Gosched()
		}
	}
	for range maxRunning {
		<-c.work.running
	}
	c.mustCall("digest", object{"recording": "run.parquet"})
}

// TestCancelRunning checks that a call that is canceled while it runs gets an answer at once. Its
// place is free when the function ends.
func TestCancelRunning(t *testing.T) {
	testclass.Unit(t)
	w := newWorkers()
	ctx, cancel := context.WithCancel(context.Background())
	started, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		_, err := w.do(ctx, func() (string, error) { close(started); <-release; return "late", nil })
		ended <- err
	}()
	<-started
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || len(w.running) != 1 {
		t.Errorf("%v, %d run", err, len(w.running))
	}
	close(release)
	for len(w.running) > 0 {
		runtime.Gosched()
	}
}

// TestCancelAtAnyMoment checks that calls that are canceled at any moment of their run are answered,
// and leave nothing behind.
func TestCancelAtAnyMoment(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	write(analyzetest.SteadyRecording(t), folder, "run.parquet")
	c := connect(t, folder, Options{})
	c.initialize()
	canceled := 0
	for i := range 30 {
		id, answer := c.send("tools/call", object{"name": "digest", "arguments": object{"recording": "run.parquet"}})
		for range i * 1000 {
			runtime.Gosched()
		}
		c.write(message{Method: "notifications/cancelled", Params: object{"requestId": id}})
		m := <-answer
		isCanceled := m.Error != nil || strings.Contains(string(m.Result), "canceled")
		if isCanceled {
			canceled++
		} else if !strings.Contains(string(m.Result), "Digest of") {
			t.Errorf("%s", m.Result)
		}
	}
	t.Logf("%d of 30 calls were canceled", canceled)
	for len(c.work.running)+len(c.work.waiting) > 0 {
		runtime.Gosched()
	}
	c.mustCall("digest", object{"recording": "run.parquet"})
}

// TestEndOfInput checks that when the input ends, the server ends too, and cancels what runs.
func TestEndOfInput(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	write(analyzetest.SteadyRecording(t), folder, "run.parquet")
	c := connect(t, folder, Options{})
	c.initialize()
	_, answer := c.send("tools/call", object{"name": "digest", "arguments": object{"recording": "run.parquet"}})
	c.in.Close()
	if err := <-c.done; err != nil {
		t.Error(err)
	}
	<-answer
}

// TestWrongMessages checks that lines that are no requests end the session with an error, or are
// answered, but do not crash the server.
func TestWrongMessages(t *testing.T) {
	testclass.Unit(t)
	for _, line := range []string{
		"no JSON", "{", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `[]`, `[1,2]`, `"text"`, "\x00\x01",
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		strings.Repeat("[", 100_000), `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 2*maxRequestBytes) + `"}`,
	} {
		c := connect(t, t.TempDir(), Options{})
		c.initialize()
		_, _ = c.in.Write([]byte(line + "\n"))
		c.in.Close()
		err := <-c.done
		t.Logf("%.40q: %v", line, err)
	}
}
