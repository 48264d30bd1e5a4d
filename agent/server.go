//go:build linux

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
)

// maxRequestBytes bounds a request.
const maxRequestBytes = 64 << 10

// requestTimeout bounds reading a request and writing its answer.
const requestTimeout = 10 * time.Second

// server answers requests.
type server struct{ agent *Agent }

// listen creates the socket. The socket of an agent that was killed is replaced: the lock of the state folder shows
// that it does not run.
func listen(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(path, 0o660)
}

// serve answers requests until ctx is done.
func serve(ctx context.Context, listener net.Listener, a *Agent) {
	s := &server{a}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, s.status)
	mux.HandleFunc("GET "+pathMetrics, s.metrics)
	mux.HandleFunc("POST "+pathTrigger, s.trigger)
	h := &http.Server{Handler: mux, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout}
	go func() {
		<-ctx.Done()
		_ = h.Close()
	}()
	if err := h.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		a.opt.Log("the socket is closed: " + err.Error())
	}
}

func (s *server) status(w http.ResponseWriter, _ *http.Request) { answer(w, s.agent.status()) }

func (s *server) metrics(w http.ResponseWriter, _ *http.Request) { answer(w, s.agent.metrics()) }

// trigger answers with the trigger and its outcome.
func (s *server) trigger(w http.ResponseWriter, r *http.Request) {
	var q Request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		http.Error(w, "read request: "+err.Error(), http.StatusBadRequest)
		return
	}
	if q.Before < 0 || q.After < 0 {
		http.Error(w, "before_ns and after_ns must not be negative", http.StatusBadRequest)
		return
	}
	if q.Reason == "" {
		q.Reason = "requested"
	}
	t, err := s.agent.session.Trigger(record.TriggerRequest{
		At: q.At, Before: q.Before, After: q.After, Job: q.Job, Reason: q.Reason,
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	answer(w, t)
}

// answer writes a value as JSON. The client sees a broken answer if writing fails.
func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// status returns the state of the agent.
func (a *Agent) status() Status {
	p := a.session.Progress()
	st := Status{
		Since: a.began, Output: a.session.Output() + format.SegmentSuffix, Calls: p.Calls, Lost: p.Lost,
		RingBytes: p.FileBytes, Triggers: a.session.TriggerCounts(), Processes: []Process{},
	}
	for pid, name := range a.session.Processes() {
		st.Processes = append(st.Processes, Process{pid, name})
	}
	slices.SortFunc(st.Processes, func(x, y Process) int { return x.Pid - y.Pid })
	a.state.mu.Lock()
	st.EarlierRings = len(a.state.adopted)
	a.state.mu.Unlock()
	a.mu.Lock()
	st.Recent, st.Sealing, st.SealFailed = slices.Clone(a.recent), a.sealing, a.failed
	a.mu.Unlock()
	st.Captures, st.CaptureBytes = a.countCaptures()
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		st.MemoryBytes, st.CPUNs = usage.Maxrss<<10, usage.Utime.Nano()+usage.Stime.Nano()
	}
	return st
}

// countCaptures returns the number and the bytes of the sealed captures.
func (a *Agent) countCaptures() (count int, bytes int64) {
	all, err := format.ListCaptures(a.state.captures)
	if err != nil {
		return 0, 0
	}
	for _, c := range all {
		if c.State == format.CaptureSuffix {
			count++
			bytes += c.Bytes
		}
	}
	return count, bytes
}

// metrics returns the numbers of the agent.
func (a *Agent) metrics() Metrics {
	m := a.counters.take(a.session.Processes(), time.Now().UnixNano())
	p := a.session.Progress()
	m.StartNs, m.Calls, m.RingBytes = a.began.UnixNano(), p.Calls, p.FileBytes
	m.Captures, m.CaptureBytes = a.countCaptures()
	a.mu.Lock()
	defer a.mu.Unlock()
	m.Sealing, m.SealFailed = a.sealing, a.failed
	for key, n := range a.session.TriggerCountsByKind() {
		m.Triggers = append(m.Triggers, TriggerCount{key.Kind, key.Outcome, n, a.newest[key.Kind]})
	}
	slices.SortFunc(m.Triggers, func(x, y TriggerCount) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Outcome, y.Outcome))
	})
	return m
}
