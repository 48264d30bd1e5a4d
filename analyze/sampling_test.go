package analyze

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	hangpkg "github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	summarypkg "github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
)

// switched adds the note of a switch.
func (tp *tape) switched(at int64, what string, recorded bool) {
	text, err := json.Marshal(format.Sampling{Class: format.SampledLaunch, What: what, Recorded: recorded, OverheadPct: 12.5, MaxOverheadPct: 5})
	if err != nil {
		tp.t.Fatal(err)
	}
	tp.add(format.Row{Kind: format.KindNote, Name: format.NoteSampling, StartNs: epoch + at, Device: -1, Message: string(text)})
}

// left is a time from the beginning of a recording in which launches are left out.
type left struct{ from, to int64 }

// leftOut adds the notes of such times.
func (tp *tape) leftOut(times ...left) {
	for _, w := range times {
		tp.switched(w.from, format.SampledStacks, false)
		tp.switched(w.from, format.SampledCalls, false)
		if w.to > 0 {
			tp.switched(w.to, format.SampledStacks, true)
			tp.switched(w.to, format.SampledCalls, true)
		}
	}
}

// sampled is a training of 60 s that launches two kernels every 100 ms and waits; from 6 s on launches are recorded for 1 s in 10.
func sampled(t testing.TB) *tape {
	tp := newTape(t)
	tp.gpus()
	tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1})
	tp.stack(1, "launch_all", "train_step", "main", "_start")
	for at60 := int64(0); at60 < 60*second; at60 += 100 * ms {
		if at60 < 6*second || at60/second%10 == 5 {
			for k, kernel := range []string{"gemm<float>(int)", "add"} {
				l := at(tp.launched(at60+int64(k)*ms, 10*us, kernel, 7, 1), 1, "launch_all (train.cc:10)")
				l.GridX, l.GridY, l.GridZ, l.BlockX, l.BlockY, l.BlockZ = 128, 2, 1, 256, 1, 1
			}
		}
		tp.synced("cuStreamSynchronize", at60+50*ms, 40*ms, 7, 0)
	}
	tp.leftOut(left{6 * second, 15 * second}, left{16 * second, 25 * second}, left{26 * second, 35 * second}, left{36 * second, 45 * second}, left{46 * second, 55 * second}, left{56 * second, 0})
	return tp
}

func TestSampledLaunchesAreEstimated(t *testing.T) {
	tl := sampled(t).timeline()
	for name, want := range map[string]map[string]float64{
		// 6 + 5 of 60 s, 20 launches a second and 10 waits.
		"kernels": {"launches": 220, "estimated_launches": 1200, "launches_per_second": 20, "launches_recorded_ns": 11e9, "max_overhead_pct": 5, "overhead_seen_pct": 12.5},
		"api":     {"calls": 220 + 600, "estimated_calls": 1200 + 600, "estimated_total_ns": 1200*10e3 + 600*40e6},
		"gaps":    {"launches": 220},
	} {
		r, err := callReports(tl)[name](query.Options{Top: 8})
		if err != nil {
			t.Fatal(err)
		}
		numbers(t, r, want)
		checkReport(t, name, r)
		if text := string(rendered(t, r, render.Options{})); !strings.Contains(text, "launches recorded 11.0 of 60.0 s (--max-overhead)") {
			t.Errorf("%s does not say it:\n%s", name, text)
		}
		if !strings.Contains(strings.Join(r.Notes, "\n"), "launches recorded 11.0 of 60.0 s") {
			t.Errorf("%s has notes %q", name, r.Notes)
		}
		if name == "kernels" {
			goldens(t, r, "sampled.kernels", 110)
		}
	}
	summary, err := summarypkg.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cells(t, summary, "kernels", "estimated_launches"), " "); got != "600 600" {
		t.Errorf("summary: kernels %s", got)
	}
	var trace bytes.Buffer
	if _, err := perfetto.Write(tl, &trace, perfetto.Options{}); err != nil || !bytes.Contains(trace.Bytes(), []byte("launches not recorded (--max-overhead)")) {
		t.Errorf("the trace does not say it, %v", err)
	}
}

// Where everything is recorded, reports are as they were.
func TestNothingIsEstimatedWhereNothingWasSampled(t *testing.T) {
	r, err := kernels.Run(working(t).timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(rendered(t, r, render.Options{Format: "json"})); strings.Contains(text, "estimated_launches") || strings.Contains(text, "launches_recorded_ns") {
		t.Error(text)
	}
}

func TestWeightsOfLaunches(t *testing.T) {
	for name, c := range map[string]struct {
		times  []left
		window left
		want   string // weights in the middle of every 10 s
	}{
		"in the middle":    {[]left{{20 * second, 30 * second}}, left{0, 60 * second}, "1 1.5 - 1.5 1 1"},
		"at the beginning": {[]left{{0, 10 * second}}, left{0, 60 * second}, "- 2 1 1 1 1"},
		"at the end":       {[]left{{40 * second, 0}}, left{0, 60 * second}, "1 1 2 2 - -"},
		"two":              {[]left{{10 * second, 20 * second}, {30 * second, 50 * second}}, left{0, 60 * second}, "1.5 - 2.5 - - 2"},
		"of a window":      {[]left{{10 * second, 50 * second}}, left{20 * second, 60 * second}, "1 - - - - 4"},
		"outside of it":    {[]left{{50 * second, 60 * second}}, left{0, 50 * second}, "nothing"},
		"all of it":        {[]left{{0, 0}}, left{0, 60 * second}, "1 1 1 1 1 1"},
	} {
		tp := newTape(t)
		tp.leftOut(c.times...)
		tl := tp.timeline()
		w := tl.LaunchWeights(query.Window{FromNs: epoch + c.window.from, ToNs: epoch + c.window.to})
		var got []string
		for s := int64(5); s < 60 && w != nil; s += 10 {
			ns := epoch + s*second
			if tl.GapNs(ns, ns+1) > 0 && name != "all of it" {
				got = append(got, "-")
				continue
			}
			got = append(got, fmt.Sprint(float64(w.At(ns))/sampling.Thousandth))
		}
		if w == nil {
			got = []string{"nothing"}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %s, want %s", name, text, c.want)
		}
	}
}

// A program runs faster while its launches are not recorded: the other calls tell how much.
func TestEstimatesFollowOtherCalls(t *testing.T) {
	tp := newTape(t)
	for ns := int64(0); ns < 60*second; ns += 20 * ms {
		if blind := ns >= 10*second && ns < 19*second; !blind {
			for k := range int64(4) {
				tp.launched(ns+k*ms, us, "gemm", 7, 1)
			}
			tp.synced("cuStreamSynchronize", ns+10*ms, us, 7, 0)
		} else {
			tp.synced("cuStreamSynchronize", ns+5*ms, us, 7, 0)
			tp.synced("cuStreamSynchronize", ns+10*ms, us, 7, 0)
			tp.synced("cuStreamSynchronize", ns+15*ms, us, 7, 0)
		}
	}
	tp.leftOut(left{10 * second, 19 * second})
	r, err := kernels.Run(tp.timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	numbers(t, r, map[string]float64{"launches": 51 * 50 * 4, "estimated_launches": 51*50*4 + 9*50*3*4})
}

// Whatever a file claims, nothing panics and no number is absurd.
func TestSwitchesOfADamagedFile(t *testing.T) {
	tp := sampled(t)
	tp.switched(-epoch, format.SampledCalls, false)
	tp.switched(math.MaxInt64-epoch, format.SampledCalls, true)
	tp.switched(30*second, format.SampledCalls, false)
	tp.switched(30*second, format.SampledCalls, true)
	tp.switched(30*second, "colours", false)
	for _, text := range []string{"", "{", `{"class":"copy","what":"calls"}`, `{"class":7}`} {
		tp.add(format.Row{Kind: format.KindNote, Name: format.NoteSampling, StartNs: epoch + 31*second, Message: text})
	}
	tl := tp.timeline()
	for name, make := range callReports(tl) {
		r, err := make(query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkReport(t, name, r)
		if l := r.Quality.Launches; l.LaunchesNs < 0 || l.LaunchesNs > l.OfNs || l.StacksNs < 0 || l.StacksNs > l.OfNs {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// An interval of which launches were not recorded is no gap; one that was seen is.
func TestNoGapsWhereLaunchesWereNotRecorded(t *testing.T) {
	tp := newTape(t)
	for _, ns := range []int64{0, 1, 2, 12, 13, 15, 16, 17} {
		tp.launched(ns*second, 10*us, "gemm", 7, 1)
	}
	tp.leftOut(left{2*second + 500*ms, 11*second + 500*ms})
	r, err := gaps.Run(tp.timeline(), gaps.Options{MinGapNs: 1500 * ms})
	if err != nil {
		t.Fatal(err)
	}
	// From 13 to 15 s; from 2 to 12 s nothing is known. 17 s less the 9 that were not recorded.
	numbers(t, r, map[string]float64{"gaps": 1, "gap_max_ns": 2e9 - 10e3, "gap_pct": 100 * (2e9 - 10e3) / (8e9 + 10e3)})
}

func TestHangWhereLaunchesWereNotRecorded(t *testing.T) {
	const launch, sync = format.KindLaunch, format.KindSync
	for name, c := range map[string]struct {
		tape func(*tape)
		want string
	}{
		"silent since launches are not recorded": {func(tp *tape) {
			tp.working(42, 42, 0, 51*second, launch, "cuLaunchKernel")
			tp.leftOut(left{51 * second, 0})
		}, "alive low"},
		"silent before that": {func(tp *tape) {
			tp.working(42, 42, 0, 30*second, launch, "cuLaunchKernel")
			tp.leftOut(left{51 * second, 0})
		}, "idle medium"},
		"silent in between": {func(tp *tape) {
			tp.working(42, 42, 0, 10*second, launch, "cuLaunchKernel")
			tp.working(42, 42, 19*second, 20*second, launch, "cuLaunchKernel")
			tp.working(42, 42, 29*second, 30*second, launch, "cuLaunchKernel")
			tp.leftOut(left{10 * second, 19 * second}, left{20 * second, 29 * second}, left{30 * second, 39 * second})
		}, "idle medium"},
		"no launches are made": {func(tp *tape) {
			tp.working(42, 42, 0, 51*second, sync, "cuStreamSynchronize")
			tp.leftOut(left{51 * second, 0})
		}, "idle high"},
		"in a call": {func(tp *tape) {
			tp.working(42, 42, 0, 50*second, launch, "cuLaunchKernel")
			tp.opened(42, 42, 50*second, sync, "cuStreamSynchronize")
			tp.leftOut(left{51 * second, 0})
		}, "hanging high"},
	} {
		tp := newTape(t)
		tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1})
		c.tape(tp)
		r := hang(t, tp, hangpkg.Options{})
		got := cells(t, r, "threads", "verdict")[0] + " " + cells(t, r, "threads", "confidence")[0]
		if got != c.want {
			t.Errorf("%s: %s, want %s\n%s", name, got, c.want, rendered(t, r, render.Options{}))
		}
	}
}
