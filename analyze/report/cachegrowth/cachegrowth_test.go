package cachegrowth_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/cachegrowth"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const mib = analyzetest.Mib

// scan returns the findings of a recording, and the text of its facts.
func scan(t *testing.T, recording *analyzetest.TestRecording) ([]cachegrowth.Finding, string) {
	t.Helper()
	tl := recording.Timeline()
	f := &query.Filter{}
	s := cachegrowth.NewScan(tl, f, tl.ActivityWindow(f))
	if _, _, err := tl.ReplayMemoryAndAllocators(
		func(*livemem.Set, *livemem.Change) {},
		func(a *caching.Allocator, c *caching.AllocatorChange) { s.OnAllocatorChange(a, c) },
	); err != nil {
		t.Fatal(err)
	}
	findings := s.Finish()
	return findings, s.Facts(findings)[0].Value.(string)
}

func newProgram(t *testing.T, conf analyzetest.TorchConf) (*analyzetest.TestRecording, *analyzetest.CacheProgram) {
	recording := analyzetest.NewTestRecording(t)
	return recording, analyzetest.NewCacheProgram(recording, conf)
}

func TestEachCauseIsFound(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		run   func(p *analyzetest.CacheProgram)
		cause cachegrowth.Cause
		text  []string
	}{
		"longer requests": {
			func(p *analyzetest.CacheProgram) { p.RequestLonger(1000) },
			cachegrowth.CauseLonger,
			[]string{"live memory does not: requests in encode_batch (infer.py:33) become longer: ", "MiB to 121.0 MiB"},
		},
		"streams": {
			(*analyzetest.CacheProgram).RequestOnFreshStreams,
			cachegrowth.CauseStreams,
			[]string{"live memory does not: blocks of encode_batch (infer.py:33) belong to 5", " streams"},
		},
		"private pools": {
			(*analyzetest.CacheProgram).RequestInFreshPools,
			cachegrowth.CausePools,
			[]string{"live memory does not: blocks of encode_batch (infer.py:33) belong to 5", " private pools"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			recording, p := newProgram(t, analyzetest.TorchConf{})
			c.run(p)
			findings, text := scan(t, recording)
			if len(findings) != 1 {
				t.Fatalf("findings %+v", findings)
			}
			if findings[0].Cause != c.cause {
				t.Errorf("cause %d, want %d", findings[0].Cause, c.cause)
			}
			for _, want := range c.text {
				if !strings.Contains(text, want) {
					t.Errorf("text %q lacks %q", text, want)
				}
			}
			if site := findings[0].Sites[0].Label; site != analyzetest.CacheSite {
				t.Errorf("site %s", site)
			}
		})
	}
}

// TestStrandedBlocks has a small block in each segment of a freed large block.
func TestStrandedBlocks(t *testing.T) {
	testclass.Unit(t)
	s := analyzetest.NewTorchScript(t)
	for i := range int64(56) {
		s.Now = (2 + i) * analyzetest.Second
		ptr := 0x7f0000000000 + i*32*mib
		s.AddSegment(ptr, 24*mib)
		s.AddBlock(ptr, 16*mib, analyzetest.CacheSite)
		s.AddBlockFree(ptr, 16*mib)
		s.AddBlock(ptr, 10*mib, "embed (infer.py:20)")
		s.AddBlock(ptr+10*mib, 2*mib, "keep (infer.py:40)")
		s.AddBlockFree(ptr, 10*mib)
	}
	findings, text := scan(t, s.Tp)
	if len(findings) != 1 || findings[0].Cause != cachegrowth.CauseStranded {
		t.Fatalf("%q: %+v", text, findings)
	}
	if want := "live blocks cut the free memory into pieces too small for encode_batch (infer.py:33), requests of " +
		"16.0 MiB"; !strings.HasSuffix(text, want) {
		t.Errorf("text %q", text)
	}
}

func TestCachesThatDoNotGrow(t *testing.T) {
	testclass.Unit(t)
	for name, run := range map[string]func(p *analyzetest.CacheProgram){
		"growth only in the first third": func(p *analyzetest.CacheProgram) { p.RequestLonger(190) },
		"a leak": func(p *analyzetest.CacheProgram) {
			p.RunSteps(func(int64) { p.Request(30*mib, 0, 0) })
		},
		"a leak that strands less than it holds": func(p *analyzetest.CacheProgram) {
			p.RunSteps(func(int64) { p.Request(6*mib, 0, 0) })
		},
		"the busiest step uses the whole cache": func(p *analyzetest.CacheProgram) {
			p.RunSteps(func(i int64) {
				sizes := make([]int64, 1+i/10)
				for k := range sizes {
					sizes[k] = 20 * mib
				}
				p.UseBriefly(sizes...)
			})
		},
		"live memory that shrinks": func(p *analyzetest.CacheProgram) {
			var blocks []*analyzetest.TorchBlock
			for range 56 {
				blocks = append(blocks, p.Request(30*mib, 0, 0))
			}
			p.RunSteps(func(i int64) {
				if i%10 == 0 {
					p.FreeBlock(blocks[i/10])
				}
			})
		},
		"one stream": func(p *analyzetest.CacheProgram) {
			p.RunSteps(func(int64) { p.UseBriefly(64*mib, 64*mib) })
		},
		"requests of random sizes": func(p *analyzetest.CacheProgram) {
			p.RunSteps(func(int64) { p.UseBriefly(p.R.Int64N(100*mib), p.R.Int64N(100*mib)) })
		},
		"little growth": func(p *analyzetest.CacheProgram) {
			p.RunSteps(func(i int64) {
				if i%40 == 0 {
					p.FreeBlock(p.Request(mib, 0x100+i, 0))
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			recording, p := newProgram(t, analyzetest.TorchConf{})
			run(p)
			if findings, text := scan(t, recording); len(findings) > 0 || text != "" {
				t.Errorf("%q: %+v", text, findings)
			}
		})
	}
}

// TestExpandableSegmentsHelp runs the advice for longer requests.
func TestExpandableSegmentsHelp(t *testing.T) {
	testclass.Unit(t)
	recording, p := newProgram(t, analyzetest.TorchConf{Expandable: true})
	p.RequestLonger(1000)
	if findings, text := scan(t, recording); len(findings) > 0 {
		t.Errorf("%q: %+v", text, findings)
	}
}

// TestOnlyReportsGiveNoVerdict has an allocator whose segments are unknown.
func TestOnlyReportsGiveNoVerdict(t *testing.T) {
	testclass.Unit(t)
	recording, p := newProgram(t, analyzetest.TorchConf{Reports: true})
	p.RequestLonger(1000)
	if findings, text := scan(t, recording); len(findings) > 0 || text != "" {
		t.Errorf("%q: %+v", text, findings)
	}
}

// TestFreesOfTheEndAreNoGrowth has a program that frees its blocks step by step and then ends.
func TestFreesOfTheEndAreNoGrowth(t *testing.T) {
	testclass.Unit(t)
	recording, p := newProgram(t, analyzetest.TorchConf{})
	p.RunSteps(func(i int64) {
		if i < 400 {
			p.Request(20*mib, 0, 0)
		} else if len(p.Held) > 0 {
			p.FreeBlock(p.Held[0])
		}
	})
	recording.AddExit(42, 59*analyzetest.Second)
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "infer", Pid: 42, StartNs: analyzetest.Epoch, Device: -1},
	)
	if findings, text := scan(t, recording); len(findings) > 0 {
		t.Errorf("%q: %+v", text, findings)
	}
}
