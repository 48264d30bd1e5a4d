//go:build linux

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is the timeout for every awaited state. It is long because the machine may be busy.
const patience = time.Minute

// waitFor waits until reached returns true. It fails the test after patience; state describes the
// awaited state.
func waitFor(t testing.TB, state string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout after %v, waiting until %s", patience, state)
		}
	}
}

// waitForFile waits until a file exists.
func waitForFile(t testing.TB, path string) {
	t.Helper()
	waitFor(t, path+" exists", func() bool { _, err := os.Stat(path); return err == nil })
}

// waitForCalls waits until the program has written calls more lines to its simcuda ledger.
func waitForCalls(t testing.TB, ledger string, calls int) {
	t.Helper()
	file, err := os.Open(ledger)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64<<10)
	waitFor(t, "the program makes more calls", func() bool {
		for calls > 0 {
			n, err := file.Read(buffer)
			calls -= bytes.Count(buffer[:n], []byte{'\n'})
			if errors.Is(err, io.EOF) {
				return calls <= 0
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
}

// messages collects the output of a program. It is safe to read while the program runs.
type messages struct {
	mu   sync.Mutex
	text strings.Builder
}

func (m *messages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.Write(b)
}

func (m *messages) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

// has reports whether the output contains all words.
func (m *messages) has(words ...string) bool {
	text := m.String()
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
