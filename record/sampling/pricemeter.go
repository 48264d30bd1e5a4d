//go:build linux

package sampling

import (
	"io"
	"time"

	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/probe"
)

// priceMeter measures the price of a probe hit: the exception once, and the run time of the BPF programs again and
// again. Measuring run times costs about 40 ns per run, and turning it on changes kernel code.
type priceMeter struct {
	probes   *probe.Probes
	price    overhead.Price
	assumed  error     // why run times cannot be measured; nil: they can
	stats    io.Closer // open while the kernel measures run times
	began    time.Time // of the recording
	done     int       // number of measurements
	last     time.Time // of the last measurement
	unwindNs int64     // time spent on unwinding until the last call of end
}

// newPriceMeter measures the exception of a probe.
func newPriceMeter(probes *probe.Probes) (priceMeter, error) {
	exceptionNs, err := probes.MeasureExceptionNs()
	if err != nil {
		return priceMeter{}, err
	}
	m := priceMeter{
		probes: probes, price: overhead.NewPrice(exceptionNs), began: time.Now(), unwindNs: probes.UnwindingNs(),
	}
	stats, err := probe.EnableRunTimeStats()
	if err != nil {
		m.assumed = err
		return m, nil
	}
	return m, stats.Close()
}

// firstMeasurements is the number of measurements that follow each other without a pause at the start.
const firstMeasurements = 3

// begin starts to measure run times if it is time: at the start, once a second in the first five seconds, and then
// every ten seconds, but only while all calls are recorded.
func (m *priceMeter) begin(isComplete bool) {
	interval := 10 * time.Second
	switch {
	case m.assumed != nil || !isComplete || m.stats != nil:
		return
	case m.done < firstMeasurements:
		interval = 0
	case time.Since(m.began) < 5*time.Second:
		interval = time.Second
	}
	if time.Since(m.last) < interval {
		return
	}
	m.stats, _ = probe.EnableRunTimeStats() // without stats the price stays as it is
	ns, runs := m.probes.ReadRunTimes()
	m.price.Skip(ns, runs, m.unwindNs)
}

// end ends a measurement, and returns the time that was spent on unwinding since its last call, ns.
func (m *priceMeter) end() int64 {
	before := m.unwindNs
	m.unwindNs = m.probes.UnwindingNs()
	if m.stats != nil {
		ns, runs := m.probes.ReadRunTimes()
		m.price.Measure(ns, runs, m.unwindNs)
		m.stop()
		m.done++
		m.last = time.Now()
	}
	return m.unwindNs - before
}

// stop makes the kernel stop measuring run times.
func (m *priceMeter) stop() {
	if m.stats != nil {
		_ = m.stats.Close() // on an error, the kernel measures until the recorder exits
		m.stats = nil
	}
}
