//go:build linux

package pollfd

import (
	"os"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// open returns a Waiter for the reading end of a pipe, and the other end.
func open(t *testing.T) (*Waiter, *os.File) {
	t.Helper()
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(int(reading.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		reading.Close()
		writing.Close()
	})
	return w, writing
}

// TestEventWhileReading has an event after the start of read, which must end the wait.
func TestEventWhileReading(t *testing.T) {
	testclass.Unit(t)
	w, writing := open(t)
	reads := 0
	if !w.Wait(time.Time{}, func() {
		reads++
		if _, err := writing.Write([]byte{1}); err != nil {
			t.Error(err)
		}
	}) || reads != 1 {
		t.Errorf("%d reads", reads)
	}
}

// TestDeadline waits without an event, also after the deadline.
func TestDeadline(t *testing.T) {
	testclass.Unit(t)
	w, _ := open(t)
	for _, limit := range []time.Duration{10 * time.Millisecond, -time.Second} {
		reads := 0
		if !w.Wait(time.Now().Add(limit), func() { reads++ }) || reads != 1 {
			t.Errorf("a limit of %v: %d reads", limit, reads)
		}
	}
}

// TestCloseEndsWait closes a Waiter during a wait.
func TestCloseEndsWait(t *testing.T) {
	testclass.Unit(t)
	w, _ := open(t)
	if w.Wait(time.Time{}, func() { go w.Close() }) {
		t.Error("a closed Waiter has an event")
	}
}

// TestFileWithoutEvents gets an error for a file that the kernel does not poll.
func TestFileWithoutEvents(t *testing.T) {
	testclass.Unit(t)
	file, err := os.CreateTemp(t.TempDir(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if w, err := New(int(file.Fd())); err == nil {
		w.Close()
		t.Error("a regular file has events")
	}
}
