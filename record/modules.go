//go:build linux

package record

import (
	"encoding/json"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize"
)

// moduleScanInterval is the interval of searches for new libraries. Reading the mappings of a
// PyTorch process takes one to two milliseconds.
const moduleScanInterval = 10 * time.Second

// writeModuleRows writes rows of the ELF files that the targets have mapped, until stop is closed,
// and once more then. Stacks name only the files of their frames. All files together identify a
// build of the program.
func (s *Session) writeModuleRows(c clock.Clock, stop <-chan struct{}) {
	noted := make(map[process.FileID]bool)
	for ended := false; ; ended = clock.Sleep(stop, moduleScanInterval) {
		for _, p := range s.targets.All() {
			maps, err := p.Maps()
			if err != nil {
				continue // the process has exited
			}
			var rows []format.Row
			for _, m := range maps {
				if row, ok := makeModuleRow(p, m, noted); ok {
					row.StartNs = c.NowNs()
					rows = append(rows, row)
				}
			}
			s.machine.rows.Send(rows)
		}
		if ended {
			return
		}
	}
}

// makeModuleRow returns the row of a mapped ELF file; ok is false if noted has the file already.
func makeModuleRow(p *process.Process, m symbolize.Mapping, noted map[process.FileID]bool) (row format.Row, ok bool) {
	if !m.Executable() || m.Inode == 0 {
		return row, false
	}
	path := p.MapFile(m)
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil { // without CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
		path = p.Path("root") + m.Path
		if unix.Stat(path, &st) != nil {
			return row, false
		}
	}
	id := process.FileID{Dev: uint64(st.Dev), Inode: st.Ino}
	if noted[id] {
		return row, false
	}
	noted[id] = true
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return row, false
	}
	file, err := p.OpenMappedFile(m)
	if err != nil {
		return row, false
	}
	defer file.Close()
	build, err := symbolize.ReadBuildID(file, st.Size)
	if err != nil {
		return row, false // the mapped file is no ELF file
	}
	message, err := json.Marshal(struct {
		BuildID string `json:"build_id,omitempty"`
	}{build})
	if err != nil {
		message = nil // cannot happen: strings always encode
	}
	return format.Row{
		Kind:    format.KindModule,
		Pid:     int32(p.Pid),
		Name:    m.Path,
		Bytes:   st.Size,
		Message: string(message),
		Device:  -1,
	}, true
}
