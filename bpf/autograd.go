package bpf

// EngineFunctions has a row for each probed function of PyTorch's autograd engine. Its calls have no rows in a
// recording: they tell which line of the program the engine's threads work for.
var EngineFunctions = []ProbedFunction{
	// torch::autograd::Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs), PyTorch 1.8
	// to 2.11.
	{
		Name:   "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_",
		Class:  CudaCallClassCLASS_ENGINE,
		Decode: CudaCallDecodeDECODE_ENGINE,
	},
}

// EngineCookie returns the attach cookie of row index row of EngineFunctions.
func EngineCookie(row int) uint16 { return CollectiveCookie(len(CollectiveFunctions)) + uint16(row) }

// NumCookies returns the number of all attach cookies.
func NumCookies() int { return int(EngineCookie(len(EngineFunctions))) }
