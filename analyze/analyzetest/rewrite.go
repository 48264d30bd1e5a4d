package analyzetest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// Rewriting has the changes of RewriteRecording.
type Rewriting struct {
	// Host and BootID are those of the new recording, as if it were of another host. "": unchanged.
	Host, BootID string
	// ShiftNs is added to all times of rows and of the recording, as if the host's clock were ahead by it.
	ShiftNs int64
}

// RewriteRecording writes the recording at from to the file to, with changes. It leaves out rows of class progress. Of
// the times inside of messages, it shifts those of the ends of processes and communicators.
func RewriteRecording(t testing.TB, from, to string, edit Rewriting) {
	t.Helper()
	rec := OpenRecording(t, from)
	defer rec.Close()
	byClass := readAllRows(t, rec)
	w, err := format.Create(to, format.Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	for class, rows := range byClass {
		for i := range rows {
			shiftRow(&rows[i], edit.ShiftNs)
		}
		if err := w.Write(class, rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(rewrittenMeta(rec.Meta, edit)); err != nil {
		t.Fatal(err)
	}
}

func readAllRows(t testing.TB, rec *format.Recording) map[format.Class][]format.Row {
	byClass := make(map[format.Class][]format.Row)
	for class := format.ClassFact; class <= format.ClassBlock; class++ {
		if class == format.ClassProgress {
			continue
		}
		err := rec.Rows(func(r *format.Row) error {
			byClass[class] = append(byClass[class], *r)
			return nil
		}, class)
		if err != nil {
			t.Fatal(err)
		}
	}
	return byClass
}

// endTime matches the end of a process or a communicator in the message of its row.
var endTime = regexp.MustCompile(`"(exit_ns|end_ns)":[0-9]+`)

func shiftRow(r *format.Row, by int64) {
	if r.Kind == format.KindProcess || r.Kind == format.KindCommunicator {
		r.Message = endTime.ReplaceAllStringFunc(r.Message, func(text string) string {
			name, value, _ := strings.Cut(text, ":")
			at, err := strconv.ParseInt(value, 10, 64)
			if err != nil || at == 0 {
				return text
			}
			return fmt.Sprintf("%s:%d", name, at+by)
		})
	}
	if r.StartNs != 0 {
		r.StartNs += by
	}
	if r.ParentStartNs != 0 {
		r.ParentStartNs += by
	}
}

func rewrittenMeta(m format.Meta, edit Rewriting) format.Meta {
	if edit.Host != "" {
		m.Host, m.BootID = edit.Host, edit.BootID
	}
	m.StartNs += edit.ShiftNs
	m.EndNs += edit.ShiftNs
	m.ClockOffsetNs += edit.ShiftNs
	m.Progress = nil
	return m
}
