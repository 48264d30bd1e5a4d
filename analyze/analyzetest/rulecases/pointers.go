package rulecases

import (
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
)

// useAfterFreeCase is a launch with a pointer into freed memory before the GPU fails. In the near miss, the address
// is allocated again.
func useAfterFreeCase() Case {
	const address, at = int64(0x7e0000000000), 59_900 * analyzetest.Ms
	program := func(tp *analyzetest.TestRecording) {
		analyzetest.SetStackAndSite(tp.AddAlloc(at, analyzetest.Us, address, analyzetest.Mib), 1, site)
		analyzetest.SetStackAndSite(tp.AddFree(at+analyzetest.Ms, analyzetest.Us, address), 1, site)
		launch := analyzetest.SetStackAndSite(
			tp.AddLaunch(at+10*analyzetest.Ms+7, analyzetest.Us, "gemm", 7, 0),
			1,
			site,
		)
		tp.AddKernelArgs(launch, format.ArgumentsFromModule, uint64(address)+256, 17)
		analyzetest.SetStackAndSite(
			tp.AddSync("cuStreamSynchronize", at+50*analyzetest.Ms, analyzetest.Ms, 7, 0), 1, site).Result = 700
	}
	return Case{
		Fires: program,
		Misses: func(tp *analyzetest.TestRecording) {
			program(tp)
			analyzetest.SetStackAndSite(
				tp.AddAlloc(at+2*analyzetest.Ms, analyzetest.Us, address, analyzetest.Mib),
				1,
				site,
			)
		},
		Where: site, Severity: "problem", Also: "broken-context",
	}
}
