package pointers

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/kernelargs"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/format"
)

// Fault is work of the GPU that failed, perhaps because of an address.
type Fault struct {
	fault.GPUFault            // Result 0: no call returned the error, and only the Xid is known
	Xid            *facts.Xid // nil: none
	Launches       []Launch   // launches that may have been running, the newest first
	// Recorded counts the launches whose arguments were recorded.
	Recorded int
	// Address is the address that the Xid names, 0: none.
	Address    int64
	AddressIs  fault.PointerFinding
	IsComplete bool // the process was recorded from its first CUDA call
}

// Launch is a launch before a Fault.
type Launch struct {
	fault.Launch
	HasArguments bool
	Arguments    format.KernelArgs
	Suspects     int
}

// Argument is a word in the arguments of a launch that does not point into live memory.
type Argument struct {
	Fault  *Fault
	Launch *Launch
	Index  int   // number of the parameter, from 0 on
	Word   int64 // the word
	Inside int64 // offset of the word in a structure, bytes
	Layout string
	fault.PointerFinding
	Level   string   // confidence
	Reasons []string // reasons that lower the confidence
}

// addressErrors are CUDA errors that a wrong address can cause.
var addressErrors = []int32{700, 714, 715, 716, 717, 718, 719}

// addressXids are Xid errors that a wrong address can cause: an exception of a kernel, and a fault of the MMU.
var addressXids = []int64{13, 31}

// maxLaunches is the largest number of launches before a fault whose arguments are judged.
const maxLaunches = 4096

// maxFaults is the largest number of faults whose arguments are judged.
const maxFaults = 64

// Scan has the faults of a recording, and the words in the arguments before them.
type Scan struct {
	t         *timeline.Timeline
	Faults    []*Fault
	Arguments []Argument // the most suspect first
	// AreRecorded is true if the recorder read the arguments of launches.
	AreRecorded bool
}

// NewScan finds the faults that pass the filter, and judges the arguments before them. It returns errors of reading
// the recording.
func NewScan(t *timeline.Timeline, f *query.Filter) (*Scan, error) {
	s := &Scan{t: t, AreRecorded: kernelargs.HasRows(t)}
	if err := s.findFaults(f); err != nil || len(s.Faults) == 0 {
		return s, err
	}
	if err := s.findLaunches(f); err != nil {
		return nil, err
	}
	return s, s.findPointers()
}

// findFaults finds the faults: errors that calls returned, and Xids of processes without such an error.
func (s *Scan) findFaults(f *query.Filter) error {
	list, err := fault.FindFaults(s.t)
	if err != nil {
		return err
	}
	started, err := cudaerrors.ProcessesRecordedFromStart(s.t)
	if err != nil {
		return err
	}
	window := f.NarrowWindow(s.t.RecordingWindow())
	noticed := make(map[int32]bool)
	for _, g := range list {
		if !slices.Contains(addressErrors, g.Result) || g.EndNs < window.FromNs || g.StartNs > window.ToNs ||
			!f.PassesCaller(g.Pid, g.Tid, g.Device, g.Stream) {
			continue
		}
		noticed[g.Pid] = true
		one := &Fault{GPUFault: g, IsComplete: started[g.Pid]}
		if x, ok := fault.FindXidOfFault(&s.t.Facts, &g); ok {
			one.Xid = x
		}
		s.Faults = append(s.Faults, one)
	}
	for i := range s.t.Facts.Xids {
		x := &s.t.Facts.Xids[i]
		if x.Sxid || x.Before || x.Pid == 0 || noticed[x.Pid] || !slices.Contains(addressXids, x.Code) ||
			x.AtNs < window.FromNs || x.AtNs > window.ToNs || len(f.Pids) > 0 && !slices.Contains(f.Pids, x.Pid) {
			continue
		}
		noticed[x.Pid] = true
		s.Faults = append(s.Faults, &Fault{
			GPUFault: fault.GPUFault{StartNs: x.AtNs, EndNs: x.AtNs, Pid: x.Pid, Device: x.Device},
			Xid:      x, IsComplete: started[x.Pid],
		})
	}
	s.Faults = s.Faults[:min(len(s.Faults), maxFaults)]
	for _, one := range s.Faults {
		if one.Xid != nil {
			one.Address = addressOfXid(one.Xid.Text)
		}
	}
	return nil
}

// xidAddress matches the address in the text of an Xid 31, such as "faulted @ 0x7f67_40000000".
var xidAddress = regexp.MustCompile(`faulted @ 0x([0-9a-fA-F_]+)`)

// addressOfXid returns the address in the text of an Xid, 0 if there is none.
func addressOfXid(text string) int64 {
	m := xidAddress.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(m[1], "_", ""), 16, 63)
	if err != nil {
		return 0
	}
	return int64(n)
}

// findLaunches finds the launches before each fault, and their arguments.
func (s *Scan) findLaunches(f *query.Filter) error {
	moments := make([]fault.ContextMoment, len(s.Faults))
	for i, one := range s.Faults {
		moments[i] = fault.ContextMoment{AtNs: one.EndNs, Pid: one.Pid, Context: one.Context}
	}
	all, err := fault.FindManyLaunchesBefore(s.t, moments, f, maxLaunches)
	if err != nil {
		return err
	}
	wanted := make(map[kernelargs.LaunchKey]bool)
	for i := range all {
		for _, l := range all[i] {
			wanted[kernelargs.LaunchKey{Pid: s.Faults[i].Pid, Tid: l.Tid, StartNs: l.StartNs}] = true
		}
	}
	messages, err := kernelargs.Read(s.t, func(key kernelargs.LaunchKey) bool { return wanted[key] })
	if err != nil {
		return err
	}
	for i, one := range s.Faults {
		one.Launches = make([]Launch, len(all[i]))
		for k, l := range all[i] {
			one.Launches[k].Launch = l
			message, ok := messages[kernelargs.LaunchKey{Pid: one.Pid, Tid: l.Tid, StartNs: l.StartNs}]
			if !ok {
				continue
			}
			args, err := format.ParseKernelArgs(message)
			if err != nil {
				continue // a damaged row
			}
			one.Launches[k].Arguments, one.Launches[k].HasArguments = args, true
			one.Recorded++
		}
	}
	return nil
}

// findPointers finds what the words in the arguments point to, and keeps those that do not point into live memory.
func (s *Scan) findPointers() error {
	var list []Argument
	var uses []fault.PointerUse
	for _, one := range s.Faults {
		for k := range one.Launches {
			l := &one.Launches[k]
			for i := range l.Arguments.Values {
				for w, word := range l.Arguments.Values[i].Words() {
					list = append(list, Argument{
						Fault:  one,
						Launch: l,
						Index:  i,
						Word:   int64(word),
						Inside: int64(w) * 8,
						Layout: l.Arguments.Layout,
					})
					uses = append(uses, fault.PointerUse{
						Pid: one.Pid, Word: int64(word), Stream: l.Stream, LaunchNs: l.StartNs, UntilNs: one.EndNs,
					})
				}
			}
		}
		uses = append(uses, fault.PointerUse{Pid: one.Pid, Word: one.Address, LaunchNs: one.EndNs, UntilNs: one.EndNs})
		list = append(list, Argument{Fault: one})
	}
	found, err := fault.FindPointers(s.t, uses)
	if err != nil {
		return err
	}
	for i := range list {
		if list[i].Launch == nil {
			list[i].Fault.AddressIs = found[i]
			continue
		}
		switch found[i].State {
		case fault.PointerFreed, fault.PointerFreedLater, fault.PointerCached, fault.PointerUnknown:
			list[i].PointerFinding = found[i]
			s.Arguments = append(s.Arguments, list[i])
		}
	}
	for i := range s.Arguments {
		s.Arguments[i].Launch.Suspects++
	}
	return nil
}
