package frag

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"

	"github.com/gpurec/gpurec/analyze/units"
)

// Sizes of the SVG picture, in pixels.
const (
	svgCellWidthPx    = 12 // width of the column of one point in time
	svgRowHeightPx    = 5  // height of the row of one address range
	svgLeftMarginPx   = 130
	svgTopMarginPx    = 40
	svgBottomMarginPx = 40
)

// svgShadeColours are the fill colours of the shades.
var svgShadeColours = [shadeCount]string{"#ffffff", "#e4e9f0", "#b9d0ea", "#7fabd9", "#4180be", "#12508f"}

// WriteMapsSVG writes address maps to out as one SVG picture, one map below the other. Times are
// relative to startNs, the start of the recording (Unix ns). WriteMapsSVG returns only errors of
// out.
func WriteMapsSVG(out io.Writer, maps []AddressMap, startNs int64) error {
	w := bufio.NewWriter(out)
	height := svgTopMarginPx
	for i := range maps {
		height += maps[i].svgHeight()
	}
	width := svgLeftMarginPx + MapMomentCount*svgCellWidthPx + 30
	fmt.Fprintf(
		w,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n",
		width,
		height,
		width,
		height,
	)
	fmt.Fprintf(w, `<rect class="bg" width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	if len(maps) == 0 {
		fmt.Fprintf(w, `<text x="10" y="24">no memory that can be fragmented was recorded</text>`+"\n")
	}
	y := 0
	for i := range maps {
		maps[i].drawSVG(w, y, startNs)
		y += maps[i].svgHeight()
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

// svgHeight returns the height of the map in pixels.
func (m *AddressMap) svgHeight() int {
	return svgTopMarginPx + len(m.Ptr)*svgRowHeightPx + svgBottomMarginPx
}

// drawSVG writes one map. Adjacent cells of the same shade become one rectangle. The class of a
// rectangle is its shade, so that a page's style sheet can colour it.
func (m *AddressMap) drawSVG(w *bufio.Writer, y int, startNs int64) {
	fmt.Fprintf(w, `<g transform="translate(0 %d)">`+"\n"+`<text x="10" y="18" font-size="13">`, y)
	_ = xml.EscapeText(
		w,
		[]byte(units.SanitizeText(units.ReplaceInvalidUTF8(m.Title))),
	) // errors stay in the buffer, for Flush
	fmt.Fprintf(w, "</text>\n")
	for i := range m.Ptr {
		top := svgTopMarginPx + i*svgRowHeightPx
		if i%8 == 0 {
			fmt.Fprintf(
				w,
				`<text x="%d" y="%d" text-anchor="end" font-family="monospace">0x%x</text>`+"\n",
				svgLeftMarginPx-8,
				top+svgRowHeightPx+3,
				m.Ptr[i],
			)
		}
		for k := 0; k < len(m.Moments); {
			s, from := cellShade(m.Reserved[i][k], m.Used[i][k], m.Bytes), k
			for k < len(m.Moments) && cellShade(m.Reserved[i][k], m.Used[i][k], m.Bytes) == s {
				k++
			}
			if s > 0 {
				fmt.Fprintf(
					w,
					`<rect class="s%d" x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n",
					s,
					svgLeftMarginPx+from*svgCellWidthPx,
					top,
					(k-from)*svgCellWidthPx,
					svgRowHeightPx,
					svgShadeColours[s],
				)
			}
		}
	}
	m.drawFailureLines(w)
	bottom := svgTopMarginPx + len(m.Ptr)*svgRowHeightPx
	for k := 0; k < len(m.Moments); k += 8 {
		fmt.Fprintf(
			w,
			`<text x="%d" y="%d">%s</text>`+"\n",
			svgLeftMarginPx+k*svgCellWidthPx,
			bottom+14,
			units.FormatDuration(m.Moments[k]-startNs),
		)
	}
	fmt.Fprintf(
		w,
		`<text x="%d" y="%d">dark: used; pale: reserved and empty; white: not reserved; red: an allocation failed</text>`+"\n</g>\n",
		svgLeftMarginPx,
		bottom+30,
	)
}

// drawFailureLines draws a vertical line at the time of each failed allocation.
func (m *AddressMap) drawFailureLines(w *bufio.Writer) {
	if len(m.Moments) < 2 {
		return
	}
	first, last := m.Moments[0]-(m.Moments[1]-m.Moments[0]), m.Moments[len(m.Moments)-1]
	for _, ns := range m.Failures {
		if ns < first || ns > last {
			continue
		}
		x := svgLeftMarginPx + float64(ns-first)/float64(last-first)*float64(len(m.Moments)*svgCellWidthPx)
		fmt.Fprintf(
			w,
			`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#d02020"/>`+"\n",
			x,
			svgTopMarginPx-6,
			x,
			svgTopMarginPx+len(m.Ptr)*svgRowHeightPx,
		)
	}
}
