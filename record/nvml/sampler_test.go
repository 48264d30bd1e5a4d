//go:build linux && cgo

package nvml

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/rows"
	"github.com/gpurec/gpurec/record/simtest"
)

// simcudaDir is the folder of `make simcuda`.
const simcudaDir = "../../build/simcuda"

func openSimNVML(t *testing.T) *Sampler {
	t.Helper()
	tel, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tel.Close)
	return tel
}

// sampleAll runs all queries of the first device n times and returns the rows of the last time by
// metric.
func sampleAll(t *testing.T, tel *Sampler, n int) map[string][]format.Row {
	t.Helper()
	sent := make(chan []format.Row, 64)
	byName := make(map[string][]format.Row)
	for range n {
		clear(byName)
		tel.devices[0].runDueQueries(clock.New(), time.Now(), time.Hour, rows.NewSender(sent))
		for _, row := range <-sent {
			byName[row.Name] = append(byName[row.Name], row)
		}
	}
	return byName
}

// simAnswers are distinct answers for all metrics of a device.
var simAnswers = map[string]struct {
	metrics []string
	values  []float64
}{
	"nvmlDeviceGetUtilizationRates": {
		[]string{"gpu_utilization_percent", "memory_utilization_percent"},
		[]float64{71, 33},
	},
	"nvmlDeviceGetMemoryInfo_v2": {
		[]string{"memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"},
		[]float64{5 << 30, 2 << 30, 1<<30 + 7},
	},
	"nvmlDeviceGetBAR1MemoryInfo":     {[]string{"bar1_used_bytes"}, []float64{12345}},
	"nvmlDeviceGetEncoderUtilization": {[]string{"encoder_utilization_percent"}, []float64{11}},
	"nvmlDeviceGetDecoderUtilization": {[]string{"decoder_utilization_percent"}, []float64{12}},
	"nvmlDeviceGetJpgUtilization":     {[]string{"jpeg_utilization_percent"}, []float64{13}},
	"nvmlDeviceGetOfaUtilization":     {[]string{"ofa_utilization_percent"}, []float64{14}},
	"nvmlDeviceGetEncoderStats": {
		[]string{"encoder_sessions", "encoder_frames_per_second", "encoder_latency_microseconds"},
		[]float64{3, 60, 4100},
	},
	"nvmlDeviceGetPowerUsage":                  {[]string{"power_milliwatts"}, []float64{412345}},
	"nvmlDeviceGetEnforcedPowerLimit":          {[]string{"power_limit_milliwatts"}, []float64{650000}},
	"nvmlDeviceGetTotalEnergyConsumption":      {[]string{"energy_millijoules"}, []float64{1 << 50}},
	"nvmlDeviceGetTemperature":                 {[]string{"temperature_celsius"}, []float64{66}},
	"nvmlDeviceGetFanSpeed":                    {[]string{"fan_speed_percent"}, []float64{41}},
	"nvmlDeviceGetClockInfo:1":                 {[]string{"sm_clock_mhz"}, []float64{1755}},
	"nvmlDeviceGetClockInfo:2":                 {[]string{"memory_clock_mhz"}, []float64{3202}},
	"nvmlDeviceGetClockInfo:0":                 {[]string{"graphics_clock_mhz"}, []float64{1756}},
	"nvmlDeviceGetClockInfo:3":                 {[]string{"video_clock_mhz"}, []float64{1545}},
	"nvmlDeviceGetApplicationsClock:0":         {[]string{"application_graphics_clock_mhz"}, []float64{1830}},
	"nvmlDeviceGetApplicationsClock:2":         {[]string{"application_memory_clock_mhz"}, []float64{2619}},
	"nvmlDeviceGetCurrentClocksEventReasons":   {[]string{"clock_event_reasons"}, []float64{0x24}},
	"nvmlDeviceGetPerformanceState":            {[]string{"performance_state"}, []float64{2}},
	"nvmlDeviceGetCurrPcieLinkGeneration":      {[]string{"pcie_link_generation"}, []float64{4}},
	"nvmlDeviceGetCurrPcieLinkWidth":           {[]string{"pcie_link_width_lanes"}, []float64{8}},
	"nvmlDeviceGetPcieThroughput:0":            {[]string{"pcie_tx_kilobytes_per_second"}, []float64{1111}},
	"nvmlDeviceGetPcieThroughput:1":            {[]string{"pcie_rx_kilobytes_per_second"}, []float64{2222}},
	"nvmlDeviceGetPcieReplayCounter":           {[]string{"pcie_replays"}, []float64{17}},
	"nvmlDeviceGetNvLinkErrorCounter:0":        {[]string{"nvlink_replay_errors"}, []float64{21}},
	"nvmlDeviceGetNvLinkErrorCounter:1":        {[]string{"nvlink_recovery_errors"}, []float64{22}},
	"nvmlDeviceGetNvLinkErrorCounter:2":        {[]string{"nvlink_crc_flit_errors"}, []float64{23}},
	"nvmlDeviceGetNvLinkErrorCounter:3":        {[]string{"nvlink_crc_data_errors"}, []float64{24}},
	"nvmlDeviceGetNvLinkErrorCounter:4":        {[]string{"nvlink_ecc_data_errors"}, []float64{25}},
	"nvmlDeviceGetNvLinkState:0":               {[]string{"nvlink_active_links"}, []float64{1}},
	"nvmlDeviceGetTotalEccErrors:0":            {[]string{"ecc_corrected_volatile_errors"}, []float64{31}},
	"nvmlDeviceGetTotalEccErrors:10":           {[]string{"ecc_uncorrected_volatile_errors"}, []float64{32}},
	"nvmlDeviceGetTotalEccErrors:1":            {[]string{"ecc_corrected_aggregate_errors"}, []float64{33}},
	"nvmlDeviceGetTotalEccErrors:11":           {[]string{"ecc_uncorrected_aggregate_errors"}, []float64{34}},
	"nvmlDeviceGetRetiredPages:0":              {[]string{"retired_pages_single_bit"}, []float64{5}},
	"nvmlDeviceGetRetiredPages:1":              {[]string{"retired_pages_double_bit"}, []float64{6}},
	"nvmlDeviceGetRetiredPagesPendingStatus:0": {[]string{"retired_pages_pending"}, []float64{1}},
	"nvmlDeviceGetRemappedRows": {
		[]string{
			"remapped_rows_correctable",
			"remapped_rows_uncorrectable",
			"remapped_rows_pending",
			"remapped_rows_failure",
		},
		[]float64{7, 8, 1, 1},
	},
	"nvmlDeviceGetFieldValues:186": {[]string{"power_instant_milliwatts"}, []float64{433000}},
	"nvmlDeviceGetFieldValues:185": {[]string{"power_average_milliwatts"}, []float64{422000}},
	"nvmlDeviceGetFieldValues:82":  {[]string{"memory_temperature_celsius"}, []float64{77}},
	"nvmlDeviceGetFieldValues:74":  {[]string{"throttled_power_nanoseconds"}, []float64{1e9}},
	"nvmlDeviceGetFieldValues:76":  {[]string{"throttled_sync_boost_nanoseconds"}, []float64{2e9}},
	"nvmlDeviceGetFieldValues:251": {[]string{"throttled_thermal_nanoseconds"}, []float64{3e9}},
	"nvmlDeviceGetFieldValues:252": {[]string{"throttled_hardware_thermal_nanoseconds"}, []float64{4e9}},
	"nvmlDeviceGetFieldValues:253": {[]string{"throttled_power_brake_nanoseconds"}, []float64{5e9}},
	"nvmlDeviceGetFieldValues:138": {[]string{"nvlink_tx_kibibytes"}, []float64{1 << 40}},
	"nvmlDeviceGetFieldValues:139": {[]string{"nvlink_rx_kibibytes"}, []float64{1<<40 + 1}},
	"nvmlGpmMetricsGet:1":          {[]string{"gpm_graphics_active_percent"}, []float64{99.5}},
	"nvmlGpmMetricsGet:2":          {[]string{"gpm_sm_active_percent"}, []float64{95.25}},
	"nvmlGpmMetricsGet:3":          {[]string{"gpm_sm_occupancy_percent"}, []float64{14.125}},
	"nvmlGpmMetricsGet:4":          {[]string{"gpm_integer_active_percent"}, []float64{1.5}},
	"nvmlGpmMetricsGet:5":          {[]string{"gpm_tensor_active_percent"}, []float64{92}},
	"nvmlGpmMetricsGet:6":          {[]string{"gpm_tensor_fp64_active_percent"}, []float64{0.5}},
	"nvmlGpmMetricsGet:7":          {[]string{"gpm_tensor_fp16_active_percent"}, []float64{91}},
	"nvmlGpmMetricsGet:9":          {[]string{"gpm_tensor_integer_active_percent"}, []float64{0.25}},
	"nvmlGpmMetricsGet:10":         {[]string{"gpm_dram_bandwidth_percent"}, []float64{44}},
	"nvmlGpmMetricsGet:11":         {[]string{"gpm_fp64_active_percent"}, []float64{2}},
	"nvmlGpmMetricsGet:12":         {[]string{"gpm_fp32_active_percent"}, []float64{3}},
	"nvmlGpmMetricsGet:13":         {[]string{"gpm_fp16_active_percent"}, []float64{4}},
	"nvmlGpmMetricsGet:20":         {[]string{"gpm_pcie_tx_mebibytes_per_second"}, []float64{501}},
	"nvmlGpmMetricsGet:21":         {[]string{"gpm_pcie_rx_mebibytes_per_second"}, []float64{502}},
	"nvmlGpmMetricsGet:60":         {[]string{"gpm_nvlink_rx_mebibytes_per_second"}, []float64{503}},
	"nvmlGpmMetricsGet:61":         {[]string{"gpm_nvlink_tx_mebibytes_per_second"}, []float64{504}},
}

func TestEveryMetricIsWhatNVMLSays(t *testing.T) {
	testclass.Unit(t)
	answers := simtest.LoadSimulatedNVML(t, simcudaDir)
	var lines []string
	want := map[string]float64{"memory_total_bytes": 8 << 30}
	for key, a := range simAnswers {
		lines = append(lines, key+" "+strings.Trim(fmt.Sprint(a.values), "[]"))
		for i, name := range a.metrics {
			want[name] = a.values[i]
		}
	}
	simtest.SetNVMLAnswers(t, answers, lines...)
	got := sampleAll(t, openSimNVML(t), 2)
	for name, value := range want {
		rows := got[name]
		if len(rows) != 1 || rows[0].Value != value || rows[0].Device != 0 || rows[0].Pid != 0 || rows[0].DurNs <= 0 {
			t.Errorf("%s: want %v, got %+v", name, value, rows)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && !isOfOneLink(name) {
			t.Errorf("%s was not asked for by the test", name)
		}
	}
	t.Logf("%d metrics compared", len(want))

	// 0 is a valid value.
	for i, line := range lines {
		key, _, _ := strings.Cut(line, " ")
		lines[i] = key + " 0 0 0 0"
	}
	simtest.SetNVMLAnswers(t, answers, lines...)
	got = sampleAll(t, openSimNVML(t), 2)
	for name := range want {
		if rows := got[name]; len(rows) != 1 || name != "memory_total_bytes" && rows[0].Value != 0 {
			t.Errorf("%s: want one row with 0, got %+v", name, rows)
		}
	}
}

// isOfOneLink reports whether a metric is a counter of a single NVLink.
func isOfOneLink(name string) bool {
	is, _ := regexp.MatchString(`^nvlink\d+_\w+_errors$`, name)
	return is
}

// TestNVLinkErrorsHaveTheirLink checks the counters of single NVLinks: those that are not 0.
func TestNVLinkErrorsHaveTheirLink(t *testing.T) {
	testclass.Unit(t)
	answers := simtest.LoadSimulatedNVML(t, simcudaDir)
	simtest.SetNVMLAnswers(
		t, answers, "nvmlDeviceGetNvLinkErrorCounter:0 7", "nvmlDeviceGetNvLinkErrorCounter:10 0",
		"nvmlDeviceGetNvLinkErrorCounter:30 5", "nvmlDeviceGetNvLinkErrorCounter:32 2",
	)
	got := make(map[string]float64)
	for name, rows := range sampleAll(t, openSimNVML(t), 1) {
		if strings.HasPrefix(name, "nvlink") && strings.HasSuffix(name, "_errors") {
			got[name] = rows[0].Value
		}
	}
	want := map[string]float64{
		"nvlink_replay_errors": 12, "nvlink0_replay_errors": 7, "nvlink3_replay_errors": 5,
		"nvlink_crc_flit_errors": 2, "nvlink3_crc_flit_errors": 2,
	}
	if !maps.Equal(got, want) {
		t.Errorf("counters %v, want %v", got, want)
	}
}

func TestMetricsThatAreNotSupportedHaveNoRows(t *testing.T) {
	testclass.Unit(t)
	answers := simtest.LoadSimulatedNVML(t, simcudaDir)
	everything := make([]string, 0, len(simAnswers))
	for key := range simAnswers {
		everything = append(everything, key+" not_supported")
	}
	simtest.SetNVMLAnswers(t, answers, everything...)
	got := sampleAll(t, openSimNVML(t), 2)
	// An older function reports the memory and the clocks' reasons, as with an older driver.
	left := slices.Sorted(maps.Keys(got))
	if want := []string{
		"clock_event_reasons",
		"memory_free_bytes",
		"memory_total_bytes",
		"memory_used_bytes",
	}; !slices.Equal(
		left,
		want,
	) {
		t.Errorf("rows of %q", left)
	}
	// A typical server card has no fan, no NVLinks and no retired pages.
	simtest.SetNVMLAnswers(t, answers)
	got = sampleAll(t, openSimNVML(t), 2)
	for _, name := range []string{
		"fan_speed_percent",
		"nvlink_active_links",
		"retired_pages_pending",
		"memory_temperature_celsius",
		"gpm_nvlink_rx_mebibytes_per_second",
	} {
		if rows, ok := got[name]; ok {
			t.Errorf("not supported, but %+v", rows)
		}
	}
	if rows := got["ecc_uncorrected_volatile_errors"]; len(rows) != 1 || rows[0].Value != 0 {
		t.Errorf("no errors are 0 errors, not %+v", rows)
	}
}

func TestFormatDescribesEveryMetric(t *testing.T) {
	testclass.Unit(t)
	text, err := os.ReadFile("../../format/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### Metrics of `nvml` rows")
	section, _, _ = strings.Cut(section, "\n## ")
	described := make(map[string]bool)
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, name := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
				described[name[1]] = true
			}
		}
	}
	recorded := map[string]bool{
		"process_used_memory_bytes":           true,
		"process_sm_utilization_percent":      true,
		"process_memory_utilization_percent":  true,
		"process_encoder_utilization_percent": true,
		"process_decoder_utilization_percent": true,
	}
	for _, m := range functionMetrics {
		for _, name := range m.names {
			recorded[name] = true
		}
	}
	for _, f := range fieldMetrics {
		recorded[f.name] = true
	}
	for _, g := range gpmMetrics {
		recorded[g.name] = true
	}
	if !maps.Equal(described, recorded) {
		for name := range recorded {
			if !described[name] {
				t.Errorf("FORMAT.md does not describe %s", name)
			}
		}
		for name := range described {
			if !recorded[name] {
				t.Errorf("FORMAT.md describes %s, which is not recorded", name)
			}
		}
	}
}

func TestLostDeviceIsNotedOnce(t *testing.T) {
	testclass.Unit(t)
	answers := simtest.LoadSimulatedNVML(t, simcudaDir)
	simtest.SetNVMLAnswers(t, answers)
	t.Setenv("SIMCUDA_DEVICES", "2")
	tel := openSimNVML(t)
	sent := make(chan []format.Row, 1024)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		tel.Run(clock.New(), 5*time.Millisecond, rows.NewSender(sent), stop)
		close(ended)
	}()
	var notes []string
	lastOf := map[int32]int64{}
	collect := func(sampled []format.Row) {
		for _, r := range sampled {
			if r.Kind == format.KindNote {
				notes = append(notes, r.Message)
			} else {
				lastOf[r.Device] = max(lastOf[r.Device], r.StartNs)
			}
		}
	}
	collectUntil := func(ok func() bool) {
		t.Helper()
		for deadline := time.After(5 * time.Minute); !ok(); {
			select {
			case sampled := <-sent:
				collect(sampled)
			case <-deadline:
				t.Fatalf("notes: %q, last rows of the devices at %v", notes, lastOf)
			}
		}
	}
	collectUntil(func() bool { return len(lastOf) == 2 })
	simtest.SetNVMLAnswers(t, answers, "0/nvmlDeviceGetPowerUsage lost", "1/nvmlDeviceGetPerformanceState unknown")
	collectUntil(func() bool { return len(notes) == 2 && lastOf[1]-lastOf[0] >= 50e6 })
	close(stop)
	<-ended
	for len(sent) > 0 {
		collect(<-sent)
	}
	slices.Sort(notes)
	if len(notes) != 2 || !strings.HasPrefix(notes[0], "device 0 (GPU-") ||
		!strings.HasSuffix(notes[0], "has stopped answering: GPU is lost") ||
		!strings.HasPrefix(notes[1], "performance_state of device 1 is missing") {
		t.Errorf("notes: %q", notes)
	}
	if lastOf[1]-lastOf[0] < 50e6 {
		t.Errorf("device 0 was asked until %d ms before device 1", (lastOf[1]-lastOf[0])/1e6)
	}
}

func TestMemoryOfMIGInstancesIsSummed(t *testing.T) {
	testclass.Unit(t)
	memory := sumMemoryByPid(
		[]nvml.ProcessInfo{
			{Pid: 1, UsedGpuMemory: 5},
			{Pid: 1, UsedGpuMemory: 6},
			{Pid: 2, UsedGpuMemory: 7},
			{Pid: 2, UsedGpuMemory: memoryNotAvailable},
		},
	)
	if len(memory) != 2 || memory[1] == nil || *memory[1] != 11 || memory[2] != nil {
		t.Errorf("%v", memory)
	}
}
