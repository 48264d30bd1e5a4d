package rulecases

import (
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
)

// useAfterFreeCase is a launch with a pointer into freed memory before the GPU fails. In the near miss, the address
// is allocated again.
func useAfterFreeCase() Case {
	const address, at = int64(0x7e0000000000), 59_900 * analyzetest.Ms
	program := func(recording *analyzetest.TestRecording) {
		analyzetest.SetStackAndSite(recording.AddAlloc(at, analyzetest.Us, address, analyzetest.Mib), 1, site)
		analyzetest.SetStackAndSite(recording.AddFree(at+analyzetest.Ms, analyzetest.Us, address), 1, site)
		launch := analyzetest.SetStackAndSite(
			recording.AddLaunch(at+10*analyzetest.Ms+7, analyzetest.Us, "gemm", 7, 0),
			1,
			site,
		)
		recording.AddKernelArgs(launch, format.ArgumentsFromModule, uint64(address)+256, 17)
		analyzetest.SetStackAndSite(
			recording.AddSync("cuStreamSynchronize", at+50*analyzetest.Ms, analyzetest.Ms, 7, 0), 1, site).Result = 700
	}
	return Case{
		Fires: program,
		Misses: func(recording *analyzetest.TestRecording) {
			program(recording)
			analyzetest.SetStackAndSite(
				recording.AddAlloc(at+2*analyzetest.Ms, analyzetest.Us, address, analyzetest.Mib),
				1,
				site,
			)
		},
		Where: site, Severity: "problem", Also: "broken-context",
	}
}
