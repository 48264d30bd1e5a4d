package symbolize

import (
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestShortKernel shortens kernel names of PyTorch 2, CUTLASS, CUB and cuDNN.
func TestShortKernel(t *testing.T) {
	testclass.Unit(t)
	for full, want := range map[string]string{
		"gemm":   "gemm",
		"":       "",
		"f<int>": "f<int>",
		"nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT":        "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT",
		"cudnn::fusion::compute_dot_do_o_specialized<true, 64>": "cudnn::fusion::compute_dot_do_o_specialized<true, 64>",
		"at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda()::{lambda(float)#1}, " +
			"std::array<char*, 2ul> >": "at::native::vectorized_elementwise_kernel<8, " +
			"bfloat16_copy_kernel_cuda::{lambda(float)#1}, array<...>>",
		"at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda()::{lambda()#3}::operator()() " +
			"const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, " +
			"TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, " +
			"at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >": "at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda::{lambda#3}::{lambda#7}::{lambda(float)#1}, array<...>, 4, " +
			"TrivialOffsetCalculator<...>, TrivialOffsetCalculator<...>, LoadWithCast<1>, StoreWithCast<1>>",
		"at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, " +
			"at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >": "at::native::vectorized_elementwise_kernel<4, AUnaryFunctor<..., MulFunctor<float>>, array<...>>",
		"at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, " +
			"3ul> >": "at::native::vectorized_elementwise_kernel<8, CUDAFunctor_add<BFloat16>, array<...>>",
		"at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, " +
			"at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<c10::BFloat16, float, " +
			"c10::BFloat16>::operator()()::{lambda(float, float)#1}>, unsigned int, c10::BFloat16, 4, 8> >": "at::native::reduce_kernel<128, 4, ReduceOp<..., func_wrapper_t<..., sum_functor<...>::{lambda(float, float)#1}>, ...>>",
		"at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, " +
			"false>": "at::native::vectorized_layer_norm_kernel<float, float, false>",
		"at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, " +
			"unsigned int, 4, 64, 64>": "at::native::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>",
		"at::native::elementwise_kernel<128, 2, " +
			"at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float> " +
			">()::{lambda(int)#1}>": "at::native::elementwise_kernel<128, 2, " +
			"gpu_kernel_impl_nocast<CUDAFunctor_add<float>>::{lambda(int)#1}>",
		"at::native::elementwise_kernel<128, 4, " +
			"at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda()::{lambda()#3}::operator()() " +
			"const::{lambda()#12}::operator()() " +
			"const::{lambda(c10::BFloat16)#1}>()::{lambda(int)#1}>": "at::native::elementwise_kernel<128, 4, " +
			"gpu_kernel_impl_nocast<direct_copy_kernel_cuda::{lambda#3}::{lambda#12}::{lambda(BFloat16)#1}>::{lambda(int)#1}>",
		"(anonymous namespace)::elementwise_kernel_with_index<int, " +
			"at::native::arange_cuda_out()::{lambda()#1}::operator()() const::{lambda()#4}::operator()() " +
			"const::{lambda(long)#1}>": "elementwise_kernel_with_index<int, " +
			"arange_cuda_out::{lambda#1}::{lambda#4}::{lambda(long)#1}>",
		"at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortHistogramKernel<at_cuda_detail::cub::detail::radix::policy_hub<long, at::cuda::cub::detail::OpaqueType<8>, unsigned long long>::Policy1000, (at_cuda_detail::cub::SortOrder)0, long, unsigned long long, at_cuda_detail::cub::detail::identity_decomposer_t>": "at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortHistogramKernel<policy_hub<...>::Policy1000, (SortOrder)0, long, unsigned long long, identity_decomposer_t>",
		"cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop<2, " +
			"cute::tuple<int, int> >, int> > >": "cutlass::device_kernel<enable_sm90_or_later<FlashAttnFwdSm90<...>>>",
		"add(float*, std::pair<int, long> const*)":    "add(float*, pair<...> const*)",
		"Widget<int>::operator<<unsigned long>":       "Widget<int>::operator<<unsigned long>",
		"f<(a::E)3, &b::g(int), b::operator()>":       "f<(E)3, &b::g(int), operator()>",
		"use()::{lambda(int)#1}::operator()":          "use::{lambda(int)#1}::operator()",
		"broken<int":                                  "broken<int",
		"broken>int<":                                 "broken>int<",
		"<crate::mod::Type<u8, alloc::Vec>>::func":    "<Type<...>>::func",
		"k<a::B<int, int>>":                           "k<B<int, int>>",
		"k<a::B<long long>, c::D<a::B<c::LongName>>>": "k<B<...>, D<B<LongName>>>",
	} {
		if got := ShortKernel(full); got != want {
			t.Errorf("ShortKernel(%q)\n got %q\nwant %q", full, got, want)
		}
	}
}

func TestShortKernelIsBounded(t *testing.T) {
	testclass.Unit(t)
	for _, part := range []string{
		"<",
		"a<",
		"a<b,",
		"(",
		"{lambda(",
		"a::",
		"operator<",
		"Functor<",
		"f<a,g<b>,Functor<",
		"<>",
		"()::",
		"::",
	} {
		name := strings.Repeat(part, maxUncutNameBytes/len(part))
		for _, name := range []string{name, name + strings.Repeat(">", strings.Count(name, "<")), "k<" + name + ">"} {
			if !isFast(time.Second, func() { ShortKernel(name) }) {
				t.Errorf("%q…: takes more than 1 s", part)
			}
			if got := ShortKernel(name); len(got) > 2*len(name) {
				t.Errorf("%q…: %d bytes", part, len(got))
			}
		}
	}
}

func FuzzShortKernel(f *testing.F) {
	for _, s := range []string{
		"a::b<c::d<int>, e()::{lambda(f::g)#1}>",
		"operator<<",
		"(anonymous namespace)::f<1>",
		"<",
		">",
		"{lambda(",
		"a<b>()::c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := ShortKernel(s); len(got) > 2*len(s) || (got == "") != (s == "") {
			t.Fatalf("%q of %q", got, s)
		}
	})
}
