//go:build linux

package hoststack

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
)

// stackOf returns frames from "KIND FUNCTION [MODULE OR FILE]" texts, innermost first.
func stackOf(lines ...string) (frames []format.Frame) {
	for _, line := range lines {
		kind, rest, _ := strings.Cut(line, " ")
		function, place, _ := strings.Cut(rest, " ")
		f := format.Frame{Type: kind, Func: function, Module: place}
		if kind == "python" {
			f.Module, f.File = "", place
		}
		frames = append(frames, f)
	}
	return frames
}

func TestReasons(t *testing.T) {
	testclass.Unit(t)
	const libc = " /lib/libc.so.6"
	for name, c := range map[string]struct {
		thread Thread
		want   string
	}{
		"sleep":          {Thread{SystemCall: "clock_nanosleep"}, format.ReasonSleep},
		"restart":        {Thread{SystemCall: "restart_syscall", Frames: stackOf("kernel do_nanosleep")}, format.ReasonSleep},
		"restarted poll": {Thread{SystemCall: "restart_syscall", Frames: stackOf("kernel do_sys_poll")}, format.ReasonPoll},
		"restart of unknown": {
			Thread{SystemCall: "restart_syscall", Frames: stackOf("kernel other")}, "",
		},
		"condition": {Thread{SystemCall: "futex"}, format.ReasonCondition},
		"gil":       {Thread{SystemCall: "futex", memory: waitMemory{isGIL: true}}, format.ReasonGIL},
		"gil by name": {
			Thread{SystemCall: "futex", Frames: stackOf("native pthread_cond_timedwait"+libc, "native take_gil python3")},
			format.ReasonGIL,
		},
		"import": {
			Thread{SystemCall: "futex", Frames: stackOf("native sem_wait"+libc,
				"python _ModuleLock.acquire "+importlib, "python _find_and_load "+importlib)},
			format.ReasonImportLock,
		},
		"lock in an import": {
			Thread{SystemCall: "futex", Frames: stackOf("native sem_wait"+libc,
				"python get cache.py", "python _find_and_load "+importlib)},
			format.ReasonCondition,
		},
		"cuda":       {Thread{SystemCall: "ioctl", CUDACall: "cuStreamSynchronize"}, format.ReasonCUDA},
		"cuda spins": {Thread{State: StateRunning, CUDACall: "cuCtxSynchronize"}, format.ReasonCUDA},
		"cuda runs":  {Thread{State: StateRunning, CUDACall: "cuLaunchKernel"}, ""},
		"runs":       {Thread{State: StateRunning, SystemCall: "futex"}, ""},
		"runnable":   {Thread{State: StateRunnable, SystemCall: "futex"}, format.ReasonRunQueue},
		"runnable for the gil": {
			Thread{State: StateRunnable, Frames: stackOf("native pthread_cond_timedwait"+libc, "native take_gil python3")},
			format.ReasonGIL,
		},
		"stopped":         {Thread{State: snapshot.StateStopped, SystemCall: "futex"}, format.ReasonStopped},
		"traced":          {Thread{State: snapshot.StateTraced}, format.ReasonStopped},
		"page fault":      {Thread{Frames: stackOf("kernel folio_wait_bit", "kernel exc_page_fault")}, format.ReasonPageFault},
		"fault in a call": {Thread{SystemCall: "futex", Frames: stackOf("kernel handle_mm_fault")}, format.ReasonCondition},
		"disk":            {Thread{State: snapshot.StateUninterruptible, InIOWait: true}, format.ReasonFile},
		"nothing known":   {Thread{State: snapshot.StateUninterruptible}, ""},
		"signal":          {Thread{SystemCall: "pause"}, ""},
		"child":           {Thread{SystemCall: "wait4"}, format.ReasonChild},
	} {
		if c.thread.State == "" {
			c.thread.State = snapshot.StateSleeping
		}
		w := newWaiting(&c.thread)
		if got := w.findReason(); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestMutexWaits(t *testing.T) {
	testclass.Root(t)
	const libc = " /lib/libc.so.6"
	for name, c := range map[string]struct {
		thread Thread
		want   bool
	}{
		"lock": {Thread{Frames: stackOf("kernel futex_wait", "native __lll_lock_wait"+libc,
			"native pthread_mutex_lock@@GLIBC_2.2.5"+libc, "native main a")}, true},
		"without names":  {Thread{Frames: stackOf("native "+libc, "native ___pthread_mutex_lock"+libc)}, true},
		"after a wait":   {Thread{Frames: stackOf("native __pthread_mutex_cond_lock"+libc, "native pthread_cond_wait"+libc)}, true},
		"condition":      {Thread{Frames: stackOf("native pthread_cond_wait" + libc)}, false},
		"other library":  {Thread{Frames: stackOf("native pthread_mutex_lock /lib/ld-musl-x86_64.so.1")}, false},
		"other call":     {Thread{SystemCall: "read", Frames: stackOf("native pthread_mutex_lock" + libc)}, false},
		"far out":        {Thread{Frames: stackOf(append(slices.Repeat([]string{"native f a"}, 6), "native pthread_mutex_lock"+libc)...)}, false},
		"without frames": {Thread{}, false},
	} {
		if c.thread.SystemCall == "" {
			c.thread.SystemCall = "futex"
		}
		w := newWaiting(&c.thread)
		if got := w.isMutexWait(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheImporterIsTheOnlyOne(t *testing.T) {
	testclass.Unit(t)
	waiter := Thread{
		Tid:    1,
		Frames: stackOf("python _ModuleLock.acquire "+importlib, "python _find_and_load "+importlib),
	}
	importer := Thread{Tid: 2, Frames: stackOf("python <module> slow.py", "python _find_and_load "+importlib)}
	other := Thread{Tid: 3, Frames: stackOf("python work train.py")}
	find := func(threads ...Thread) int {
		var all []waiting
		for i := range threads {
			all = append(all, newWaiting(&threads[i]))
		}
		if found := findImporter(threads, all, 0); found != nil {
			return found.Tid
		}
		return 0
	}
	if got := find(waiter, other, importer); got != 2 {
		t.Errorf("the importer is %d", got)
	}
	if got := find(waiter, importer, importer); got != 0 {
		t.Errorf("one of two importers is %d", got)
	}
	if got := find(waiter, waiter); got != 0 {
		t.Errorf("another waiter is the importer: %d", got)
	}
}
