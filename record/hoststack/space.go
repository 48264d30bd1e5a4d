//go:build linux

package hoststack

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind/remote"
	"github.com/gpurec/gpurec/symbolize"
)

// Limits of the files of a process.
const (
	maxVDSOBytes     = 64 << 10
	maxPerfMapBytes  = 64 << 20
	vdsoName         = "[vdso]"
	maxDistinctNames = 1 << 16
)

// errNoFile is the error of code outside of files.
var errNoFile = errors.New("code is not in a file")

// space is the code and the memory of one process. It implements remote.Space.
type space struct {
	*memory
	process *process.Process
	maps    []symbolize.Mapping
	mapped  map[uint64]*module // by start of the mapping
	files   *Files
	vdso    *module
	// isFileDenied says that a file with code may not be opened.
	isFileDenied bool
	jit          *symbolize.PerfMap
	jitRead      bool
	names        map[uint64]format.Frame // by address of the process, for one snapshot
	// hasUnknown says that code was outside of all known mappings.
	hasUnknown bool
}

func newSpace(p *process.Process, files *Files) *space {
	return &space{
		memory: newMemory(p.Pid), process: p, mapped: make(map[uint64]*module),
		files: files, names: make(map[uint64]format.Frame),
	}
}

// refresh reads the mappings again, and forgets what may have changed since the last snapshot.
func (s *space) refresh() error {
	maps, err := s.process.Maps()
	if err != nil {
		return err
	}
	s.maps, s.jit, s.jitRead = maps, nil, false
	clear(s.mapped)
	clear(s.names)
	s.reset()
	return nil
}

// Mapping returns the mapping of an address.
func (s *space) Mapping(addr uint64) (symbolize.Mapping, bool) {
	m, ok := symbolize.FindMapping(s.maps, addr)
	s.hasUnknown = s.hasUnknown || !ok
	return m, ok
}

// TrueReturn returns the return address that a return probe has replaced.
func (s *space) TrueReturn(slot uint64) (uint64, bool) {
	if s.snapshot == nil {
		return 0, false
	}
	return s.snapshot.TrueReturn(slot)
}

// Table returns the unwind table of a mapping's file.
func (s *space) Table(m symbolize.Mapping) (*remote.Table, error) {
	mod := s.module(m)
	if mod == nil {
		return nil, errNoFile
	}
	return mod.table, mod.tableErr
}

// module returns the file of a mapping, and opens it if it is new. It returns nil for code outside of
// files.
func (s *space) module(m symbolize.Mapping) *module {
	if mod, ok := s.mapped[m.Start]; ok {
		return mod
	}
	mod := s.openModule(m)
	s.mapped[m.Start] = mod
	return mod
}

func (s *space) openModule(m symbolize.Mapping) *module {
	switch {
	case m.Path == vdsoName:
		if s.vdso == nil {
			s.vdso = s.readVDSO(m)
		}
		return s.vdso
	case m.Inode == 0:
		return nil
	}
	file, err := s.openFile(m)
	if err != nil {
		return &module{path: m.Path, tableErr: err}
	}
	return s.files.module(m.Path, file)
}

// openFile opens the file of a mapping. Without the privileges for /proc/PID, it opens the file at the
// path as this process sees it, if it is the same file.
func (s *space) openFile(m symbolize.Mapping) (*os.File, error) {
	file, err := s.process.OpenMappedFile(m)
	if err == nil || !errors.Is(err, os.ErrPermission) {
		return file, err
	}
	if file, err := process.OpenRegular(m.Path); err == nil {
		var st unix.Stat_t
		if unix.Fstat(int(file.Fd()), &st) == nil && st.Ino == m.Inode &&
			fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev)) == m.Dev {
			return file, nil
		}
		file.Close()
	}
	s.isFileDenied = true
	return nil, err
}

// readVDSO reads the table and the symbols of the vDSO, which is a file only in memory.
func (s *space) readVDSO(m symbolize.Mapping) *module {
	image := make([]byte, min(m.End-m.Start, maxVDSOBytes))
	mod := &module{path: vdsoName}
	// Not through a thread's snapshot: the vDSO does not change.
	if mod.tableErr = newMemory(s.pid).Read(m.Start, image); mod.tableErr != nil {
		return mod
	}
	mod.table, mod.tableErr = remote.ReadImage(image)
	mod.object, _ = symbolize.NewObject(strings.NewReader(string(image)), int64(len(image)))
	return mod
}

// nameFrame returns the function of a native frame.
func (s *space) nameFrame(f remote.Frame) format.Frame {
	pc := f.Lookup()
	if frame, ok := s.names[pc]; ok {
		return frame
	}
	frame := s.nameAddress(pc)
	if len(s.names) < maxDistinctNames {
		s.names[pc] = frame
	}
	return frame
}

func (s *space) nameAddress(pc uint64) format.Frame {
	frame := format.Frame{Type: "native", Addr: int64(pc)}
	m, ok := s.Mapping(pc)
	if !ok {
		return frame
	}
	frame.Module = m.Path
	mod := s.module(m)
	if mod == nil {
		return s.nameJIT(frame, pc)
	}
	if mod.object == nil {
		return frame
	}
	frame.BuildID = mod.object.BuildID()
	vaddr, ok := mod.object.VAddr(pc - m.Start + m.Offset)
	if !ok {
		return frame
	}
	frame.Addr = int64(vaddr)
	if symbol, _, ok := mod.object.Lookup(vaddr); ok {
		frame.SystemName, frame.Func = symbol.Name, symbolize.Demangle(symbol.Name)
	}
	return frame
}

// nameJIT names code outside of files by the process's perf map.
func (s *space) nameJIT(frame format.Frame, pc uint64) format.Frame {
	if !s.jitRead {
		s.jit, s.jitRead = s.readPerfMap(), true
	}
	if s.jit == nil {
		return frame
	}
	if symbol, _, ok := s.jit.Lookup(pc); ok {
		frame.Func, frame.SystemName, frame.Type = symbol.Name, symbol.Name, "jit"
	}
	return frame
}

// readPerfMap reads the perf map that a JIT compiler wrote for the process, nil if there is none.
func (s *space) readPerfMap() *symbolize.PerfMap {
	name := path.Join("/tmp", "perf-"+s.process.PidInOwnNamespace()+".map")
	file, err := s.process.OpenRegular(name, unix.O_NOFOLLOW)
	if err != nil {
		return nil
	}
	defer file.Close()
	var have, want unix.Stat_t
	err = errors.Join(unix.Fstat(int(file.Fd()), &have), unix.Stat(s.process.Path("."), &want))
	if err != nil || have.Uid != want.Uid || have.Size > maxPerfMapBytes {
		return nil
	}
	jit, err := symbolize.ReadPerfMap(file)
	if err != nil {
		return nil
	}
	return jit
}
