package steps

import (
	"sort"

	"github.com/gpurec/gpurec/analyze/model/activity"
	model "github.com/gpurec/gpurec/analyze/model/steps"
)

// operationPlace is where operations with the same call site and kernel are counted.
type operationPlace struct {
	call      placedCall
	owner     *processScan // nil: the place is not set
	phase     int32
	durations *gpuOperations // nil: there are too many kernels
	// inPhase and inAll count the operations with an estimated duration, in the phase and in all steps.
	inPhase, inAll *int64
}

// placedCall has the facts of a call that decide its operationPlace.
type placedCall struct {
	pid, tid, stack int32
	gpuKey
}

// operationPlaces are recent places, by a hash.
type operationPlaces [1 << placeBits]operationPlace

const placeBits = 14

// placeOf returns the place of an operation of a process. Most operations have a recent one.
func (sc *scan) placeOf(s *processScan, w *activity.Operation) *operationPlace {
	c := placedCall{w.Call.Pid, w.Call.Tid, w.Call.Stack, gpuKey{w.Call.Op, w.Call.Label}}
	mixed := uint32(c.stack)*0x9e3779b1 ^ uint32(c.label)*0x85ebca6b ^ uint32(c.tid)*0xc2b2ae35
	p := &sc.places[mixed>>(32-placeBits)]
	if p.owner == s && p.call == c {
		return p
	}
	call := model.Call{Pid: c.pid, Tid: c.tid, Stack: c.stack, Label: sc.labelOf(&w.Call), Name: -1}
	phase := sc.found.PhaseOf(s.Process, &call)
	for int(phase) >= len(s.phases) {
		s.phases = append(s.phases, phaseTotals{})
	}
	*p = operationPlace{
		call: c, owner: s, phase: phase, durations: s.gpu.durationsOf(c.gpuKey),
		inPhase: s.phases[phase].gpu.counterOf(c.gpuKey), inAll: s.gpu.total.counterOf(c.gpuKey),
	}
	return p
}

// stepAt returns the index of the first step that ends after a time; len(s.Steps): there is none. Most operations are
// in the step of the operation before.
func (s *processScan) stepAt(ns int64) int {
	i := s.lastStep
	if i >= len(s.Steps) || s.Steps[i].EndNs <= ns || i > 0 && s.Steps[i-1].EndNs > ns {
		i = sort.Search(len(s.Steps), func(i int) bool { return s.Steps[i].EndNs > ns })
		s.lastStep = i
	}
	return i
}
