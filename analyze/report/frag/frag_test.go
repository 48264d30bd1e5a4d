package frag_test

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// naiveSpace is a space computed from the lists of an analyzetest.TorchAllocator.
type naiveSpace struct {
	reserved, active, unused, kept, largest, split, saved int64
	gaps                                                  []int64
}

// naiveSpaces returns the spaces of one world by kind and pool.
func naiveSpaces(w *analyzetest.TorchAllocator) map[string]*naiveSpace {
	found := make(map[string]*naiveSpace)
	for _, s := range w.Segments {
		kind := frag.SpaceKindSegments
		if s.Expandable {
			kind = frag.SpaceKindExpandable
		}
		key := kind + ", pool " + caching.FormatPool(s.Pool)
		if found[key] == nil {
			found[key] = new(naiveSpace)
		}
		n := found[key]
		used := slices.ContainsFunc(s.Blocks, func(b *analyzetest.TorchBlock) bool { return b.InUse || b.Awaiting })
		for _, b := range s.Blocks {
			switch {
			case b.Unmapped:
				continue
			case b.IsFree():
				n.unused += b.Size
				n.largest = max(n.largest, b.Size)
				n.gaps = append(n.gaps, b.Size)
				n.keep(s, b, used)
			default:
				n.active += b.Size
			}
			n.reserved += b.Size
		}
	}
	for key, n := range found {
		if n.reserved == 0 {
			delete(found, key)
		}
	}
	return found
}

// keep counts the stranded bytes of a hole byte by byte, in steps of the smallest block.
func (n *naiveSpace) keep(s *analyzetest.TorchSegment, b *analyzetest.TorchBlock, used bool) {
	whole := func(base, step int64) (sum int64) {
		for at := base; at < b.Ptr+b.Size; at += step {
			if at >= b.Ptr && at+step <= b.Ptr+b.Size {
				sum += step
			}
		}
		return sum
	}
	switch {
	case s.Expandable && s.Small:
		n.kept += b.Size - whole(s.Ptr, 2*analyzetest.Mib)
	case s.Expandable:
		n.kept += b.Size - whole(s.Ptr, 20*analyzetest.Mib)
	case used:
		n.kept += b.Size
		n.split += b.Size
		n.saved += whole(s.Ptr/(2*analyzetest.Mib)*2*analyzetest.Mib, 2*analyzetest.Mib)
	}
}

func (n *naiveSpace) external() float64 {
	if n.unused == 0 {
		return 0
	}
	return 1 - float64(n.largest)/float64(n.unused)
}

// naivePins returns the stranded bytes of segments by call site, without expandable segments.
func naivePins(w *analyzetest.TorchAllocator) map[string]int64 {
	found := make(map[string]int64)
	for _, s := range w.Segments {
		sites := make(map[string]bool)
		var gaps int64
		for _, b := range s.Blocks {
			if b.InUse || b.Awaiting {
				sites[b.Row.Site] = true
			} else if b.IsFree() {
				gaps += b.Size
			}
		}
		for site := range sites {
			if gaps > 0 {
				found[site] += gaps
			}
		}
	}
	return found
}

// TestFragmentationEqualsANaiveCount compares the report with a naive count on random layouts.
func TestFragmentationEqualsANaiveCount(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 5))
		recording := analyzetest.NewTestRecording(t)
		w := analyzetest.NewTorchAllocator(
			recording,
			r,
			42,
			0,
			analyzetest.TorchConf{Expandable: seed%2 == 1, Divisions: int64(seed % 3 * 4)},
		)
		recording.AddRow(
			format.Row{
				Kind:    format.KindNote,
				Name:    format.NoteAllocator,
				Pid:     42,
				Message: fmt.Sprintf(`{"conf":%q}`, w.Conf),
			},
		)
		for i := 0; i < 300 || w.Last.Name == format.AllocatorAlloc; i++ {
			w.RunRandomOperation()
		}
		fragReport, _, err := frag.RunWithOptions(
			recording.Timeline(),
			frag.Options{At: query.MomentEnd, Request: 3 * analyzetest.Mib},
		)
		if err != nil {
			t.Fatal(err)
		}
		table := fragReport.Tables[0]
		want := naiveSpaces(w)
		for _, row := range table.Rows {
			where := table.Cell(&row, "space").(string)
			n := want[where]
			if n == nil {
				t.Fatalf("seed %d: %s is not there", seed, where)
			}
			delete(want, where)
			compareSpace(t, fmt.Sprintf("seed %d, %s", seed, where), &table, &row, n, w.Conf.Expandable)
		}
		for where := range want {
			t.Errorf("seed %d: %s is missing", seed, where)
		}
		if !w.Conf.Expandable {
			comparePins(t, fragReport, naivePins(w))
		}
	}
}

func compareSpace(
	t *testing.T,
	name string,
	table *report.Table,
	row *report.Row,
	n *naiveSpace,
	expandable bool,
) {
	t.Helper()
	cell := func(key string) any { return table.Cell(row, key) }
	var fits int64
	for _, g := range n.gaps {
		if g >= 3*analyzetest.Mib {
			fits += g
		}
	}
	for key, want := range map[string]int64{
		"reserved_bytes":       n.reserved,
		"active_bytes":         n.active,
		"unused_bytes":         n.unused,
		"kept_bytes":           n.kept,
		"largest_gap_bytes":    n.largest,
		"inactive_split_bytes": n.split, "gaps": int64(len(n.gaps)),
	} {
		if got := cell(key); got != want {
			t.Errorf("%s: %s %v, want %d", name, key, got, want)
		}
	}
	if got := cell("external_ratio").(float64); math.Abs(got-n.external()) > 1e-9 {
		t.Errorf("%s: external %v, want %v", name, got, n.external())
	}
	if !expandable && cell("saved_bytes") != n.saved {
		t.Errorf("%s: saved %v, want %d", name, cell("saved_bytes"), n.saved)
	}
	if n.unused > 0 {
		if got, want := cell("unusable_pct").(float64), 100-units.Percent(fits, n.unused); math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: unusable %v, want %v", name, got, want)
		}
	}
}

func comparePins(t *testing.T, r *report.Report, want map[string]int64) {
	t.Helper()
	sites, kept := analyzetest.ColumnTexts(t, r, "pins", "site"), analyzetest.ColumnTexts(t, r, "pins", "kept_bytes")
	if len(sites) != len(want) {
		t.Errorf("pins of %v, want %v", sites, want)
	}
	for i := range sites {
		if kept[i] != fmt.Sprint(want[sites[i]]) {
			t.Errorf("%s strands %s, want %d", sites[i], kept[i], want[sites[i]])
		}
	}
}

func TestFragmentationReport(t *testing.T) {
	testclass.Unit(t)
	r, maps, err := frag.RunWithOptions(
		analyzetest.FragmentingRecording(t).Timeline(),
		frag.Options{Options: query.Options{Top: 20, MaxFrames: 12}, Maps: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "frag", 110)
	var picture bytes.Buffer
	if err := frag.WriteMapsSVG(&picture, maps, analyzetest.Epoch); err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGolden(t, "frag.svg", picture.Bytes())
	for name, want := range map[string]float64{
		"kept_bytes": float64((30*14 + 40) * analyzetest.Mib),
		"fragmented": 1,
		"rising":     0,
		"failures":   1,
	} {
		if got, ok, _ := r.FindNumber(name); !ok || got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

func TestFragmentationThatRisesIsToldFromWhatRose(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.FragmentingRecording(t).Timeline()
	for toNs, want := range map[int64]string{
		analyzetest.Epoch + 31*analyzetest.Second: "rising",
		0: "steady",
		analyzetest.Epoch + 46*analyzetest.Second: "rose",
	} {
		r, _, err := frag.RunWithOptions(tl, frag.Options{Options: query.Options{Filter: query.Filter{ToNs: toNs}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := analyzetest.ColumnTexts(t, r, "trends", "direction"); got[0] != want {
			t.Errorf(
				"until %s: %v, want %s (tau %v)",
				query.FormatOffset(toNs, tl.RecordingWindow()),
				got,
				want,
				analyzetest.ColumnTexts(t, r, "trends", "tau"),
			)
		}
	}
}

func TestFragmentationAtAMoment(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.FragmentingRecording(t).Timeline()
	for name, c := range map[string]struct {
		opt  frag.Options
		want int64 // stranded MiB
	}{
		"worst":    {frag.Options{}, 30*14 + 40},
		"the end":  {frag.Options{At: query.MomentEnd}, 30*14 + 40},
		"a time":   {frag.Options{At: query.MomentGivenTime, AtNs: analyzetest.Epoch + 11500*analyzetest.Ms}, 10 * 14},
		"a window": {frag.Options{Options: query.Options{Filter: query.Filter{ToNs: analyzetest.Epoch + 11500*analyzetest.Ms}}}, 10 * 14},
		"too late": {frag.Options{Options: query.Options{Filter: query.Filter{Pids: []int32{7}}}}, 0},
	} {
		r, _, err := frag.RunWithOptions(tl, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := r.FindNumber("kept_bytes"); got != float64(c.want*analyzetest.Mib) {
			t.Errorf("%s: %v MiB stranded, want %d", name, got/float64(analyzetest.Mib), c.want)
		}
	}
}

func TestHolesBetweenPlainAllocationsAreNoFragmentation(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for i := range int64(50) {
		recording.AddAlloc(i*analyzetest.Ms, analyzetest.Us, 0x7f0000000000+i*64*analyzetest.Mib, analyzetest.Mib)
	}
	r, maps, err := frag.RunWithOptions(recording.Timeline(), frag.Options{Maps: true})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(
		analyzetest.RenderReport(t, r, render.Options{}),
	); len(r.Tables[0].Rows)+len(maps) != 0 || !strings.Contains(text, "nothing can be fragmented") ||
		!strings.Contains(text, "are addresses, not memory") {
		t.Errorf("%s", text)
	}
}

// TestReservationsEqualANaiveCount maps and unmaps addresses at random.
func TestReservationsEqualANaiveCount(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 9))
		recording := analyzetest.NewTestRecording(t)
		const pages = 32
		recording.AddMemoryCall(format.KindReserve, "", analyzetest.Ms, 0x600000000000, pages*2*analyzetest.Mib).Name = "cuMemAddressReserve"
		var mapped [pages]bool
		for i := range int64(200) {
			page := r.Int64N(pages)
			at := analyzetest.Second + i*analyzetest.Ms
			if mapped[page] {
				recording.AddMemUnmap(at, 0x600000000000+page*2*analyzetest.Mib, 2*analyzetest.Mib)
			} else {
				recording.AddMemCreate(at, 0x1000+i, 2*analyzetest.Mib)
				recording.AddMemMap(
					at+analyzetest.Us,
					0x600000000000+page*2*analyzetest.Mib,
					2*analyzetest.Mib,
					0x1000+i,
				)
			}
			mapped[page] = !mapped[page]
		}
		var hole, largest, unused int64
		for _, used := range append(mapped[:], true) {
			if !used {
				hole += 2 * analyzetest.Mib
				continue
			}
			largest, unused, hole = max(largest, hole), unused+hole, 0
		}
		fragReport, _, err := frag.RunWithOptions(recording.Timeline(), frag.Options{At: query.MomentEnd})
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]int64{
			"reserved_bytes":    pages * 2 * analyzetest.Mib,
			"active_bytes":      pages*2*analyzetest.Mib - unused,
			"unused_bytes":      unused,
			"largest_gap_bytes": largest,
		} {
			if got := analyzetest.ColumnTexts(
				t,
				fragReport,
				"spaces",
				key,
			); len(got) != 1 ||
				got[0] != fmt.Sprint(want) {
				t.Errorf("seed %d: %s %v, want %d", seed, key, got, want)
			}
		}
	}
}

// TestForecastBeatsNoChange measures the error of forecasts. On series with a constant trend they
// must beat a forecast of no change. On all other series they must not be much worse.
func TestForecastBeatsNoChange(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(3, 3))
	noise := func() float64 { return (r.Float64() - 0.5) * float64(4*analyzetest.Mib) }
	shapes := map[string]func(i int) float64{
		"rising": func(i int) float64 { return float64(i)*float64(3*analyzetest.Mib) + noise() },
		"falling": func(i int) float64 {
			return float64(500*analyzetest.Mib) - float64(i)*float64(2*analyzetest.Mib) + noise()
		},
		"steady":   func(int) float64 { return float64(100*analyzetest.Mib) + noise() },
		"step":     func(i int) float64 { return float64(i/24)*float64(200*analyzetest.Mib) + noise() },
		"sawtooth": func(i int) float64 { return float64(i%8)*float64(20*analyzetest.Mib) + noise() },
	}
	for _, name := range []string{"rising", "falling", "steady", "step", "sawtooth"} {
		var wrong, steady float64
		for range 20 {
			var all []int64
			for i := range frag.MapMomentCount + frag.MapMomentCount/4 {
				all = append(all, int64(max(0, shapes[name](i))))
			}
			f, ok := stats.NewForecast(all[:frag.MapMomentCount])
			if !ok {
				t.Fatal("no forecast")
			}
			truth := float64(all[frag.MapMomentCount-1+f.HeldBack])
			wrong += math.Abs(float64(f.Next)-truth) / 20
			steady += math.Abs(float64(all[frag.MapMomentCount-1])-truth) / 20
		}
		t.Logf(
			"%-8s mean error %6.1f MiB, no change %6.1f MiB",
			name,
			wrong/float64(analyzetest.Mib),
			steady/float64(analyzetest.Mib),
		)
		if (name == "rising" || name == "falling") && wrong > steady/4 ||
			wrong > 1.5*steady+float64(4*analyzetest.Mib) {
			t.Errorf("%s: error %.0f, no change %.0f", name, wrong, steady)
		}
	}
	if _, ok := stats.NewForecast(make([]int64, stats.MinForecastValues-1)); ok {
		t.Error("a short series is forecast")
	}
}

func TestAddressMapIsWellFormed(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.FragmentingRecording(t)
	for _, r := range recording.Rows {
		if r.Kind == format.KindProcess || r.Kind == format.KindDevice {
			r.Name = analyzetest.HostileName
		}
	}
	_, maps, err := frag.RunWithOptions(recording.Timeline(), frag.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]frag.AddressMap{nil, maps} {
		var b bytes.Buffer
		if err := frag.WriteMapsSVG(&b, list, analyzetest.Epoch); err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(&b)
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range maps {
		m := &maps[i]
		for row := range m.Reserved {
			for k := range m.Moments {
				if m.Used[row][k] > m.Reserved[row][k] || m.Reserved[row][k] > m.Bytes {
					t.Fatalf(
						"stretch %d at %d: %d used of %d of %d",
						row,
						k,
						m.Used[row][k],
						m.Reserved[row][k],
						m.Bytes,
					)
				}
			}
		}
	}
}

func TestFragAndOOMAreTheSameEveryTime(t *testing.T) {
	testclass.Unit(t)
	for _, recording := range []*analyzetest.TestRecording{
		analyzetest.FragmentingRecording(t),
		analyzetest.OOMRecording(t),
		analyzetest.TrainingRecording(t),
		analyzetest.AllMemoryKindsRecording(t),
		analyzetest.HostileRecording(t),
	} {
		rec := recording.WriteAndOpen()
		before := ""
		for range 3 {
			tl, err := timeline.Open(rec)
			if err != nil {
				t.Fatal(err)
			}
			fragReport, _, err := frag.RunWithOptions(tl, frag.Options{Maps: true})
			if err != nil {
				t.Fatal(err)
			}
			oomReport, err := oom.Run(tl, query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			now := string(
				analyzetest.RenderReport(t, fragReport, render.Options{Format: "json"}),
			) + string(
				analyzetest.RenderReport(t, oomReport, render.Options{Format: "json"}),
			)
			if cmp.Compare(before, "") > 0 && before != now {
				t.Error("a report differs from the one before")
			}
			before = now
			for _, width := range []int{80, 100, 132} {
				for line := range strings.Lines(string(analyzetest.RenderReport(t, fragReport, render.Options{Width: width})) + string(analyzetest.RenderReport(t, oomReport, render.Options{Width: width}))) {
					if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
						t.Errorf("at %d: a line of %d: %s", width, n, line)
					}
				}
			}
		}
	}
}

// TestFragSaysThatTheCacheGrows has requests that become longer. No block strands the memory.
func TestFragSaysThatTheCacheGrows(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	analyzetest.NewCacheProgram(recording, analyzetest.TorchConf{}).RequestLonger(1000)
	r, err := frag.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if v := analyzetest.ColumnTexts(t, r, "spaces", "verdict"); !slices.Equal(v, []string{"grows"}) {
		t.Errorf("verdicts %v", v)
	}
	text := string(analyzetest.RenderReport(t, r, render.Options{Width: 400}))
	want := "live memory does not: requests in encode_batch (infer.py:33) become longer: "
	if strings.Count(text, want) != 2 { // in the facts and in the evidence
		t.Errorf("no %q in\n%s", want, text)
	}
}
