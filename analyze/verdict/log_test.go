package verdict

import (
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

const second = int64(time.Second)

func leakAt(where string) Finding {
	return Finding{
		Rule: "growing-site", Kind: KindLeak, Severity: "problem", Confidence: report.ConfidenceHigh,
		What: "memory grows", Where: where,
	}
}

func hangAt(where string, lasts time.Duration) Finding {
	return Finding{
		Rule: "hang", Kind: KindHang, Severity: "problem", Confidence: report.ConfidenceHigh, What: "hanging",
		Where: where, LastsNs: lasts.Nanoseconds(),
	}
}

// freshAt adds looks at these seconds, each with what find returns, and returns the seconds with a new verdict.
func freshAt(l *Log, seconds []int64, find func(at int64) []Finding) (fresh []int64) {
	for _, at := range seconds {
		look := Look{AtNs: at * second, Length: time.Duration(at) * time.Second, IsWhole: true, List: find(at)}
		for range l.Add(look) {
			fresh = append(fresh, at)
		}
	}
	return fresh
}

func checkFresh(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("new verdicts after %v s, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("new verdicts after %v s, want %v", got, want)
		}
	}
}

func TestLeakMustLast(t *testing.T) {
	testclass.Unit(t)
	seconds := []int64{3, 6, 9, 12, 15, 18, 21}
	always := func(int64) []Finding { return []Finding{leakAt("step")} }
	checkFresh(t, freshAt(NewLog(), seconds, always), 12)
	warmUp := func(at int64) []Finding {
		if at <= 6 {
			return always(at)
		}
		return nil
	}
	checkFresh(t, freshAt(NewLog(), seconds, warmUp))
	low := leakAt("step")
	low.Confidence = report.ConfidenceLow
	checkFresh(t, freshAt(NewLog(), seconds, func(int64) []Finding { return []Finding{low} }))
}

func TestLeakNeedsWholeLooks(t *testing.T) {
	testclass.Unit(t)
	l := NewLog()
	for at := int64(3); at < 30; at++ {
		look := Look{AtNs: at * second, Length: time.Minute, List: []Finding{leakAt("step")}}
		if fresh := l.Add(look); len(fresh) > 0 {
			t.Fatalf("%v after %d s", fresh, at)
		}
	}
	always := func(int64) []Finding { return []Finding{leakAt("step")} }
	freshAt(l, []int64{30, 37}, always)
	l.Add(Look{AtNs: 38 * second}) // it says nothing about memory
	if list := l.Current(); len(list) != 1 || !list[0].SoFar || list[0].AtNs != 37*second {
		t.Errorf("current: %+v", list)
	}
	freshAt(l, []int64{40}, func(int64) []Finding { return nil })
	if list := l.Current(); len(list) != 0 {
		t.Errorf("current after the leak has ended: %+v", list)
	}
}

func TestHangMustLast(t *testing.T) {
	testclass.Unit(t)
	l := NewLog()
	find := func(at int64) []Finding { // it hangs from 10 to 20 s and from 30 to 40 s
		if at%20 < 10 {
			return nil
		}
		return []Finding{hangAt("wait", time.Duration(at%10)*time.Second)}
	}
	seconds := []int64{11, 13, 15, 17, 19, 21, 31, 33, 36, 38}
	checkFresh(t, freshAt(l, seconds, find), 15, 36)
	unknown := func(int64) []Finding {
		return []Finding{{Rule: "rank-missing", Kind: KindHang, Confidence: report.ConfidenceHigh}}
	}
	checkFresh(t, freshAt(NewLog(), []int64{10, 12, 15, 18}, unknown), 15)
}

func TestErrorsAreCertainAtOnce(t *testing.T) {
	testclass.Unit(t)
	l := NewLog()
	f := Finding{Rule: "broken-context", Kind: KindError, Confidence: report.ConfidenceMedium}
	checkFresh(t, freshAt(l, []int64{3, 4, 5}, func(int64) []Finding { return []Finding{f} }), 3)
	if list := l.Current(); len(list) != 1 || list[0].SoFar {
		t.Errorf("current: %+v", list)
	}
}

func TestLogIsBounded(t *testing.T) {
	testclass.Unit(t)
	l := NewLog()
	for i := range 2 * maxStates {
		f := Finding{Rule: "broken-context", Kind: KindError, Where: time.Duration(i).String()}
		l.Add(Look{AtNs: second, IsWhole: true, List: []Finding{f}})
	}
	if len(l.states) != maxStates {
		t.Errorf("%d states", len(l.states))
	}
}

// TestSiteThatIsSeldomSeen has a leak whose site some windows of allocator events do not show.
func TestSiteThatIsSeldomSeen(t *testing.T) {
	testclass.Unit(t)
	l := NewLog()
	find := func(at int64) []Finding {
		if at%6 == 0 {
			return []Finding{leakAt("step")}
		}
		return []Finding{leakAt("(site not seen)")}
	}
	checkFresh(t, freshAt(l, []int64{9, 12, 15, 18, 21, 24, 27, 30, 33, 36}, find), 18)
	never := func(int64) []Finding { return []Finding{leakAt("(site not seen)")} }
	checkFresh(t, freshAt(NewLog(), []int64{9, 12, 15, 18, 21, 24, 27, 30, 33, 36}, never), 30)
}
