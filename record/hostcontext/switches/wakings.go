//go:build linux

package switches

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// wakings is the program that runs at each wake-up of a thread.
type wakings struct {
	program *ebpf.Program
	link    link.Link
}

// close releases the program.
func (w *wakings) close() {
	if w.program != nil {
		w.program.Close()
	}
}

// StartWakings begins to note who ends the waits of watched threads: Wait.Waking. It does nothing if that has begun.
// An error says why the kernel does not allow it; all else works as before.
func (a *Accounts) StartWakings() error {
	if a.wakings.link != nil {
		return nil
	}
	if a.wakings.program == nil {
		if err := a.loadWakings(); err != nil {
			return err
		}
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: a.wakings.program})
	if err != nil {
		return fmt.Errorf("attach to wake-ups: %w", err)
	}
	a.wakings.link = l
	return nil
}

// loadWakings loads the program. It shares the accounts and the counters.
func (a *Accounts) loadWakings() error {
	spec, err := bpf.LoadHostSwitch()
	if err != nil {
		return fmt.Errorf("read BPF program: %w", err)
	}
	var loaded struct {
		OnWaking *ebpf.Program `ebpf:"on_waking"`
	}
	shared := map[string]*ebpf.Map{
		bpf.HostSwitchMapWatched: a.objects.Watched, bpf.HostSwitchMapCounters: a.objects.Counters,
	}
	err = spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return fmt.Errorf("load BPF program of wake-ups: %w", err)
	}
	a.wakings.program = loaded.OnWaking
	return nil
}

// StopWakings ends what StartWakings began. Waits that end later have no Waking.
func (a *Accounts) StopWakings() {
	if a.wakings.link != nil {
		a.wakings.link.Close()
		a.wakings.link = nil
	}
}

// Ender returns what ended a wait, one of the EndedBy constants of package format. It is EndedByUnknown if no wake-up
// was seen.
func Ender(w *Wait) string {
	if w.Waking.Ns == 0 {
		return format.EndedByUnknown
	}
	switch bpf.HostSwitchSwitchEnder(w.Waking.Ender) {
	case bpf.HostSwitchSwitchEnderENDER_THREAD:
		return format.EndedByThread
	case bpf.HostSwitchSwitchEnderENDER_SENDER:
		return format.EndedBySender
	case bpf.HostSwitchSwitchEnderENDER_SIGNAL:
		return format.EndedBySignal
	case bpf.HostSwitchSwitchEnderENDER_INTERRUPT:
		return format.EndedByInterrupt
	case bpf.HostSwitchSwitchEnderENDER_KERNEL:
		return format.EndedByKernel
	}
	return format.EndedByUnknown
}

// WakerName returns the name of the thread that ended a wait.
func WakerName(w *Wait) string { return textOf(&w.Waking.Name) }

// textOf returns the text of a name of the kernel.
func textOf(name *[16]int8) string {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&name[0])), len(name))
	before, _, _ := bytes.Cut(raw, []byte{0})
	return string(before)
}
