//go:build linux

package hold

import (
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/gpurec/gpurec/record/process"
)

// libcName matches the file names of C libraries: those of glibc, and musl's loader.
var libcName = regexp.MustCompile(`^(libc\.so\.6|libc-2\.\d+\.so|ld-musl-\w+\.so\.1|libc\.musl-\w+\.so\.1)$`)

// forkFunctions return in a forked child. fork calls _Fork in glibc 2.34 and later, which programs
// may also call themselves.
var forkFunctions = []string{"fork", "_Fork"}

// ProbeFork probes the C library of a process for all processes, once. From then on, a forked child
// of a target that has loaded libcuda waits before it runs.
func (h *Holder) ProbeFork(p *process.Process) error {
	err := h.probeFork(p)
	if err != nil {
		h.hasUnheldForks.Store(true)
	}
	return err
}

func (h *Holder) probeFork(p *process.Process) error {
	maps, err := p.Maps()
	if err != nil {
		return nil // the process has exited
	}
	for _, m := range maps {
		if !m.Executable() || !libcName.MatchString(filepath.Base(m.Path)) {
			continue
		}
		file, err := p.OpenMappedFile(m)
		if err != nil {
			return fmt.Errorf("open the C library %s: %w", m.Path, err)
		}
		defer file.Close()
		functions, id, err := findFunctions(file, forkFunctions)
		if err != nil {
			return fmt.Errorf("read the C library %s: %w", m.Path, err)
		}
		return h.attach(site{
			id: id, path: pathOf(file), program: h.objects.Forked,
			offsets: functions, cookies: make([]uint64, len(functions)), atReturn: true,
		})
	}
	return nil
}
