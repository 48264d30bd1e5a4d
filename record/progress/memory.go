//go:build linux

package progress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/symbolize"
)

const (
	pageBytes = 4096
	slotBytes = 16
	// maxSpans is the kernel's limit of ranges in one read.
	maxSpans = 1024
)

func pairAt(words []byte) pair {
	return pair{
		counter: int64(binary.LittleEndian.Uint64(words)), gpuNs: int64(binary.LittleEndian.Uint64(words[8:])),
	}
}

// span is a range of a process's memory.
type span struct {
	start uint64
	bytes int
}

// memory reads memory of a process by process_vm_readv. A read of /proc/PID/mem would call
// functions of the driver that are not safe for this use.
type memory struct {
	pid    int
	local  [1]unix.Iovec
	remote []unix.RemoteIovec
}

// read reads up to maxSpans spans, one after the other, into a buffer. It returns the number of
// bytes before the first unreadable page. An error is unix.ESRCH if the process has exited.
func (m *memory) read(into []byte, spans []span) (int, error) {
	m.remote = m.remote[:0]
	total := 0
	for _, s := range spans[:min(len(spans), maxSpans)] {
		m.remote = append(m.remote, unix.RemoteIovec{Base: uintptr(s.start), Len: s.bytes})
		total += s.bytes
	}
	if total == 0 {
		return 0, nil
	}
	m.local[0].Base = &into[0]
	m.local[0].SetLen(total)
	n, err := unix.ProcessVMReadv(m.pid, m.local[:], m.remote, 0)
	if errors.Is(err, unix.EFAULT) {
		return 0, nil
	}
	return max(n, 0), err
}

// maxMappingBytes is the size of the largest scanned mapping. The driver's mappings with slots have
// a few MiB at most.
const maxMappingBytes = 256 << 20

// readDeviceMappings returns the mappings of device files that processes and GPUs share. It leaves
// out managed memory: a read would move its pages from the GPU to the host.
func readDeviceMappings(pid int) ([]span, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	maps, err := symbolize.ReadMaps(file)
	if err != nil {
		return nil, err
	}
	var found []span
	for _, m := range maps {
		isDevice := strings.HasPrefix(m.Path, "/dev/nvidia") && !strings.HasPrefix(m.Path, "/dev/nvidia-uvm")
		if m.Perms == "rw-s" && isDevice && m.End-m.Start <= maxMappingBytes {
			found = append(found, span{m.Start, int(m.End - m.Start)})
		}
	}
	return found, nil
}
