package symbolize

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Mapping is one line of /proc/PID/maps: a range of a process's memory and what is mapped there.
type Mapping struct {
	// Start and End are addresses of the process; End is the first byte behind the mapping.
	Start, End uint64
	// Offset is where Start lies in the file, in bytes; 0 without a file.
	Offset uint64
	// Perms is the four letters of the kernel, such as "r-xp": read, write, execute, private or
	// shared.
	Perms string
	// Dev is the device in hexadecimal, "major:minor", and Inode the file on it; "00:00" and 0
	// without a file.
	Dev   string
	Inode uint64
	// Path is the file as the process sees it (in a container: not as we do), a name of the kernel
	// such as "[heap]", or empty for anonymous memory.
	Path string
	// Deleted says that the file is no longer there under this path, which may name another file by
	// now. The mapped one is still reachable as /proc/PID/map_files/START-END.
	Deleted bool
}

// Executable says whether code may run from the mapping.
func (m Mapping) Executable() bool { return strings.IndexByte(m.Perms, 'x') >= 0 }

// Limits of ReadMaps: a path is at most 4095 bytes, of which each may be escaped to 4; the kernel
// allows 65530 mappings unless told otherwise, databases raise that to some 260 thousand.
const (
	maxMapsLine = 32 << 10
	maxMappings = 1 << 21
	maxMapsText = 64 << 20 // of paths: a program can map a file under a name of 4 KiB as often as it may map
)

// ReadMaps parses what /proc/PID/maps holds, ordered by address. It fails at the first line that
// the kernel cannot have written, and beyond 2 million mappings or 64 MiB of paths. Two things the
// kernel itself does not keep apart are read in the usual sense: a file whose name ends in "
// (deleted)" looks deleted, and a backslash followed by 012 in a name becomes a newline.
func ReadMaps(r io.Reader) ([]Mapping, error) {
	lines := newLineReader(r, maxMapsLine)
	var maps []Mapping
	text := 0
	for number := 1; ; number++ {
		line, whole, err := lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read maps: %w", err)
		}
		if !whole {
			return nil, fmt.Errorf("read maps: line %d is too long or cut off", number)
		}
		if number > maxMappings {
			return nil, fmt.Errorf("read maps: more than %d mappings", maxMappings)
		}
		m, err := parseMapping(string(line))
		if err != nil {
			return nil, fmt.Errorf("read maps: line %d: %w", number, err)
		}
		// A library has four or five mappings in a row: they share one path.
		if n := len(maps); n > 0 && maps[n-1].Path == m.Path {
			m.Path = maps[n-1].Path
		} else {
			m.Path = strings.Clone(m.Path)
			if text += len(m.Path); text > maxMapsText {
				return nil, fmt.Errorf("read maps: paths of more than %d MiB", maxMapsText>>20)
			}
		}
		maps = append(maps, m)
	}
	byStart := func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) }
	if !slices.IsSortedFunc(maps, byStart) {
		slices.SortStableFunc(maps, byStart)
	}
	return maps, nil
}

// parseMapping parses "START-END PERMS OFFSET DEV INODE   PATH", the path and the spaces before it
// being optional.
func parseMapping(line string) (Mapping, error) {
	var m Mapping
	var fields [5]string
	rest := line
	for i := range fields {
		fields[i], rest, _ = strings.Cut(rest, " ")
	}
	start, end, _ := strings.Cut(fields[0], "-")
	var errs [4]error
	m.Start, errs[0] = strconv.ParseUint(start, 16, 64)
	m.End, errs[1] = strconv.ParseUint(end, 16, 64)
	m.Offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	m.Inode, errs[3] = strconv.ParseUint(fields[4], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return Mapping{}, err
	}
	if m.End <= m.Start {
		return Mapping{}, errors.New("mapping ends before it starts")
	}
	if len(fields[1]) != 4 || fields[3] == "" {
		return Mapping{}, errors.New("permissions or device missing")
	}
	m.Perms, m.Dev = strings.Clone(fields[1]), strings.Clone(fields[3])
	// Paths never begin with a space, but may end in one.
	path := strings.TrimLeft(rest, " ")
	path, m.Deleted = strings.CutSuffix(path, " (deleted)")
	m.Path = strings.ReplaceAll(path, `\012`, "\n")
	return m, nil
}

// FindMapping returns the mapping around an address of the process, by binary search in maps as
// ReadMaps returns them.
func FindMapping(maps []Mapping, addr uint64) (Mapping, bool) {
	i := sort.Search(len(maps), func(i int) bool { return maps[i].Start > addr }) - 1
	if i < 0 || addr >= maps[i].End {
		return Mapping{}, false
	}
	return maps[i], true
}
