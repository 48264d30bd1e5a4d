package frag

import (
	"fmt"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// AddressMap is the use of one owner's addresses over time: a grid of address ranges by points in
// time. It omits addresses that the owner never had.
type AddressMap struct {
	Title   string
	Moments []int64 // points in time, Unix ns, ascending
	// Ptr has the start of each address range, ascending. Bytes is the length of every range.
	Ptr   []int64
	Bytes int64
	// Reserved[i][k] and Used[i][k] are the reserved and used bytes of range i at Moments[k].
	Reserved, Used [][]int64
	Failures       []int64 // times of failed allocations, Unix ns

	ranges addressRanges
	before []int64 // number of bytes in all ranges before each range
}

const mapRangeCount = 96 // number of address ranges (rows) of an address map

// MapMomentCount is the number of points in time of a map. A row with an address then fits 80
// columns.
const MapMomentCount = 48

// newAddressMap returns an empty map of ranges, which must be sorted and joined.
func newAddressMap(ranges addressRanges, moments []int64) *AddressMap {
	m := &AddressMap{Moments: moments, ranges: ranges}
	var total int64
	for _, r := range ranges {
		m.before = append(m.before, total)
		total += r.end - r.start
	}
	m.Bytes = units.RoundUp(max(1, total/mapRangeCount), caching.BlockUnitBytes)
	if total >= maxMapTextRows*caching.DriverPageBytes {
		m.Bytes = units.RoundUp(m.Bytes, caching.DriverPageBytes)
	}
	for at := int64(0); at < total; at += m.Bytes {
		i := sort.Search(len(m.before), func(i int) bool { return m.before[i] > at }) - 1
		m.Ptr = append(m.Ptr, ranges[i].start+at-m.before[i])
		m.Reserved = append(m.Reserved, make([]int64, len(moments)))
		m.Used = append(m.Used, make([]int64, len(moments)))
	}
	return m
}

// markRange marks bytes at an address as reserved at a time, and as used if used is true.
func (m *AddressMap) markRange(moment int, ptr, bytes int64, used bool) {
	m.addToGrid(moment, ptr, bytes, m.Reserved)
	if used {
		m.markUsed(moment, ptr, bytes)
	}
}

// markUsed marks bytes at an address as used. add must have marked them as reserved.
func (m *AddressMap) markUsed(moment int, ptr, bytes int64) { m.addToGrid(moment, ptr, bytes, m.Used) }

// addToGrid adds bytes at an address to the cells of a grid at a time.
func (m *AddressMap) addToGrid(moment int, ptr, bytes int64, grid [][]int64) {
	i := sort.Search(len(m.ranges), func(i int) bool { return m.ranges[i].end > ptr })
	if i == len(m.ranges) || ptr < m.ranges[i].start || moment >= len(m.Moments) {
		return
	}
	at := m.before[i] + ptr - m.ranges[i].start
	for end := at + min(bytes, m.ranges[i].end-ptr); at < end; {
		row := at / m.Bytes
		part := min(end, (row+1)*m.Bytes) - at
		grid[row][moment] += part
		at += part
	}
}

// hasFailureAt reports whether an allocation failed between the previous point in time and this
// one.
func (m *AddressMap) hasFailureAt(moment int) bool {
	for _, ns := range m.Failures {
		if ns <= m.Moments[moment] && (moment == 0 || ns > m.Moments[moment-1]) {
			return true
		}
	}
	return false
}

// cellShade returns the shade of a map cell of size bytes. 0 is not reserved, 1 is reserved and
// unused, shades-1 is fully used.
func cellShade(reserved, used, of int64) int {
	switch {
	case reserved*2 < of && used == 0:
		return 0
	case used == 0:
		return 1
	}
	return min(shadeCount-1, 2+int(used*(shadeCount-3)/max(1, of)))
}

// shadeCount is the number of shades of a map.
const shadeCount = 6

// shadeChars are the characters of the shades in text output.
var shadeChars = [shadeCount]string{" ", "·", "░", "▒", "▓", "█"}

// mapColumns are the columns of AddressMap.textTable.
var mapColumns = []report.Column{
	{Key: "address", Title: "ADDRESS", Unit: report.UnitText, About: "start of the address range"},
	{
		Key:   "use",
		Title: "TIME →   █ used, ▓ ▒ ░ partly, · reserved and empty, x failed", Unit: report.UnitText,
		About: "use of the address range over time, one character per point in time",
	},
}

// maxMapTextRows is the maximum number of rows of a map in text output.
const maxMapTextRows = 24

// textTable returns the map as a table of characters.
func (m *AddressMap) textTable(name string) report.Table {
	table := report.Table{Name: name, Title: "address map: " + m.Title, Columns: mapColumns, Secondary: true}
	var marks strings.Builder
	for k := range m.Moments {
		if m.hasFailureAt(k) {
			marks.WriteString("x")
		} else {
			marks.WriteString(" ")
		}
	}
	if len(m.Failures) > 0 {
		table.Add(report.Values{
			"address": "failed",
			"use":     marks.String(),
		})
	}
	each := (len(m.Ptr) + maxMapTextRows - 1) / maxMapTextRows
	for i := 0; i < len(m.Ptr); i += each {
		var line strings.Builder
		last := min(len(m.Ptr), i+each)
		for k := range m.Moments {
			var reserved, used int64
			for row := i; row < last; row++ {
				reserved += m.Reserved[row][k]
				used += m.Used[row][k]
			}
			line.WriteString(shadeChars[cellShade(reserved, used, m.Bytes*int64(last-i))])
		}
		table.Add(report.Values{
			"address": fmt.Sprintf("0x%x", m.Ptr[i]),
			"use":     line.String(),
		})
	}
	return table
}
