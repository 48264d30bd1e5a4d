package symbolize

import "testing"

func TestSiteFrame(t *testing.T) {
	type frame struct{ module, function string }
	const libcuda, torch, app = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", "/venv/torch/lib/libtorch_cuda.so", "/app/train"
	leaf := frame{libcuda, "cuMemAlloc_v2"}
	for name, c := range map[string]struct {
		frames []frame
		want   int
	}{
		"no stack":                               {nil, -1},
		"only the call":                          {[]frame{leaf}, 0},
		"the program calls the driver":           {[]frame{leaf, {app, "step"}, {app, "main"}}, 1},
		"libraries are passed over":              {[]frame{leaf, {"/x/libcudart.so.12", "cudaMalloc"}, {torch, "at::empty"}, {app, "step"}, {app, "main"}}, 3},
		"a static runtime is passed over":        {[]frame{leaf, {app, "libcudart_static_5382377d"}, {app, "__cudart516"}, {app, "cudaMalloc"}, {app, "step"}}, 4},
		"a function without name counts":         {[]frame{leaf, {app, ""}, {app, "main"}}, 1},
		"addresses in no file do not":            {[]frame{leaf, {"", ""}, {"[stack]", ""}, {app, "main"}}, 3},
		"code made at run time does":             {[]frame{leaf, {torch, "f"}, {"", "py::step:/app/train.py"}, {app, "main"}}, 2},
		"python does":                            {[]frame{leaf, {torch, "f"}, {"/usr/lib/libpython3.12.so.1.0", "_PyEval"}, {"train.py", "step"}}, 3},
		"only plumbing: the outermost name":      {[]frame{leaf, {torch, "f"}, {torch, "g"}, {torch, ""}}, 2},
		"only plumbing without names":            {[]frame{leaf, {torch, ""}, {torch, ""}}, 1},
		"a library of the program is its own":    {[]frame{leaf, {"/app/libstep.so", "step"}}, 1},
		"libraries that begin alike are own":     {[]frame{leaf, {"/app/libctrain.so", "step"}, {app, "main"}}, 1},
		"functions that begin alike are own":     {[]frame{leaf, {app, "cudaMalloc_wrapper(int)"}}, 1},
		"Windows paths":                          {[]frame{leaf, {`C:\cuda\libcudart.so.12`, "f"}, {`C:\app\train.exe`, ""}}, 2},
		"garbage only: the caller":               {[]frame{leaf, {"", ""}, {"[stack]", ""}}, 1},
		"garbage behind a name: the named one":   {[]frame{leaf, {torch, "f"}, {"", ""}}, 1},
		"__cudaRegisterFatBinary is the runtime": {[]frame{leaf, {app, "__cudaRegisterFatBinary"}, {app, "main"}}, 2},
	} {
		got := SiteFrame(len(c.frames), func(i int) (string, string) { return c.frames[i].module, c.frames[i].function })
		if got != c.want {
			t.Errorf("%s: frame %d, want %d", name, got, c.want)
		}
	}
}

func TestFrameName(t *testing.T) {
	for want, got := range map[string]string{
		"step":        FrameName("step", "/app/train", 1),
		"train+0x1f0": FrameName("", "/app/train", 0x1f0),
		"t.exe+0x1f0": FrameName("", `C:\app\t.exe`, 0x1f0),
		"0x7fff":      FrameName("", "", 0x7fff),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
