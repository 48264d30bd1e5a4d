package objects_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/objects"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const (
	second = analyzetest.Second
	ms     = analyzetest.Ms
	us     = analyzetest.Us
)

// kind has the functions that create and destroy objects of a kind.
type kind struct{ name, create, destroy string }

// kinds are all kinds, each with one pair of functions.
var kinds = []kind{
	{"graph exec", "cuGraphInstantiateWithFlags", "cuGraphExecDestroy"},
	{"graph", "cuGraphCreate", "cuGraphDestroy"},
	{"event", "cuEventCreate", "cuEventDestroy_v2"},
	{"stream", "cuStreamCreateWithPriority", "cuStreamDestroy_v2"},
	{"module", "cuModuleLoadDataEx", "cuModuleUnload"},
	{"library", "cuLibraryLoadData", "cuLibraryUnload"},
	{"linker", "cuLinkCreate_v2", "cuLinkDestroy"},
	{"context", "cuCtxCreate_v3", "cuCtxDestroy_v2"},
	{"primary context", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"},
	{"green context", "cuGreenCtxCreate", "cuGreenCtxDestroy"},
	{"ipc memory", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"},
	{"memory pool", "cuMemPoolCreate", "cuMemPoolDestroy"},
	{"texture", "cuTexObjectCreate", "cuTexObjectDestroy"},
	{"surface", "cuSurfObjectCreate", "cuSurfObjectDestroy"},
	{"external memory", "cuImportExternalMemory", "cuDestroyExternalMemory"},
	{"semaphore", "cuImportExternalSemaphore", "cuDestroyExternalSemaphore"},
	{"graphics resource", "cuGraphicsGLRegisterBuffer", "cuGraphicsUnregisterResource"},
}

// program adds calls that create and destroy objects.
type program struct {
	*analyzetest.TestRecording
	handle int64
}

func newProgram(t testing.TB) *program {
	recording := analyzetest.NewTestRecording(t)
	for id, site := range []string{"leak", "pool", "burst", "step"} {
		recording.AddStack(int32(id+1), site, "main", "_start")
	}
	return &program{recording, 0x1000}
}

// call adds a call that takes 2 µs.
func (p *program) call(name string, at, handle int64) *format.Row {
	row := p.AddCall(format.KindAPI, name, at, 2*us)
	switch name {
	case "cuIpcOpenMemHandle_v2", "cuImportExternalMemory":
		row.Kind = format.KindBorrow
	case "cuIpcCloseMemHandle", "cuDestroyExternalMemory":
		row.Kind = format.KindReturn
	}
	row.Ptr, row.Context = handle, 0xc0
	return row
}

// create adds the creation of an object at a site, and returns its handle.
func (p *program) create(k kind, at int64, stack int32, site string) int64 {
	p.handle += 0x10
	analyzetest.SetStackAndSite(p.call(k.create, at, p.handle), stack, site+" (train.cc:10)")
	return p.handle
}

func (p *program) destroy(k kind, at, handle int64) { p.call(k.destroy, at, handle) }

// leak creates an object each second, and destroys none.
func (p *program) leak(k kind) {
	for at := second; at < 60*second; at += second {
		p.create(k, at, 1, "leak")
	}
}

// pool creates objects until a third of the time has passed, and keeps them.
func (p *program) pool(k kind) {
	for at := second + ms; at < 20*second; at += second / 2 {
		p.create(k, at, 2, "pool")
	}
}

// burst creates many objects at once, and some remain.
func (p *program) burst(k kind) {
	for i := range int64(300) {
		handle := p.create(k, 30*second+i*ms, 3, "burst")
		if i%3 > 0 {
			p.destroy(k, 33*second+i*ms, handle)
		}
	}
}

// steps creates and destroys objects in each step, and keeps the last four.
func (p *program) steps(k kind) {
	var held []int64
	for at := second + 2*ms; at < 60*second; at += 100 * ms {
		held = append(held, p.create(k, at, 4, "step"))
		if len(held) > 4 {
			p.destroy(k, at+ms, held[0])
			held = held[1:]
		}
	}
}

func run(t *testing.T, p *program, opt query.Options) *report.Report {
	t.Helper()
	r, err := objects.Run(p.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CheckSafeToPrint(t, r)
	return r
}

// siteRows returns the rows of the table sites as "kind verdict live site".
func siteRows(t *testing.T, r *report.Report) (list []string) {
	verdicts, live := analyzetest.ColumnTexts(t, r, "sites", "verdict"), analyzetest.ColumnTexts(t, r, "sites", "live")
	sites := analyzetest.ColumnTexts(t, r, "sites", "site")
	for i, kind := range analyzetest.ColumnTexts(t, r, "sites", "kind") {
		list = append(list, fmt.Sprintf("%s %s %s %s", kind, verdicts[i], live[i], strings.Fields(sites[i])[0]))
	}
	return list
}

func checkRows(t *testing.T, r *report.Report, want ...string) {
	t.Helper()
	if got := siteRows(t, r); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestLeakOfEachKind checks that a leak is found at the right kind and site, and neither a full pool,
// nor a burst, nor objects that come and go are accused.
func TestLeakOfEachKind(t *testing.T) {
	testclass.Unit(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			p := newProgram(t)
			p.leak(k)
			if k.name != "primary context" { // its references have no identity
				p.pool(k)
				p.burst(k)
				p.steps(k)
			}
			r := run(t, p, query.Options{})
			rows := siteRows(t, r)
			if len(rows) == 0 || rows[0] != k.name+" growing 59 leak" {
				t.Errorf("rows %q", rows)
			}
			for _, row := range rows[1:] {
				if strings.Contains(row, "growing") {
					t.Errorf("accused: %s", row)
				}
			}
			if k.name == "primary context" {
				return
			}
			checkRows(t, r, k.name+" growing 59 leak", k.name+" retained 100 burst", k.name+" retained 38 pool",
				k.name+" balanced 4 step")
		})
	}
}

// TestNoLeakOfAnyKind checks that without a leak, no kind and no site is accused.
func TestNoLeakOfAnyKind(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(t)
	for _, k := range kinds {
		if k.name != "primary context" {
			p.pool(k)
			p.burst(k)
			p.steps(k)
		}
	}
	analyzetest.CheckNumbers(t, run(t, p, query.Options{}), map[string]float64{"growing": 0, "older": 0, "unknown": 0})
}

func TestObjectsLookAsBefore(t *testing.T) {
	testclass.Unit(t)
	p := newProgram(t)
	p.leak(kinds[0])
	p.leak(kinds[2])
	p.pool(kinds[2])
	p.burst(kinds[3])
	p.steps(kinds[4])
	p.destroy(kinds[2], 5*second, 0x10) // older than the recording
	p.call("cuEventCreate", 59*second, 0).Flags = format.FlagOpen
	analyzetest.CompareGoldenReports(t, run(t, p, query.Options{Top: 20, MaxFrames: 12}), "objects", 130)
}

// TestServerLooksAsBefore reports a server that keeps a graph for each shape of its requests: the
// graphs grow, and each has a price.
func TestServerLooksAsBefore(t *testing.T) {
	testclass.Unit(t)
	r, err := objects.Run(analyzetest.ObjectRecording(t).Timeline(), query.Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "server", 130)
}
