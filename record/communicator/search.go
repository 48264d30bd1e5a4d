//go:build linux

package communicator

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/symbolize"
)

// Limits of a search.
const (
	maxDataBytes     = 64 << 20 // of the data segments of NCCL
	chunkBytes       = 1 << 20
	maxPointers      = 1 << 16 // words of the data segments that may point to the list
	firstListWords   = 128     // words of each possible list that are read first
	maxListWords     = 1 << 13
	maxCommunicators = 512
	minObjectBytes   = 16280 + 8 // the smallest of layouts
)

// libraryName matches the file names of NCCL and of RCCL, also of builds with another name. pluginName matches those of
// plugins. staticName matches files that may contain NCCL.
var (
	libraryName = regexp.MustCompile(`^lib(nccl|rccl)([-_.][-0-9A-Za-z_.]+)?\.so(\.[0-9.]+)?$`)
	pluginName  = regexp.MustCompile(`^lib(nccl|rccl)[-_](net|tuner|profiler|env|gin|ofi)\b`)
	staticName  = regexp.MustCompile(`^libtorch_(cuda|hip)\.so$`)
)

// isLibrary reports whether a file is a library of NCCL or RCCL.
func isLibrary(file string) bool {
	name := path.Base(file)
	return libraryName.MatchString(name) && !pluginName.MatchString(name)
}

// addresses is a range of addresses. to is the first address after it.
type addresses struct{ from, to uint64 }

// search searches the communicators in the memory of a process.
//
// NCCL's variable ncclComms points to an array of pointers to communicators. NULL pointers are free places, also
// between others. So the search follows each word of the data segments: it may point to an array whose first pointer
// points to the magic number of a communicator.
type search struct {
	ctx      context.Context
	memory   memory
	writable []addresses // joined, ascending
	data     []addresses // data segments of NCCL, and of the program, which may contain NCCL
	// static are the data segments of libraries that may contain NCCL. They matter if data has no list.
	static []addresses
	// isNamed says that data has that of a library of NCCL.
	isNamed bool
}

func newSearch(ctx context.Context, m memory, maps []symbolize.Mapping) *search {
	s := &search{ctx: ctx, memory: m}
	for i := range maps {
		if !strings.HasPrefix(maps[i].Perms, "rw") || maps[i].End <= maps[i].Start {
			continue
		}
		if n := len(s.writable); n > 0 && s.writable[n-1].to == maps[i].Start {
			s.writable[n-1].to = maps[i].End
		} else {
			s.writable = append(s.writable, addresses{maps[i].Start, maps[i].End})
		}
	}
	s.data = dataSegments(maps, func(i int) bool { return isLibrary(maps[i].Path) })
	s.isNamed = len(s.data) > 0
	program := slices.IndexFunc(maps, func(m symbolize.Mapping) bool { return m.Inode != 0 })
	s.data = append(s.data, dataSegments(maps, func(i int) bool {
		return maps[i].Path == maps[max(program, 0)].Path && !isLibrary(maps[i].Path)
	})...)
	s.static = dataSegments(maps, func(i int) bool { return staticName.MatchString(path.Base(maps[i].Path)) })
	return s
}

// dataSegments returns the writable mappings of some files, with the anonymous ones behind them: the .bss. The result
// has at most maxDataBytes.
func dataSegments(maps []symbolize.Mapping, isWanted func(i int) bool) (list []addresses) {
	left, isAfter := uint64(maxDataBytes), false
	for i := range maps {
		m := &maps[i]
		isFile := m.Inode != 0 && isWanted(i)
		isAfter = isFile || isAfter && m.Inode == 0 && m.Path == "" && m.Start == maps[i-1].End
		if !isAfter || !strings.HasPrefix(m.Perms, "rw-p") || m.End <= m.Start || left == 0 {
			continue
		}
		n := min(m.End-m.Start, left)
		list, left = append(list, addresses{m.Start, m.Start + n}), left-n
		isAfter = isFile
	}
	return list
}

// room returns the number of bytes of writable memory from an address on.
func (s *search) room(at uint64) uint64 {
	i, ok := slices.BinarySearchFunc(s.writable, at, func(a addresses, at uint64) int {
		switch {
		case at < a.from:
			return 1
		case at >= a.to:
			return -1
		}
		return 0
	})
	if !ok {
		return 0
	}
	return s.writable[i].to - at
}

// isObject reports whether a word may point to a communicator.
func (s *search) isObject(word uint64) bool { return word%8 == 0 && s.room(word) >= minObjectBytes }

// findAll returns the addresses of communicators, at most one more than maxCommunicators.
func (s *search) findAll() ([]uint64, error) {
	found, err := s.findAddresses()
	if err == nil && len(found) == 0 && len(s.static) > 0 {
		s.data = s.static
		found, err = s.findAddresses()
	}
	return found, err
}

// findAddresses returns the addresses of communicators in the lists that data points to.
func (s *search) findAddresses() ([]uint64, error) {
	pointers, err := s.findPointers()
	if err != nil {
		return nil, err
	}
	lists, err := s.findLists(pointers)
	if err != nil {
		return nil, err
	}
	var found []uint64
	for _, at := range lists {
		list, err := s.readList(at)
		if err != nil {
			return nil, err
		}
		found = append(found, list...)
		slices.Sort(found)
		found = slices.Compact(found)
		if len(found) > maxCommunicators {
			return found[:maxCommunicators+1], nil
		}
	}
	return found, nil
}

// findPointers returns the distinct words of the data segments that point to other writable memory.
func (s *search) findPointers() ([]uint64, error) {
	known := make(map[uint64]bool)
	chunk := make([]uint64, chunkBytes/8)
	for _, d := range s.data {
		for at := d.from; at < d.to; at += chunkBytes {
			words := chunk[:min(chunkBytes, d.to-at)/8]
			part := []span{{at: at, into: bytesOf(words)}}
			if err := s.read(part); err != nil {
				return nil, err
			}
			if !part[0].ok {
				continue
			}
			for _, word := range words {
				if len(known) < maxPointers && word%8 == 0 && s.room(word) >= 8 && !s.isData(word) {
					known[word] = true
				}
			}
		}
	}
	pointers := make([]uint64, 0, len(known))
	for word := range known {
		pointers = append(pointers, word)
	}
	slices.Sort(pointers)
	return pointers, nil
}

// isData reports whether an address is in the data segments.
func (s *search) isData(at uint64) bool {
	return slices.ContainsFunc(s.data, func(d addresses) bool { return at >= d.from && at < d.to })
}

// read reads memory of the process until the deadline.
func (s *search) read(spans []span) error {
	if s.ctx.Err() != nil {
		return ErrTimeout
	}
	return s.memory.read(spans)
}
