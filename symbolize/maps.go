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

// Mapping is one line of /proc/PID/maps: an address range of a process and the mapped file.
type Mapping struct {
	// Start and End are addresses of the process. End is the first byte after the mapping.
	Start, End uint64
	// Offset is the offset of Start in the file in bytes. It is 0 without a file.
	Offset uint64
	// Perms has the four permission letters of the kernel, such as "r-xp": read, write, execute,
	// private or shared.
	Perms string
	// Dev is the device in hexadecimal, "major:minor". Inode is the file's inode on it. Without a
	// file they are "00:00" and 0.
	Dev   string
	Inode uint64
	// Path is the file's path in the mount namespace of the process. It is a kernel name such as
	// "[heap]" for special mappings, and empty for anonymous memory.
	Path string
	// Deleted reports that the file was deleted. Path may name another file now. The mapped file is
	// still readable as /proc/PID/map_files/START-END.
	Deleted bool
}

// Executable reports whether the mapping may hold code.
func (m Mapping) Executable() bool { return strings.IndexByte(m.Perms, 'x') >= 0 }

// Limits of ReadMaps. A path has at most 4095 bytes, and each byte may be escaped to 4. The kernel
// allows 65530 mappings by default; databases raise that limit to about 260,000.
const (
	maxMapsLineBytes   = 32 << 10
	maxProcessMappings = 1 << 21
	maxMapsPathBytes   = 64 << 20 // bytes of all paths: a program can map a file with a 4 KiB path many times
)

// ReadMaps parses the text of /proc/PID/maps and returns the mappings by address. It returns an
// error for the first line that the kernel cannot have written, for more than 2 million mappings,
// and for more than 64 MiB of paths. The kernel's escaping is ambiguous. A file name that ends in "
// (deleted)" counts as deleted, and a backslash before 012 becomes a newline.
func ReadMaps(r io.Reader) ([]Mapping, error) {
	lines := newBoundedLineReader(r, maxMapsLineBytes)
	var maps []Mapping
	text := 0
	for number := 1; ; number++ {
		line, whole, err := lines.nextLine()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read maps: %w", err)
		}
		if !whole {
			return nil, fmt.Errorf("read maps: line %d is too long or cut off", number)
		}
		if number > maxProcessMappings {
			return nil, fmt.Errorf("read maps: more than %d mappings", maxProcessMappings)
		}
		m, err := parseMapsLine(string(line))
		if err != nil {
			return nil, fmt.Errorf("read maps: line %d: %w", number, err)
		}
		// A library has four or five consecutive mappings, which share one path string.
		if n := len(maps); n > 0 && maps[n-1].Path == m.Path {
			m.Path = maps[n-1].Path
		} else {
			m.Path = strings.Clone(m.Path)
			if text += len(m.Path); text > maxMapsPathBytes {
				return nil, fmt.Errorf("read maps: paths of more than %d MiB", maxMapsPathBytes>>20)
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

// parseMapsLine parses "START-END PERMS OFFSET DEV INODE   PATH". The path and the spaces before it
// are optional.
func parseMapsLine(line string) (Mapping, error) {
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
	// Paths never start with a space, but may end in one.
	path := strings.TrimLeft(rest, " ")
	path, m.Deleted = strings.CutSuffix(path, " (deleted)")
	m.Path = strings.ReplaceAll(path, `\012`, "\n")
	return m, nil
}

// FindMapping returns the mapping that contains an address of the process. maps must be sorted as
// ReadMaps returns them.
func FindMapping(maps []Mapping, addr uint64) (Mapping, bool) {
	i := sort.Search(len(maps), func(i int) bool { return maps[i].Start > addr }) - 1
	if i < 0 || addr >= maps[i].End {
		return Mapping{}, false
	}
	return maps[i], true
}
