package symbolize

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestDemangle(t *testing.T) {
	testclass.Unit(t)
	tests := []struct{ mangled, short, full string }{
		{"main", "main", "main"},
		{"", "", ""},
		{"_Z", "_Z", "_Z"},
		{"_Znotmangled", "_Znotmangled", "_Znotmangled"},
		{"cuMemAlloc_v2", "cuMemAlloc_v2", "cuMemAlloc_v2"},
		{"pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait@@GLIBC_2.3.2"},
		{"_Z3addPfS_S_", "add", "add(float*, float*, float*)"},
		{"_ZN5outer5twiceIiEET_S1_", "outer::twice<int>", "int outer::twice<int>(int)"},
		{"_ZNK5outer6Widget5totalEi", "outer::Widget::total", "outer::Widget::total(int) const"},
		{"_ZN5outer6WidgetC1Ei", "outer::Widget::Widget", "outer::Widget::Widget(int)"},
		{"_ZN5outer6WidgetD0Ev", "outer::Widget::~Widget", "outer::Widget::~Widget()"},
		{"_ZN5outer6WidgetixEi", "outer::Widget::operator[]", "outer::Widget::operator[](int)"},
		{
			"_ZZ3useiENKUliE_clEi",
			"use()::{lambda(int)#1}::operator()",
			"use(int)::{lambda(int)#1}::operator()(int) const",
		},
		{"_Z3fooi.cold", "foo", "foo(int) [clone .cold]"},
		{"_Z3fooi.constprop.0", "foo", "foo(int) [clone .constprop.0]"},
		{"_ZNSs4swapERSs@@GLIBCXX_3.4", "std::string::swap", "std::string::swap(std::string&)@@GLIBCXX_3.4"},
		{"_Z24__device_stub__Z3addPfS_PfS_", "__device_stub__Z3addPfS_", "__device_stub__Z3addPfS_(float*, float*)"},
		{
			"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
			"at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >",
			"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, " +
				"1ul> >" +
				"(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
		},
		// Rust symbols, legacy and v0 mangling.
		{"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad", "core::fmt::Formatter::pad"},
		{"_RNvC6_123foo3bar", "123foo::bar", "123foo::bar"},
		{"_RNvMs_NtCs1234_5crate3modNtB4_4Type4func", "<crate::mod::Type>::func", "<crate::mod::Type>::func"},
	}
	for _, test := range tests {
		if got := Demangle(test.mangled); got != test.short {
			t.Errorf("Demangle(%q) = %q, want %q", test.mangled, got, test.short)
		}
		if got := DemangleFull(test.mangled); got != test.full {
			t.Errorf("DemangleFull(%q) = %q, want %q", test.mangled, got, test.full)
		}
	}
}

// TestDemangleIsBounded checks that hostile names with deep nesting or exponential repetition do not
// take long.
func TestDemangleIsBounded(t *testing.T) {
	testclass.Unit(t)
	doubling := "_Z1fI" // each template doubles the one before: 2^40 names
	for i := range 40 {
		doubling += "1aI" + map[bool]string{true: "i", false: ""}[i == 0]
	}
	substitutions := "_Z1f1pIiiE" // p<int, int>, p<that, that>, …
	for _, s := range "_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		part := "S" + strings.TrimPrefix(string(s), "_") + "_"
		substitutions += "1pI" + part + part + "E"
	}
	crafted := map[string]string{
		"long":         "_Z" + strings.Repeat("a", 10<<20),
		"pointers":     "_Z1f" + strings.Repeat("P", maxMangledNameBytes-10) + "i",
		"nested names": "_ZN" + strings.Repeat("1a", maxMangledNameBytes/2-10) + "E",
		"templates": "_Z1f" + strings.Repeat(
			"1aI",
			maxMangledNameBytes/4-10,
		) + "i" + strings.Repeat(
			"E",
			maxMangledNameBytes/4-10,
		),
		"functions":     "_Z1f" + strings.Repeat("PF", maxMangledNameBytes/2-10) + "i",
		"local names":   "_Z" + strings.Repeat("Z1fv", 1) + strings.Repeat("Z", maxMangledNameBytes-20),
		"expressions":   "_Z1fIX" + strings.Repeat("ng", maxMangledNameBytes/2-20) + "Li1EEE",
		"doubling":      doubling,
		"substitutions": substitutions,
		"mangled still": "_ZN" + strings.Repeat("1a", maxMangledNameBytes/2) + "E",
		"rust slices":   "_RIC1a" + strings.Repeat("S", maxMangledNameBytes-20) + "iE",
		"rust tuples":   "_RIC1a" + strings.Repeat("T", maxMangledNameBytes-20) + "iE",
		"rust back":     "_RIC1aTiiETB4_B4_ETB8_B8_ETBc_Bc_ETBg_Bg_EE",
	}
	for name, mangled := range crafted {
		t.Run(name, func(t *testing.T) {
			var names []string
			if !isFast(5*time.Second, func() { names = []string{Demangle(mangled), DemangleFull(mangled)} }) {
				t.Error("takes more than 5 s")
			}
			for _, got := range names {
				if len(got) > maxUncutNameBytes+100 {
					t.Errorf("%d bytes", len(got))
				}
				if len(mangled) > maxUncutNameBytes && !strings.HasSuffix(got, "(cut, 10485762 bytes)") {
					t.Errorf("no note at the end: %q", got[len(got)-50:])
				}
			}
		})
	}
}

func FuzzDemangle(f *testing.F) {
	for _, s := range []string{
		"_Z3addPfS_S_", "_ZN5outer5twiceIiEET_S1_", "_RNvMs_NtCs1234_5crate3modNtB4_4Type4func",
		"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
		"___Z1f_block_invoke",
		"_GLOBAL__sub_I_x",
		"_ZZ3useiENKUliE_clEi@V",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var names []string
		if !isFast(2*time.Second, func() { names = []string{Demangle(s), DemangleFull(s)} }) {
			t.Fatal("takes more than 2 s")
		}
		for _, got := range names {
			if len(got) > maxUncutNameBytes+100 || (got == "") != (s == "") {
				t.Fatalf("%d bytes", len(got))
			}
		}
	})
}
