package agent

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// serveStatus answers each request with an empty status.
func serveStatus(listener net.Listener) {
	_ = http.Serve(
		listener,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, Status{Calls: 7}) }),
	)
}

func TestClientReadsStatus(t *testing.T) {
	testclass.Unit(t)
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	go serveStatus(listener)
	if s, err := ReadStatus(context.Background(), socket); err != nil || s.Calls != 7 {
		t.Error(s, err)
	}
	listener.Close()
	if _, err := ReadStatus(context.Background(), socket); err == nil {
		t.Error("an agent that has ended answers")
	}
}

func TestServerRefusesBadRequests(t *testing.T) {
	testclass.Unit(t)
	s := &server{&Agent{}}
	for body, want := range map[string]string{
		`{"at":"yesterday"}`:     "read request",
		`{"before":1}`:           "unknown field",
		`{"before_ns":-1}`:       "must not be negative",
		strings.Repeat("[", 1e5): "read request",
	} {
		w := newRecorder()
		request, err := http.NewRequest(http.MethodPost, pathTrigger, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		s.trigger(w, request)
		if w.status != http.StatusBadRequest || !strings.Contains(w.text.String(), want) {
			t.Errorf("%.40s: %d %s", body, w.status, w.text.String())
		}
	}
}

// recorder records an answer.
type recorder struct {
	header http.Header
	status int
	text   strings.Builder
}

func newRecorder() *recorder                       { return &recorder{header: make(http.Header)} }
func (r *recorder) Header() http.Header            { return r.header }
func (r *recorder) WriteHeader(status int)         { r.status = status }
func (r *recorder) Write(text []byte) (int, error) { return r.text.Write(text) }
