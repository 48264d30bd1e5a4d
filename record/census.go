//go:build linux

package record

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/communicator"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/rowwriter"
)

// censusTime bounds one reading of the communicators of all processes.
const censusTime = 2 * time.Second

// censusTaker reads the communicators of processes from NCCL's own list. So a recording has the counts of a job that
// hung before. Its methods are safe for concurrent use.
type censusTaker struct {
	writer *rowwriter.Writer
	clock  clock.Clock

	mu sync.Mutex // held during readings
	// missing are the reasons why communicators of processes are unknown.
	missing map[int]error
}

func newCensusTaker(writer *rowwriter.Writer, c clock.Clock) *censusTaker {
	return &censusTaker{writer: writer, clock: c, missing: make(map[int]error)}
}

// take reads the communicators of processes, and passes them to the row writer. It does not read a process again whose
// memory could not be read in time. It takes at most censusTime.
func (t *censusTaker) take(pids []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), censusTime)
	defer cancel()
	for _, pid := range pids {
		if errors.Is(t.missing[pid], communicator.ErrTimeout) {
			continue
		}
		atNs := t.clock.NowNs()
		found, err := findCommunicators(ctx, pid)
		switch {
		case err == nil:
			delete(t.missing, pid)
			if found.Unknown > 0 {
				t.missing[pid] = &communicator.UnknownVersionError{Communicators: found.Unknown}
			}
			t.writer.SendCensus(rowwriter.ProcessCensus{Pid: pid, AtNs: atNs, Communicators: found.Communicators})
		case isReadingError(err):
			t.missing[pid] = err
		}
	}
}

// findCommunicators returns the communicators of a process.
func findCommunicators(ctx context.Context, pid int) (*communicator.Census, error) {
	p, err := process.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	return communicator.FindAll(ctx, pid, maps)
}

// isReadingError reports whether an error hides communicators. Others say that the process has none, or has ended.
func isReadingError(err error) bool {
	var unknown *communicator.UnknownVersionError
	return errors.As(err, &unknown) || errors.Is(err, communicator.ErrTimeout) || errors.Is(err, communicator.ErrDenied)
}

// notes says why communicators of processes are unknown.
func (t *censusTaker) notes(now int64) (rows []format.Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	byReason := make(map[string][]int)
	for pid, err := range t.missing {
		byReason[err.Error()] = append(byReason[err.Error()], pid)
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		rows = append(rows, format.Row{
			Kind: format.KindNote, Name: format.NoteCommunicators, StartNs: now, Device: -1,
			Message: fmt.Sprintf("communicators of %s are unknown: %s", processesText(byReason[reason]), reason),
		})
	}
	return rows
}

// maxNamedProcesses bounds the processes that a note names.
const maxNamedProcesses = 8

// processesText names processes, such as "process 42" or "processes 42, 43".
func processesText(pids []int) string {
	slices.Sort(pids)
	var list []string
	for _, pid := range pids[:min(len(pids), maxNamedProcesses)] {
		list = append(list, strconv.Itoa(pid))
	}
	text := strings.Join(list, ", ")
	if more := len(pids) - maxNamedProcesses; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if len(pids) == 1 {
		return "process " + text
	}
	return "processes " + text
}
