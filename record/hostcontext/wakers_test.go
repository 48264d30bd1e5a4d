//go:build linux

package hostcontext

import (
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
)

// TestWakers compares the wakers of waits with those of the program.
func TestWakers(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for _, c := range []struct {
		mode, endedBy, call string
		waker               int // index of the thread that ends the waits of the first one; -1: none
		isCut               bool
	}{
		{"chain", format.EndedByThread, "futex", 1, false},
		{"signals", format.EndedByThread, "futex", 1, true},
		{"timeouts", format.EndedByThread, "futex", 1, true},
		{"loopback", format.EndedBySender, "sendto", 1, false},
		{"sleep", format.EndedByInterrupt, "", -1, false},
	} {
		t.Run(c.mode, func(t *testing.T) {
			got, p := recordWakers(t, c.mode)
			waker := int32(0)
			if c.waker >= 0 {
				waker = int32(p.threads[c.waker])
			}
			right, cut := 0, 0
			all := got.ofKind(format.KindWait, p.threads[0])
			for _, w := range p.waits {
				parts := inside(all, w[0], w[1])
				parts = slices.DeleteFunc(parts, func(r format.Row) bool {
					return r.Name == format.StateRunnable || r.StartNs+r.DurNs < w[0] // of the wait before
				})
				if len(parts) == 0 {
					continue
				}
				last := parts[len(parts)-1]
				fact := factOf(t, &last)
				if fact.EndedBy == c.endedBy && last.WakerTid == waker && fact.WakerCall == c.call {
					right++
				}
				isWhole := func(r format.Row) bool { return r.Flags != format.FlagContinues }
				if len(parts) > 1 && !slices.ContainsFunc(parts[1:], isWhole) {
					cut++
				}
			}
			if right < len(p.waits)*9/10 {
				t.Errorf("%d of %d waits have the right waker", right, len(p.waits))
			}
			if c.isCut && cut < len(p.waits)*9/10 || !c.isCut && cut > 0 {
				t.Errorf("%d of %d waits continue after a cut", cut, len(p.waits))
			}
			checkWatchedWakers(t, got, p, c.mode)
		})
	}
}

// checkWatchedWakers checks that a thread that ends waits is watched after a while, and others are not.
func checkWatchedWakers(t *testing.T, got *rows, p *program, mode string) {
	t.Helper()
	second, third := got.ofKind(format.KindWait, p.threads[1]), got.ofKind(format.KindWait, p.threads[2])
	least := len(p.waits) / 2
	switch mode {
	case "chain":
		ends := 0
		for _, row := range second {
			if int(row.WakerTid) == p.threads[2] {
				ends++
			}
		}
		if ends < least || len(third) < least {
			t.Errorf("the third thread ended %d waits of the second one, and has %d rows", ends, len(third))
		}
	case "sleep":
		if len(second)+len(third) > 0 {
			t.Errorf("%d and %d rows of threads that end no wait", len(second), len(third))
		}
	default:
		if len(second) < least || len(third) > 0 {
			t.Errorf("%d rows of the waker, %d of another thread", len(second), len(third))
		}
	}
	for _, row := range second {
		if fact := factOf(
			t,
			&row,
		); fact.EndedBy == "" && row.Name != format.StateRunnable &&
			row.Flags != format.FlagOpen {
			t.Errorf("a wait of a waker has no end: %+v", row)
		}
	}
}

// recordWakers records the first thread of the program wakers.
func recordWakers(t *testing.T, mode string) (*rows, *program) {
	t.Helper()
	p := startProgramOf(t, "wakers.c", 3, mode, "40")
	p.threads, p.tids = p.tids, p.tids[:1]
	return recordWhile(t, ModeAuto, p, p.run), p
}

// factOf returns the facts of a wait.
func factOf(t *testing.T, row *format.Row) (fact format.WaitFact) {
	t.Helper()
	if row.Message != "" {
		if err := json.Unmarshal([]byte(row.Message), &fact); err != nil {
			t.Fatal(err)
		}
	}
	return fact
}

// TestTooManyWakings checks that wake-ups are not recorded any more after they cost too much, and that a sentence says
// so. The limit is so low that any machine exceeds it.
func TestTooManyWakings(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	accounts, err := switches.Open(minWait)
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	defer accounts.Close()
	var notes []string
	w := newWakers(accounts, nil, func(text string) { notes = append(notes, text) })
	w.maxShare = 1e-9
	for range enoughTooMany + 1 {
		c, err := accounts.Counters()
		if err != nil {
			t.Fatal(err)
		}
		w.limit(&c)
		wakeUp(4000)
	}
	if w.isOn || len(notes) != 1 || !strings.Contains(notes[0], "who ended a wait was not recorded") {
		t.Errorf("on %v, notes %q", w.isOn, notes)
	}
	before, err := accounts.Counters()
	if err != nil {
		t.Fatal(err)
	}
	wakeUp(4000)
	after, err := accounts.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if before.Wakings == 0 || after.Wakings != before.Wakings {
		t.Errorf("%d wake-ups before, %d after", before.Wakings, after.Wakings)
	}
	w.pausedNs = 1 // the pause is over
	if w.limit(&after); !w.isOn {
		t.Error("wake-ups are not recorded again")
	}
}

// wakeUp lets two threads wake each other n times.
func wakeUp(n int) {
	there, back := make(chan struct{}), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		for range there {
			back <- struct{}{}
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range n {
		there <- struct{}{}
		<-back
	}
	close(there)
}

// TestWithoutWakings records waits where the kernel does not allow to record wake-ups: rows are as before, and a
// sentence says what is missing.
func TestWithoutWakings(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	before := startWakings
	startWakings = func(*switches.Accounts) error { return errors.New("no such event") }
	defer func() { startWakings = before }()
	got, p := recordWakers(t, "chain")
	waits := got.ofKind(format.KindWait, p.threads[0])
	if len(waits) < len(p.waits) {
		t.Errorf("%d waits, want %d", len(waits), len(p.waits))
	}
	for _, row := range waits {
		if row.WakerTid != 0 || factOf(t, &row).EndedBy != "" {
			t.Errorf("a wait has an end: %+v", row)
		}
	}
	want := []string{"who ended a wait is not recorded: no such event"}
	if !slices.Equal(got.fact.Missing, want) {
		t.Errorf("missing %q, want %q", got.fact.Missing, want)
	}
}
