//go:build linux

package switches

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
)

// pingPong passes a byte n times between two threads on one processor: 2 n context switches. It calls
// before with the IDs of the threads.
func pingPong(b *testing.B, n int, before func(tids [2]int)) {
	b.Helper()
	var there, back [2]*os.File
	for _, ends := range []*[2]*os.File{&there, &back} {
		var fds [2]int
		if err := unix.Pipe(fds[:]); err != nil { // blocking, so that the threads themselves wait
			b.Fatal(err)
		}
		ends[0], ends[1] = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
		defer ends[0].Close()
		defer ends[1].Close()
	}
	ids, begin, done := make(chan int, 2), make(chan struct{}), make(chan error, 2)
	player := func(in, out *os.File) {
		runtime.LockOSThread() // the thread ends with the goroutine
		var cpus unix.CPUSet
		cpus.Set(0)
		err := unix.SchedSetaffinity(0, &cpus)
		ids <- unix.Gettid()
		<-begin
		raw := []byte{0}
		for i := 0; i < n && err == nil; i++ {
			if _, err = unix.Read(int(in.Fd()), raw); err == nil {
				_, err = unix.Write(int(out.Fd()), raw)
			}
		}
		done <- err
	}
	go player(there[0], back[1])
	go player(back[0], there[1])
	before([2]int{<-ids, <-ids})
	b.ResetTimer()
	close(begin)
	if _, err := there[1].Write([]byte{0}); err != nil {
		b.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

// BenchmarkSwitch measures the price of a context switch without the program, with it for other
// threads, and with it for watched threads, and the same with the program of wake-ups. The difference to "none" is
// the price of the programs. A switch has about one wake-up.
func BenchmarkSwitch(b *testing.B) {
	for _, name := range []string{"none", "others", "others, wakings", "watched", "watched, wakings"} {
		b.Run(name, func(b *testing.B) {
			pingPong(b, b.N, func(tids [2]int) {
				if name == "none" {
					return
				}
				a, err := Open(time.Millisecond)
				if err != nil {
					testclass.Missing(b, err.Error())
				}
				b.Cleanup(a.Close)
				if strings.HasSuffix(name, "wakings") {
					if err := a.StartWakings(); err != nil {
						b.Fatal(err)
					}
				}
				for _, tid := range tids {
					if strings.HasPrefix(name, "watched") {
						if err := a.Watch(tid, 1, 0); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/switch")
		})
	}
}
