//go:build linux

package progress

import (
	"errors"
	"fmt"
	"time"
)

// errNoMoves is the result of Check for a process whose words do not move.
var errNoMoves = errors.New("no words in its GPU memory change as the progress of channels does: " +
	"the process may be idle, or gpurec does not know its driver")

// checkFor is how long Check looks for words that change.
const checkFor = 500 * time.Millisecond

// Check looks for progress words in the GPU memory of a process. It returns the number of moving
// words as a sentence, or the reason why GPU times cannot be recorded. It cannot compare the words
// with the calls of the process: only a recording knows these.
func Check(pid int) (string, error) {
	mappings, err := readDeviceMappings(pid)
	if err != nil {
		return "", err
	}
	s := newScanner(pid)
	s.setMappings(mappings)
	for s.rounds == 0 && len(mappings) > 0 {
		if err := s.scan(scanBytesPerSecond, time.Now().UnixNano()); err != nil {
			return "", err
		}
	}
	if !s.readable {
		return "", errNoMappings
	}
	moving := make(map[uint64]bool)
	for end := time.Now().Add(checkFor); time.Now().Before(end); time.Sleep(quietInterval) {
		for _, m := range s.findMoves(false, time.Now().UnixNano()) {
			if m.before.counter > 0 {
				moving[m.address] = true
			}
		}
	}
	if len(moving) == 0 {
		return "", errNoMoves
	}
	return fmt.Sprintf("%d words change as the progress of channels does", len(moving)), nil
}
