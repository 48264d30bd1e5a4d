package steps

import (
	"maps"
	"slices"
)

// alphabetKind is the property of launches that makes the symbols of a sequence.
type alphabetKind uint8

const (
	byCallSites alphabetKind = iota // the call site in one function of the main thread
	byLabels                        // the kernel or the kind of copy
	byGrids                         // the kernel and its grid
	byWaits                         // the kernel and its grid, and the function of waits
	byMarker                        // whether kernel or call site contain a text
	byTouches                       // whether it is a wait or a copy at one place
)

// alphabet gives symbols to elements. The zero symbol number is valid.
type alphabet struct {
	kind    alphabetKind
	stacks  *stackTable
	numbers symbolNumbers
	// mainTid, prefix and sites are for byCallSites. prefix has the frames up to the function, outermost
	// first; sites caches the symbol of each stack.
	mainTid int32
	prefix  []int32
	sites   map[int32]int32
	// isMarker is for byMarker.
	isMarker func(*element) bool
	// touch, with mainTid, is for byTouches.
	touch touchKey
}

// symbolOf returns the symbol of an element, or noSymbol.
func (a *alphabet) symbolOf(e *element) int32 {
	switch {
	case a.kind == byTouches && e.tid == a.mainTid && a.touch.matches(e):
		return 1
	case a.kind == byWaits && e.isWait():
		return a.numbers.numberOf(-2 - e.name)
	case e.isWait():
		return noSymbol
	case a.kind == byCallSites:
		return a.siteOf(e)
	case a.kind == byLabels:
		return a.numbers.numberOf(e.label)
	case a.kind == byMarker:
		if a.isMarker(e) {
			return 1
		}
		return 0
	case a.kind == byTouches:
		return 0
	}
	return a.numbers.numberOf(e.grid)
}

// siteOf returns the symbol of the call site in the function, or noSymbol.
func (a *alphabet) siteOf(e *element) int32 {
	if e.tid != a.mainTid {
		return noSymbol
	}
	symbol, ok := a.sites[e.stack]
	if !ok {
		symbol = noSymbol
		path := a.stacks.infoOf(e.stack).path
		if d := len(a.prefix); len(path) > d && slices.Equal(path[:d], a.prefix) {
			symbol = a.numbers.numberOf(path[d])
		}
		a.sites[e.stack] = symbol
	}
	return symbol
}

// framesBySymbol returns the frame of each call site, or nothing for other symbols.
func (a *alphabet) framesBySymbol() []int32 {
	if a.kind != byCallSites {
		return nil
	}
	frames := make([]int32, len(a.numbers))
	for _, frame := range slices.Sorted(maps.Keys(a.numbers)) { // several may have the last number
		frames[a.numbers[frame]] = frame
	}
	return frames[:min(len(frames), maxSymbols)]
}
