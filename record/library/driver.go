//go:build linux

package library

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"

	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize"
)

// FilterDriverUsers returns those of pids that have mapped libcuda.
func FilterDriverUsers(pids []int) []int {
	var users []int
	for _, pid := range pids {
		if uses, err := HasMappedDriver((&process.Process{Pid: pid})); err == nil && uses {
			users = append(users, pid)
		}
	}
	return users
}

// maxMapsBytes bounds the text of /proc/PID/maps in bytes: 65,530 mappings, the default limit, with
// names of 4 KiB.
const maxMapsBytes = 256 << 20

// HasMappedDriver reports whether the process has mapped libcuda as code. It stops reading at the
// first such mapping.
func HasMappedDriver(p *process.Process) (bool, error) {
	file, err := os.Open(p.Path("maps"))
	if err != nil {
		return false, err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(io.LimitReader(file, maxMapsBytes), 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if bytes.Contains(line, []byte("/libcuda.so")) && isDriverMapping(line) {
			return true, nil
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// isDriverMapping reports whether a line of /proc/PID/maps is an executable mapping of libcuda.
func isDriverMapping(line []byte) bool {
	maps, err := symbolize.ReadMaps(bytes.NewReader(line))
	return err == nil && len(maps) == 1 && maps[0].Executable() &&
		libcudaFileName.MatchString(filepath.Base(maps[0].Path))
}
