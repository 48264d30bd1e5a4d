//go:build linux

package progress

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// recentNs is the largest distance of a possible slot's time from now.
	recentNs = int64(time.Minute)
	// movedNs is the largest distance of a time from now if the GPU has just written it.
	movedNs = int64(time.Second)
	// scanBlockBytes is the size of one read.
	scanBlockBytes = 64 << 10
	// maxWatchedPages limits the pages that are read again to find words that change: 4 MiB.
	maxWatchedPages = 1024
	// neighbourPages are watched on both sides of a slot that belongs to a channel: the driver
	// puts new slots close to old ones.
	neighbourPages = 8
)

// watchedPage is a page with words that look like GPU times, and its content.
type watchedPage struct {
	start   uint64
	trusted bool // a channel has a slot on this page or near it
	words   [pageBytes]byte
}

// move is a pair whose words have both changed.
type move struct {
	address     uint64
	before, now pair
}

// scanner finds pairs with GPU times in the device mappings of a process. It scans a part of the
// mappings at a time, and watches the pages that have such pairs.
type scanner struct {
	memory   memory
	mappings []span
	pages    map[uint64]*watchedPage
	at       int    // the mapping to scan next
	offset   int    // where to scan next in it
	rounds   int    // number of complete scans of all mappings
	readable bool   // a part of a mapping was read
	block    []byte // of scanBlockBytes
	order    []uint64
	spans    []span
}

func newScanner(pid int) *scanner {
	return &scanner{
		memory: memory{pid: pid}, pages: make(map[uint64]*watchedPage), block: make([]byte, scanBlockBytes),
	}
}

// setMappings replaces the mappings. It reports whether any of them is new.
func (s *scanner) setMappings(mappings []span) (isNew bool) {
	if slices.Equal(mappings, s.mappings) {
		return false
	}
	for _, m := range mappings {
		isNew = isNew || !slices.Contains(s.mappings, m)
	}
	s.mappings = mappings
	s.at, s.offset = 0, 0
	for start := range s.pages {
		if s.mappingOf(start) == nil {
			delete(s.pages, start)
		}
	}
	return isNew
}

// mappingOf returns the mapping of an address, or nil.
func (s *scanner) mappingOf(address uint64) *span {
	for i := range s.mappings {
		if m := &s.mappings[i]; address >= m.start && address < m.start+uint64(m.bytes) {
			return m
		}
	}
	return nil
}

// scan reads up to a number of bytes of the mappings. nowNs is the current time in Unix ns. An
// error is unix.ESRCH.
func (s *scanner) scan(budget int, nowNs int64) error {
	for budget > 0 && len(s.mappings) > 0 {
		m := s.mappings[s.at]
		want := min(scanBlockBytes, m.bytes-s.offset)
		n, err := s.memory.read(s.block, []span{{m.start + uint64(s.offset), want}})
		if errors.Is(err, unix.ESRCH) {
			return err
		}
		budget -= max(n, pageBytes)
		s.readable = s.readable || n > 0
		s.notePages(m.start+uint64(s.offset), s.block[:n], nowNs)
		s.offset += n
		if n < want || s.offset >= m.bytes { // registers of the GPU cannot be read
			s.offset = 0
			if s.at++; s.at == len(s.mappings) {
				s.at = 0
				s.rounds++
				return nil
			}
		}
	}
	return nil
}

// notePages remembers the pages of a block that have a recent time.
func (s *scanner) notePages(start uint64, block []byte, nowNs int64) {
	for ; len(block) >= pageBytes; start, block = start+pageBytes, block[pageBytes:] {
		if s.pages[start] == nil && hasRecentTime(block[:pageBytes], nowNs) {
			s.watchPage(start, block, false)
		}
	}
}

func hasRecentTime(words []byte, nowNs int64) bool {
	for at := 0; at < len(words); at += slotBytes {
		p := pairAt(words[at:])
		if p.counter > 0 && p.gpuNs > nowNs-recentNs && p.gpuNs < nowNs+recentNs {
			return true
		}
	}
	return false
}

func (s *scanner) watchPage(start uint64, words []byte, trusted bool) {
	if len(s.pages) >= maxWatchedPages {
		return
	}
	page := &watchedPage{start: start, trusted: trusted}
	copy(page.words[:], words)
	s.pages[start] = page
}

// trust watches the page of a channel's slot and its neighbours closely.
func (s *scanner) trust(address uint64) {
	m := s.mappingOf(address)
	if m == nil {
		return
	}
	page := address &^ (pageBytes - 1)
	from := max(m.start, page-min(page, neighbourPages*pageBytes))
	to := min(m.start+uint64(m.bytes), page+(neighbourPages+1)*pageBytes)
	var words [pageBytes]byte
	for start := from; start < to; start += pageBytes {
		if known := s.pages[start]; known != nil {
			known.trusted = true
		} else if n, err := s.memory.read(words[:], []span{{start, pageBytes}}); err == nil && n == pageBytes {
			s.watchPage(start, words[:], true)
		}
	}
}

// findMoves reads the watched pages again, and returns the pairs whose words have both changed as
// the words of a channel do. With trustedOnly, it reads trusted pages only.
func (s *scanner) findMoves(trustedOnly bool, nowNs int64) (moves []move) {
	s.order = s.order[:0]
	for start, page := range s.pages {
		if page.trusted || !trustedOnly {
			s.order = append(s.order, start)
		}
	}
	slices.Sort(s.order)
	const pagesPerRead = scanBlockBytes / pageBytes
	for pages := range slices.Chunk(s.order, pagesPerRead) {
		s.spans = s.spans[:0]
		for _, start := range pages {
			s.spans = append(s.spans, span{start, pageBytes})
		}
		n, err := s.memory.read(s.block, s.spans)
		if err != nil {
			return nil
		}
		for i, start := range pages {
			if (i+1)*pageBytes > n { // this page has gone; the others are read next time
				delete(s.pages, start)
				break
			}
			moves = s.pages[start].compare(s.block[i*pageBytes:][:pageBytes], nowNs, moves)
		}
	}
	return moves
}

// compare adds the pairs that have moved, and stores the new words.
func (p *watchedPage) compare(words []byte, nowNs int64, moves []move) []move {
	for at := 0; at < pageBytes; at += slotBytes {
		before, now := pairAt(p.words[at:]), pairAt(words[at:])
		if before != now && isStep(before, now) && isTimeNear(now.gpuNs, nowNs) {
			moves = append(moves, move{p.start + uint64(at), before, now})
		}
	}
	copy(p.words[:], words)
	return moves
}
